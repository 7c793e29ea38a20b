"""The functional ATen graph of a model as data. Runs in the sandboxed reference process only: it executes the task's `forward`."""

# sandboxed: exports and calls the models that tasks define

from __future__ import annotations

import contextlib
import copy
import math
import operator
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._decomp import decompositions as torch_decompositions
from torch.utils import _pytree as pytree

from verifier.graph import Capture, Graph, GraphInput, Node
from verifier.source import sha256
from verifier.task import TensorSpec

# Composite operators that say more than their decomposition: a compiler fuses them as a whole, or hands them to the library as they are.
KEEP = frozenset(
    [
        "linear",
        "matmul",
        "softmax.int",
        "log_softmax.int",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "instance_norm",
        "scaled_dot_product_attention",
        "einsum",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool2d",
        "cross_entropy_loss",
        "gelu",
        "silu",
        "softplus",
        "mish",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "leaky_relu",
        "elu",
        "relu6",
        "log_sigmoid",
        "var.correction",
        "var.dim",
        "var.default",
        "std.correction",
        "std.dim",
        "std.default",
        "logsumexp",
        "cumsum",
        "embedding",
        "lstm.input",
        "gru.input",
        "rnn_tanh.input",
        "rnn_relu.input",
        "dropout",
        "upsample_nearest2d",
        "upsample_bilinear2d",
        "pixel_shuffle",
        "pad",
        "triu",
        "tril",
        "logaddexp",
        "addmm",
        "baddbmm",
    ]
)
MAX_CONSTANT_ELEMENTS = 256  # a lifted constant tensor larger than this stays without its values


def capture(model: torch.nn.Module, inputs: list[Any], task_source: str, mode: str) -> Capture:
    """Export `model(*inputs)` in `mode` ("train" or "eval"). Where export fails, `graph` is null and `reason` says why."""
    started = time.perf_counter()
    result = Capture(task=sha256(task_source), mode=mode)
    model.train(mode == "train")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = export(model, inputs)
            result.graph = read_graph(exported, inputs, frame_file(model))
            result.bytes_min = minimal_bytes(result.graph)
    except Exception as error:  # whatever export or a stranger's forward raises is the reason
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        result.reason = f"torch.export could not capture the model: {type(error).__name__}: {first[:400]}"
    result.flops = count_flops(model, inputs)
    result.seconds = time.perf_counter() - started
    return result


def export(model: torch.nn.Module, inputs: list[Any]) -> torch.export.ExportedProgram:
    def once() -> torch.export.ExportedProgram:
        with recurrent_layers_by_shape():
            exported: torch.export.ExportedProgram = torch.export.export(model, tuple(inputs), strict=False).run_decompositions(decompositions())
            return exported

    try:
        return once()
    except RuntimeError as error:
        if "is mutated in the forward" not in str(error):
            raise
    with attributes_as_buffers(model):
        return once()


@contextlib.contextmanager
def recurrent_layers_by_shape() -> Iterator[None]:
    """While a model is exported, a layer of a recurrence, which stays an operator (`KEEP`), says only what shape its results have. On a GPU, PyTorch
    goes through each of its steps to know (a minute for six layers of 512), and 2.11 tells last states of an LSTM with an axis too many."""
    before = torch_decompositions.one_layer_lstm, torch_decompositions.one_layer_rnn
    torch_decompositions.one_layer_lstm, torch_decompositions.one_layer_rnn = _lstm_layer, _rnn_layer
    try:
        yield
    finally:
        torch_decompositions.one_layer_lstm, torch_decompositions.one_layer_rnn = before


