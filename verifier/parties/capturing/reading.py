"""Converts an exported program to a graph of JSON values, as far as a captured graph can express it."""

# sandboxed: reads graphs of the models that tasks define

from __future__ import annotations

import inspect
import keyword
import math
import operator
import re
from collections.abc import Iterator
from typing import Any

import torch

from verifier.graph import Graph, GraphInput, Node
from verifier.parties.capturing.calling import FlatCall, plain_value
from verifier.parties.capturing.exporting.numbers import SYMBOLS, Numbers
from verifier.parties.plain_state import source_of
from verifier.task import TensorSpec

MAX_CONSTANT_ELEMENTS = 256  # maximum size of a constant tensor whose values are shown to planners
ASSERTIONS = ("aten._assert_scalar.default", "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default")
MOST_CONSTANT_ELEMENTS = 16384  # maximum size of a tensor that forward creates and whose values are written into the program


def frame_file(model: torch.nn.Module) -> str:
    """Returns the file name under which the task's source was compiled; line numbers refer to this file."""
    return getattr(getattr(inspect.unwrap(type(model).forward), "__code__", None), "co_filename", "")


def read_graph(exported: torch.export.ExportedProgram, call: FlatCall, model: torch.nn.Module, file: str) -> Graph:
    """Returns `exported` as a graph of JSON values. Raises `ValueError` for anything that the graph cannot express."""
    signature = exported.graph_signature
    place = _user_inputs(call)
    graph_inputs: list[GraphInput] = []
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        kind = spec.kind.name
        value = node.meta.get("val")
        entry = GraphInput(name=node.name, kind="user", spec=tensor_spec(value) if isinstance(value, torch.Tensor) else None)
        if kind == "USER_INPUT":
            while place and place[0].name != "":
                graph_inputs.append(place.pop(0))
            entry = place.pop(0).model_copy(update={"name": node.name, "spec": entry.spec})
        elif kind in ("PARAMETER", "BUFFER"):
            entry.kind, entry.target = kind.lower(), spec.target
            entry.persistent = spec.persistent is not False
            entry.found = "" if all(map(_attribute, spec.target.split("."))) else reached(model, spec.target)
        elif kind == "CONSTANT_TENSOR":
            entry.kind, entry.target = "constant", spec.target
            _constant(entry, exported.constants[spec.target], model)
        elif kind == "CUSTOM_OBJ":
            word = type(exported.constants.get(spec.target)).__name__
            raise ValueError(f"an object that is no tensor ({word}) computes or keeps something")
        else:
            raise ValueError("an operator has an effect besides its results" if kind == "TOKEN" else f"an input of kind {kind} cannot be captured")
        graph_inputs.append(entry)
    graph_inputs += place

    for node in exported.graph.nodes:
        if node.target in (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default) and has_gaps(node):
            raise ValueError("as_strided reads an argument whose elements do not lie side by side in memory")
    nodes = read_nodes(exported, file)
    numbers = nodes.numbers
    mutations: dict[str, str] = {}
    mutated_inputs: dict[str, str] = {}
    returned: list[Any] = []
    output = next(node for node in exported.graph.nodes if node.op == "output")
    for value, spec in zip(output.args[0], signature.output_specs, strict=True):
        kind = spec.kind.name
        if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            mutations[spec.target] = value.name
        elif kind == "USER_INPUT_MUTATION":
            mutated_inputs[spec.target] = value.name
        elif kind == "USER_OUTPUT":
            if isinstance(value, torch.fx.Node) and value.name in numbers.values:
                raise ValueError("a number is read from a tensor, for Python")
            returned.append(json_value(value))
        else:
            raise ValueError(f"an output of kind {kind} cannot be captured")
    leaves = [returned[leaf["out"]] if isinstance(leaf, dict) else json_value(leaf) for leaf in call.results]
    return Graph(inputs=graph_inputs, nodes=nodes.found, outputs=leaves, output_tree=call.tree, mutations=mutations, mutated_inputs=mutated_inputs)


def has_gaps(node: torch.fx.Node) -> bool:
    """Returns whether a view refers to an argument whose memory has gaps or overlaps. A program computes with arguments in contiguous memory."""
    while node.op == "call_function" and getattr(node.target, "is_view", False) and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    value = node.meta.get("val")
    if node.op != "placeholder" or not isinstance(value, torch.Tensor) or value.numel() == 0:
        return False
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(value.stride(), value.shape, strict=True) if size != 1):
        if step != expected:
            return True
        expected *= size
    return False


