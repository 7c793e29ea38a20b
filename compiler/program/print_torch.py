"""Prints operators left to the library as the Python code that a person would write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compiler.graph.constants import CONSTANTS
from compiler.graph.layout import contiguous_strides
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.graph.regions import REGION
from verifier.graph import GROUPED, ROUTED, Node

FUNCTIONAL = {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention",
              "embedding", "gelu", "silu", "softplus", "mish", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "relu", "relu6",
              "max_pool1d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
              "adaptive_avg_pool3d", "pixel_shuffle"}  # fmt: skip
TORCH = {"matmul", "bmm", "mm", "addmm", "baddbmm", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "neg", "abs", "where",
         "cumsum", "cat", "stack", "cumprod", "tril", "triu", "einsum", "bitwise_not", "logical_not", "maximum", "minimum", "clamp",
         "logsumexp", "argmax", "argmin", "sort", "topk", "gather", "flip", "roll", "outer", "floor", "ceil", "sign", "isnan"}  # fmt: skip
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Operators whose results are in new memory, and dense if the arguments are, so kernels may read them through pointers and overwrite them.
CONVOLVED = {"conv1d", "conv2d", "conv3d", "convolution"}
GATHERED_UP = {"index_add", "scatter_add", "scatter_reduce"}  # printed as in-place operations on their first argument if nothing else reads it
HELPED = {GROUPED: "grouped", ROUTED: "routed"}  # computed by a helper function of the program
FRESH = {"linear", "matmul", "bmm", "mm", "addmm", "baddbmm", *CONVOLVED}


def expression(network: Network, node: Node, value: Callable[[str], str], device: str, helpers: Mapping[str, str]) -> str:
    """Returns the Python expression of an operator. `value(name)` is the expression of another value, and `device` is the device expression for
    tensors created without a tensor argument. `helpers` holds the names of the program's helper functions (support.py)."""
    name = short(node)
    args = [literal(a, value) for a in node.args]
    kwargs = {k: device if k == "device" else literal(v, value) for k, v in node.kwargs.items()
              if k not in ("layout", "pin_memory") and v is not None}  # fmt: skip
    if node.op == "getitem":
        return f"{args[0]}[{args[1]}]"
    if name in INFIX and not kwargs and len(args) == 2:
        return f"{args[0]} {INFIX[name]} {args[1]}"
    if node.op == "stitch.cross_entropy_rows":
        return f'torch.nn.functional.cross_entropy({args[0]}, {args[1]}, ignore_index={args[2]}, reduction="none")'
    if node.op in HELPED:
        return f"{helpers[HELPED[node.op]]}({', '.join(args)})"
    if node.op == REGION:
        return region(args[0], args[1], node.args[2])
    if node.op == "stitch.mean_counted":
        return f"{args[0]}.sum() / ({args[1]} != {args[2]}).sum()"
    view = method(network, node, args) or (as_it_lay(network, node, value) if name == "as_strided" else "")
    if view:
        return view
    if name in ("softmax", "log_softmax") and len(args) == 2:
        return f"torch.{name}({args[0]}, dim={args[1]})"
    if name in ("layer_norm", "group_norm") and len(args) >= 5:
        return f"torch.nn.functional.{name}({', '.join(args[:5])})"
    every = ", ".join([*args, *(f"{k}={v}" for k, v in kwargs.items())])
    if name in GATHERED_UP and made_here(network, node):
        return f"{args[0]}.{name}_({', '.join([*args[1:], *(f'{k}={v}' for k, v in kwargs.items())])})"
    if name == "scalar_tensor":  # filled on the device, because torch.tensor copies from the host, which a CUDA graph cannot record
        return f"torch.full((), {every})"
    if name in ("full", "arange"):
        return f"torch.{name}({every})"
    if name in FUNCTIONAL and name != "embedding":
        return f"torch.nn.functional.{name}({every})"
    if name == "embedding" and len(args) == 2:
        return f"torch.nn.functional.embedding({args[1]}, {args[0]})"
    if name in TORCH:
        return f"torch.{name}({every})"
    return f"torch.ops.{node.op}({every})"


def region(whole: str, part: str, cuts: list[list[int]]) -> str:
    """Returns `whole` with `part` written to the region that results from slicing one axis after another."""
    (axis, start, count), *rest = cuts
    inner = region(f"{whole}.narrow({axis}, {start}, {count})", part, rest) if rest else part
    return f"torch.slice_scatter({whole}, {inner}, {axis}, {start}, {start + count})"