def _lstm_layer(inp: torch.Tensor, hidden: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """`inp` (steps, batch, features); of `hidden` each (batch, units)."""
    out = hidden[0].new_empty((inp.shape[0], *hidden[0].shape))
    return out, tuple(state.new_empty(state.shape) for state in hidden[:2])


def _rnn_layer(inp: torch.Tensor, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return hidden.new_empty((inp.shape[0], *hidden.shape)), hidden.new_empty(hidden.shape)


@contextlib.contextmanager
def attributes_as_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Tensors that forward keeps in plain attributes (a hidden state) are state that it may change, as buffers are."""
    found = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
    ]
    for module, name, value in found:
        delattr(module, name)
        module.register_buffer(name, value, persistent=False)
    try:
        yield
    finally:
        for module, name, value in found:
            delattr(module, name)
            setattr(module, name, value)


def decompositions() -> dict[Any, Any]:
    """Torch's own table, less the operators that are kept whole."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        name = str(overload).removeprefix("aten.")
        if name in KEEP or name.split(".")[0] in KEEP:
            del table[overload]
    return table


def frame_file(model: torch.nn.Module) -> str:
    """The file name under which the task's source was compiled; its lines are what a reader wants to see."""
    return getattr(getattr(type(model).forward, "__code__", None), "co_filename", "")


def read_graph(exported: torch.export.ExportedProgram, inputs: list[Any], file: str) -> Graph:
    """`exported` as JSON values; raises `ValueError` for what the contract cannot say."""
    if any(isinstance(value, (list, tuple, dict)) for value in inputs):
        raise ValueError("an input is a list, a tuple or a dict; only tensors and plain values are captured")
    signature = exported.graph_signature
    graph_inputs, position = [], 0
    nodes: list[Node] = []
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        kind = spec.kind.name
        value = node.meta.get("val")
        entry = GraphInput(name=node.name, kind="user", spec=tensor_spec(value) if isinstance(value, torch.Tensor) else None)
        if kind == "USER_INPUT":
            entry.index = position
            if entry.spec is None:
                entry.value = inputs[position]
            position += 1
        elif kind in ("PARAMETER", "BUFFER"):
            entry.kind, entry.target = kind.lower(), spec.target
            entry.persistent = spec.persistent is not False
        elif kind == "CONSTANT_TENSOR":
            entry.kind, entry.target = "constant", spec.target
            constant = exported.constants[spec.target]
            if constant.numel() <= MAX_CONSTANT_ELEMENTS:
                entry.value = json_value(constant.tolist())
        else:
            raise ValueError(f"an input of kind {kind} cannot be captured")
        graph_inputs.append(entry)

    for node in exported.graph.nodes:
        if node.op == "call_function":
            nodes.append(read_node(node, file))
        elif node.op not in ("placeholder", "output"):
            raise ValueError(f"the graph has a node of kind {node.op!r}")

    by_kind: dict[str, dict[str, str]] = {"mutations": {}, "mutated_inputs": {}}
    leaves = []
    output = next(node for node in exported.graph.nodes if node.op == "output")
    for value, spec in zip(output.args[0], signature.output_specs, strict=True):
        kind = spec.kind.name
        if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            by_kind["mutations"][spec.target] = value.name
        elif kind == "USER_INPUT_MUTATION":
            by_kind["mutated_inputs"][spec.target] = value.name
        elif kind == "USER_OUTPUT":
            leaves.append(json_value(value))
        else:
            raise ValueError(f"an output of kind {kind} cannot be captured")
    tree = pytree.tree_unflatten(list(range(len(leaves))), exported.call_spec.out_spec)
    return Graph(inputs=graph_inputs, nodes=nodes, outputs=leaves, output_tree=json_tree(tree), **by_kind)


def read_node(node: torch.fx.Node, file: str) -> Node:
    op = "getitem" if node.target is operator.getitem else str(node.target)
    if "." not in op and op != "getitem":
        raise ValueError(f"the operator {op!r} has no form in data (control flow inside forward)")
    module, module_class = "", ""
    for path, cls in (node.meta.get("nn_module_stack") or {}).values():
        module, module_class = re.sub(r"^(L\['self'\]|_root)\.?", "", path), cls if isinstance(cls, str) else cls.__name__
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return Node(
        name=node.name,
        op=op,
        args=[json_value(argument) for argument in node.args],
        kwargs={key: json_value(argument) for key, argument in node.kwargs.items()},
        outputs=[tensor_spec(item) for item in values if isinstance(item, torch.Tensor)],
        module=module,
        module_class=module_class.rpartition(".")[2],
        line=source_line(node.meta.get("stack_trace") or "", file),
    )


def source_line(stack_trace: str, file: str) -> int | None:
    """Line of the innermost frame that lies in the task's source."""
    lines = [int(match[2]) for match in re.finditer(r'File "([^"]*)", line (\d+)', stack_trace) if match[1] == file]
    return lines[-1] if lines else None


def json_value(value: Any) -> Any:
    """Arguments as JSON: nodes are `{"ref": name}`, dtypes and the like their names, non-finite floats `{"float": "inf"}`."""
    if isinstance(value, torch.fx.Node):
        return {"ref": value.name}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(value)
    raise ValueError(f"an argument of type {type(value).__name__} has no form in data")


def json_tree(tree: Any) -> Any:
    """The nesting of the outputs: leaf indices in lists, dicts with string keys and `{"tuple": [...]}`."""
    if isinstance(tree, bool) or not isinstance(tree, (int, list, tuple, dict)):
        raise ValueError(f"an output of type {type(tree).__name__} cannot be captured")
    if isinstance(tree, int):
        return tree
    if isinstance(tree, dict):
        if not all(isinstance(key, str) for key in tree):
            raise ValueError("a dict among the outputs has keys that are not strings")
        return {key: json_tree(item) for key, item in tree.items()}
    if type(tree) not in (list, tuple):
        raise ValueError(f"an output of type {type(tree).__name__} cannot be captured")
    items = [json_tree(item) for item in tree]
    return items if isinstance(tree, list) else {"tuple": items}


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """Shape, dtype and, where it is not contiguous, strides."""
    shape = tuple(int(size) for size in tensor.shape)
    stride = None if tensor.is_contiguous() else tuple(int(step) for step in tensor.stride())
    return TensorSpec(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."), stride=stride)


def spec_bytes(spec: TensorSpec) -> int:
    size = torch.empty(0, dtype=getattr(torch, spec.dtype)).element_size()
    return math.prod(spec.shape) * size


def minimal_bytes(graph: Graph) -> int:
    """Inputs and weights that are used, read once; outputs and mutated state, written once."""
    specs: dict[str, TensorSpec] = {node.name: node.outputs[0] for node in graph.nodes if len(node.outputs) == 1}
    specs.update({entry.name: entry.spec for entry in graph.inputs if entry.spec is not None})
    used: set[str] = set()

    def visit(value: Any) -> None:
        if isinstance(value, dict) and "ref" in value:
            used.add(value["ref"])
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item)

    for node in graph.nodes:
        visit(node.args)
        visit(list(node.kwargs.values()))
    visit(graph.outputs)
    total = sum(spec_bytes(entry.spec) for entry in graph.inputs if entry.spec is not None and entry.name in used)
    written = [leaf["ref"] for leaf in graph.outputs if isinstance(leaf, dict) and "ref" in leaf]
    written += [*graph.mutations.values(), *graph.mutated_inputs.values()]
    return total + sum(spec_bytes(specs[name]) for name in written if name in specs)


def count_flops(model: torch.nn.Module, inputs: list[Any]) -> int | None:
    """Multiply-adds counted as two, of matrix products, convolutions and attention; null where a copy of the model cannot be run."""
    from torch.utils.flop_counter import FlopCounterMode

    try:
        twin = copy.deepcopy(model)  # forward may change running statistics
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            twin(*copy.deepcopy(inputs))
        return int(counter.get_total_flops())
    except Exception:
        return None