def _user_inputs(call: FlatCall) -> list[GraphInput]:
    """Returns one entry per leaf of the arguments; entries for tensors do not have a name yet."""
    entries = []
    for at, leaf in enumerate(call.leaves):
        index, word = (leaf.owner, "") if isinstance(leaf.owner, int) else (None, leaf.owner)
        entry = GraphInput(name="", kind="user", index=index, keyword=word, path=leaf.path)
        if not isinstance(leaf.value, torch.Tensor):
            entry.name, entry.value = f"value_{at}", plain_value(leaf.value)
        entries.append(entry)
    return entries


def _constant(entry: GraphInput, constant: torch.Tensor, model: torch.nn.Module) -> None:
    """Describes a constant. Raises `ValueError` for a constant that cannot be reproduced."""
    if constant.numel() <= MAX_CONSTANT_ELEMENTS and not constant.is_complex():
        entry.value = json_value(constant.tolist())
        return
    try:
        if isinstance(_got(model, entry.target), torch.Tensor):
            return
    except AttributeError:
        pass
    entry.found = next((path for path, value in held_tensors(model) if _same(value, constant)), "")
    if entry.found:
        return
    if constant.numel() > MOST_CONSTANT_ELEMENTS or constant.is_complex():
        raise ValueError(f"a constant of {constant.numel()} elements is created where the program cannot recreate it")
    entry.value = json_value(constant.tolist())


def _got(owner: Any, target: str) -> Any:
    for part in target.split("."):
        owner = getattr(owner, part)
    return owner


def _same(value: torch.Tensor, constant: torch.Tensor) -> bool:
    if value is constant:
        return True
    alike = value.shape == constant.shape and value.dtype == constant.dtype and value.stride() == constant.stride()
    return alike and value.device == constant.device and value.data_ptr() == constant.data_ptr()


def reached(model: torch.nn.Module, target: str) -> str:
    """Returns Python code that reads the module or tensor with a given state-dict name. In a container, this requires an index, or a key that is not
    a valid attribute name."""
    owner: Any = model
    text = "self"
    for part in filter(None, target.split(".")):
        if _attribute(part):
            text += f".{part}"
        elif isinstance(owner, (torch.nn.Sequential, torch.nn.ModuleList)):  # slicing preserves the names of items but not their indices
            text += f"[{list(owner._modules).index(part)}]"
        elif isinstance(owner, torch.nn.ParameterList):
            text += f"[{part}]"
        elif isinstance(owner, (torch.nn.ModuleDict, torch.nn.ParameterDict)):
            text += f"[{part!r}]"
        else:
            table = next(name for name in ("_modules", "_parameters", "_buffers") if part in getattr(owner, name, ()))
            text += f".{table}[{part!r}]"
        owner = getattr(owner, part)
    return text


def _attribute(part: str) -> bool:
    return part.isidentifier() and not keyword.iskeyword(part)