def made_here(network: Network, node: Node) -> bool:
    """Returns whether the first argument is a constant tensor created only for this operator."""
    base = node.args[0]["ref"] if isinstance(node.args[0], dict) else ""
    return base in network.nodes and short(network.nodes[base]) in CONSTANTS and network.users[base] == [node.name] and base not in network.results


def made_here_for(network: Network, constant: str) -> bool:
    """Returns whether an operator that is printed as an in-place operation changes the constant."""
    return any(short(network.nodes[user]) in GATHERED_UP and made_here(network, network.nodes[user]) for user in network.users[constant])


def method(network: Network, node: Node, args: list[str]) -> str:
    """Prints a view as a method of the tensor."""
    name = short(node)
    if node.op == "aten.view.dtype":  # reinterprets the bits of a copy, because the result may be overwritten
        return f"{args[0]}.clone().view({args[1]})"
    if name in ("view", "_unsafe_view", "reshape"):
        shape = network.spec(node.name).shape
        return f"{args[0]}.{'view' if network.is_view(node.name) else 'reshape'}({', '.join(map(str, shape)) or '()'})"
    if name == "permute":
        return f"{args[0]}.permute({args[1].strip('[]') or '()'})"
    if name in ("transpose", "unsqueeze", "select", "expand", "squeeze"):
        return f"{args[0]}.{name}({', '.join(a.strip('[]') or '()' for a in args[1:])})"
    if name == "t":
        return f"{args[0]}.t()"
    if name == "slice":
        axis = plain(node.args[1]) if len(node.args) > 1 else 0
        rank = len(network.spec(node.name).shape)
        start, end = (plain(node.args[n]) if len(node.args) > n else None for n in (2, 3))
        step = plain(node.args[4]) if len(node.args) > 4 else 1
        size = network.spec(node.args[0]["ref"]).shape[axis]
        cut = f"{start or ''}:{'' if end is None or end >= size else end}" + (f":{step}" if step != 1 else "")
        return f"{args[0]}[{', '.join([':'] * (axis % rank) + [cut])}]"
    if name in ("alias", "detach"):
        return args[0]
    return ""


def as_it_lay(network: Network, node: Node, value: Callable[[str], str]) -> str:
    """Prints `as_strided` over memory in the layout that it had at capture, regardless of the value's layout in the program. Returns "" if the
    captured memory has gaps."""
    source, size, strides = node.args[0]["ref"], node.args[1], node.args[2]
    base = network.base(source)
    spec = network.spec(base)
    steps = spec.stride or contiguous_strides(spec.shape)
    order = sorted(range(len(steps)), key=lambda axis: -steps[axis]) if spec.stride else list(range(len(steps)))
    whole = tuple(steps[axis] for axis in order) == contiguous_strides(tuple(spec.shape[axis] for axis in order))
    if not whole or spec.stride is not None and source != base and len(node.args) < 4:
        return ""
    offset = node.args[3] if len(node.args) > 3 and node.args[3] is not None else network.layouts[source].offset
    turned = "" if order == sorted(order) else f".permute({', '.join(map(str, order))})"
    return f"{value(base)}{turned}.contiguous().as_strided({size}, {strides}, {offset})"


def literal(argument: Any, value: Callable[[str], str]) -> str:
    if isinstance(argument, dict) and "ref" in argument:
        return value(argument["ref"])
    if isinstance(argument, dict) and "float" in argument:
        return f'float("{argument["float"]}")'
    if isinstance(argument, dict) and "complex" in argument:
        return "complex({!r}, {!r})".format(*argument["complex"])
    if isinstance(argument, list):
        return f"[{', '.join(literal(item, value) for item in argument)}]"
    if isinstance(argument, str) and argument.startswith("torch."):
        return argument
    return repr(argument)


def attribute(target: str) -> str:
    """Returns the expression for a state-dict name (`self.net[0].weight` for "net.0.weight") for which the capture provides none."""
    text = "self"
    for part in target.split("."):
        if part.isidentifier():
            text += f".{part}"
        elif part.isdigit():
            text += f"[{part}]"
        else:
            return f'self.get_parameter("{target}")'
    return text