def held_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors in attributes of the model and in variables of its source, including those in lists and dicts, each with Python code that
    reads it."""

    def within(path: str, value: Any, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(value, torch.Tensor):
            yield path, value
        elif depth and isinstance(value, (list, tuple)):
            for at, item in enumerate(value):
                yield from within(f"{path}[{at}]", item, depth - 1)
        elif depth and isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, (str, int)):
                    yield from within(f"{path}[{key!r}]", item, depth - 1)

    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in ("_parameters", "_buffers", "_modules") and key.isidentifier():
                yield from within(f"{reached(model, path)}.{key}", value, 3)
    for cls in type(model).__mro__:
        if cls.__module__ == type(model).__module__:
            for key, value in vars(cls).items():
                yield from within(f"self.{key}", value, 3)
    for key, value in source_of(model).items():
        yield from within(key, value, 3)


class read_nodes:
    """Reads the operators of an exported program in order."""

    def __init__(self, exported: torch.export.ExportedProgram, file: str):
        self.found: list[Node] = []
        self.numbers = Numbers(self.found.append)
        wanted = read_at_all(exported.graph)
        for node in exported.graph.nodes:
            if node not in wanted:
                continue
            if node.op == "call_function":
                self._take(node, file)
            elif node.op == "get_attr":  # a graph that an operator calls
                user = next(iter(node.users), node)
                line = source_line(user.meta.get("stack_trace") or "", file)
                raise ValueError(f"line {line}: {nested(user)}" if line else nested(user))
            elif node.op not in ("placeholder", "output"):
                raise ValueError(f"the graph has a node of kind {node.op!r}")

    def _take(self, node: torch.fx.Node, file: str) -> None:
        module, module_class = "", ""
        for path, cls in (node.meta.get("nn_module_stack") or {}).values():
            module, module_class = re.sub(r"^(L\['self'\]|_root)\.?", "", path), cls if isinstance(cls, str) else cls.__name__
        line = source_line(node.meta.get("stack_trace") or "", file)

        def make(name: str, op: str, args: list[Any], spec: TensorSpec | None, kwargs: dict[str, Any] | None = None) -> Node:
            outputs = [spec] if spec is not None else []
            word = module_class.rpartition(".")[2]
            return Node(name=name, op=op, args=args, kwargs=kwargs or {}, outputs=outputs, module=module, module_class=word, line=line)

        try:
            if self.numbers.take(node, make):
                return
            made = read_node(node, module, module_class, line)
            self.found.append(self.numbers.rewritten(node, made, make))
        except ValueError as error:
            raise ValueError(f"line {line}: {error}" if line else str(error)) from None


def read_at_all(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Returns all nodes except those that are read only by an assertion about a size. The exporter asserts that every data-dependent size is at least
    zero, even the size of a tensor that is otherwise unused."""

    def of_size(value: Any) -> bool:
        if not isinstance(value, torch.fx.Node):
            return True
        if str(value.target).startswith("aten.sym_"):
            return str(value.target).startswith(("aten.sym_size", "aten.sym_numel"))
        return isinstance(value.meta.get("val"), SYMBOLS) and all(map(of_size, value.args))

    waiting = [node for node in graph.nodes if not node.users and not (str(node.target) in ASSERTIONS and of_size(node.args[0]))]
    found: set[torch.fx.Node] = set(graph.find_nodes(op="placeholder"))
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def read_node(node: torch.fx.Node, module: str, module_class: str, line: int | None) -> Node:
    op = "getitem" if node.target is operator.getitem else str(node.target)
    if "." not in op and op != "getitem":
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise ValueError(nested(node))
        name = getattr(node.target, "__name__", op)
        raise ValueError(f"it becomes a call of `{name}`, which is not an operator on tensors")
    if ".quantize_per_" in op:  # during the export, its result has the type of its argument
        raise ValueError("quantised tensors are left to PyTorch")
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
        line=line,
    )


def nested(node: torch.fx.Node) -> str:
    """Explains why an operator that calls other operators or graphs cannot be captured."""
    name = getattr(node.target, "__name__", str(node.target))
    called = node.args[0] if node.args else None
    if name.startswith("auto_functionalized") and isinstance(called, torch._ops.OpOverload):
        return f"the operator `{called.name()}` of the source changes its arguments in place"
    return f"it becomes a nested graph (`{name}`)"


def source_line(stack_trace: str, file: str) -> int | None:
    """Returns the line of the innermost frame in the task's source."""
    lines = [int(match[2]) for match in re.finditer(r'File "([^"]*)", line (\d+)', stack_trace) if match[1] == file]
    return lines[-1] if lines else None


def json_value(value: Any) -> Any:
    """Converts arguments to JSON: nodes become `{"ref": name}`, dtypes and similar values become their names, and non-finite floats become `{"float":
    "inf"}`."""
    if isinstance(value, torch.fx.Node):
        return {"ref": value.name}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
        return str(value)
    raise ValueError(f"an argument of type {type(value).__name__} has no form in data")


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """Returns the shape, the dtype and, if the tensor is not contiguous, the strides. Raises `ValueError` if a size depends on data or the tensor has
    no strides."""
    if tensor.layout is not torch.strided:
        raise ValueError("sparse tensors are left to PyTorch" if "sparse" in str(tensor.layout) else f"a tensor has the layout {tensor.layout}")
    if any(isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None for size in tensor.shape):
        raise ValueError("the size of a tensor depends on data")
    shape = tuple(int(size) for size in tensor.shape)
    stride = None if tensor.is_contiguous() else tuple(int(step) for step in tensor.stride())
    return TensorSpec(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."), stride=stride)
