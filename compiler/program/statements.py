"""The statements and variables of a printed forward. Each graph value that is kept has one variable, created where the value is first read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from compiler.graph.channels_last import CONVOLUTIONS
from compiler.graph.constants import CONSTANTS
from compiler.graph.layout import SPLITS
from compiler.graph.network import Network, refs
from compiler.graph.reductions import short
from compiler.kernel.builder import identifier
from compiler.kernel.naming import free
from compiler.program.packing import Packing
from compiler.program.print_torch import attribute, expression, literal, made_here_for
from compiler.program.results import written
from verifier.graph import Graph, GraphInput, Node

LAST = "memory_format=torch.channels_last"
STATE = ("parameter", "buffer")


class Statements:
    """Collects the statements of a forward. `given` maps each user input to its parameter; `reserved` holds names that its variables must not use.
    `lines` grows in execution order. `typed` means that the task changes the default type, so allocations specify their type even if it is
    float32."""

    def __init__(self, graph: Graph, network: Network, given: Mapping[str, str], reserved: Collection[str], cuda: bool, typed: bool = False):
        self.graph, self.network, self.cuda, self.typed = graph, network, cuda, typed
        self.lines: list[str] = []
        self.turned: dict[str, str] = {}  # non-contiguous state -> variable of its contiguous copy
        self.taken: set[str] = {*given.values(), *reserved}
        self.users = [e for e in graph.inputs if e.kind == "user"]
        self.variables = {e.name: given[e.name] for e in self.users}  # graph value -> expression
        self.state = {e.target: e.found or attribute(e.target) for e in graph.inputs if e.kind in STATE}  # by state-dict name
        self.packing = Packing(self.device())
        for entry in network.inputs.values():
            if entry.kind == "constant":
                self.variables[entry.name] = self._constant_tensor(entry)
            elif entry.kind != "user":
                self.variables[entry.name] = self.state[entry.target]

    def begin(self, users: list[GraphInput]) -> list[str]:
        """Starts another method with the given user inputs and returns its lines."""
        self.lines, self.users = [], users
        self.turned = {}
        self.packing.device = self.device()
        return self.lines

    def with_packed(self, lines: list[str]) -> list[str]:
        """Returns the lines of a method; if the method uses packed tensors, the first line fetches them."""
        rest = [line for line in lines if not line.startswith("packed = ")]
        fetch = f'packed = self.__dict__.get("packed") or self.pack({self.packing.device})'
        return [fetch, *rest] if any("packed[" in line for line in rest) else rest

    def put(self, *lines: str) -> None:
        self.lines += lines

    def _constant_tensor(self, entry: GraphInput) -> str:
        """Creates or moves the tensor only once. A kernel holds only the tensor's address, so the tensor must be kept alive."""
        if entry.value is None:
            held = entry.found or attribute(entry.target)
            return self.packed(f"{held}.to(device)") if self.cuda else held
        return self.packed(f"torch.tensor({literal(entry.value, str)}, dtype=torch.{entry.tensor.dtype}, device=device)")

    def packed(self, code: str) -> str:
        """Returns the variable of a tensor that is created once, in the first forward."""
        return self.packing.variable(code, self.lines)

    def value(self, name: str) -> str:
        """Returns the expression of a value. Views and constants are created where they are read."""
        if name in self.variables:
            return self.variables[name]
        node = self.network.nodes[name]
        if self.network.of_weights(name):
            return self.packed(self.made_of(name))
        if self.cuda and self._same_in_every_call(node):
            self.variables[name] = self.packed(expression(self.network, node, self.value, "device", {}))
            return self.variables[name]
        maker = self.network.nodes.get(node.args[0]["ref"]) if node.op == "getitem" else None
        if not (self.network.is_view(name) or node.op in SPLITS or short(node) in CONSTANTS or maker is not None):
            raise KeyError(f"{name} is read before it is computed")
        text = expression(self.network, node, self.value, self.made_on(), {})
        if len(self.network.users[name]) + self.network.results.count(name) > 1 or node.op in SPLITS:  # its readers share the memory
            variable = self.fresh(name)
            self.put(f"{variable} = {text}")
            self.variables[name] = variable
            return variable
        return f"({text})" if short(node) in CONSTANTS and " " in text and not text.endswith(")") else text

    def _same_in_every_call(self, node: Node) -> bool:
        """Returns whether the value is a range that the program only reads, so that it need not be computed in every call."""
        return short(node) == "arange" and not self.network.escapes(node.name) and not made_here_for(self.network, node.name)

    def dense(self, name: str) -> str:
        """Returns the expression of a value with contiguous elements, as kernels read it. A parameter with another layout (for example, transposed)
        is copied once; state that forward changes is copied in every call."""
        entry = self.network.inputs.get(name)
        if entry is None or entry.kind == "user" or entry.spec is None or entry.spec.stride is None:
            return self.variables[name]
        text = f"{self.variables[name]}.contiguous()"
        if name in self.network.steady or entry.kind == "constant":
            return self.packed(text)
        if name not in self.turned:
            self.turned[name] = self.fresh(f"{name}_dense")
            self.put(f"{self.turned[name]} = {text}")
        return self.turned[name]

    def made_of(self, name: str) -> str:
        """Returns the expression of weights, or of a value that is computed once from weights, in terms of `self` and `device`."""
        code = self.network.of_weights(name)
        return code.format(*(self.value(one["ref"]) for one in self.network.nodes[name].args)) if code else self.value(name)

    def read_by(self, node: Node) -> Callable[[str], str]:
        """Returns the `value` function for the arguments of a library operator. A channels-last convolution receives its image in that layout, and
        its weights are converted once."""
        if node.name not in self.network.last or node.op not in CONVOLUTIONS:
            return self.value
        image, weight = (argument["ref"] for argument in node.args[:2])

        def read(name: str) -> str:
            if name == weight and self.network.made_once(name):
                return self.packed(f"{self.made_of(name)}.contiguous({LAST})")
            text = self.value(name)
            inner = self.network.base(name) in self.network.last
            return text if inner or name not in (image, weight) else f"{text}.contiguous({LAST})"

        return read

    def wanted_layout(self, name: str) -> str | None:
        """Returns the argument of `contiguous` that gives a library result the required layout, whichever layout the library chose, or None if no
        conversion is needed."""
        specs = self.network.nodes[name].outputs
        if len(specs) != 1 or not self.network.last:
            return None
        if name in self.network.last:
            return LAST
        chosen = len(specs[0].shape) == 4 and not self.network.is_view(name)
        return "" if chosen and any(self.network.base(source) in self.network.last for source in refs(self.network.nodes[name].args)) else None

    def materialise(self, name: str) -> None:
        variable = self.fresh(name)
        self.put(f"{variable} = {self.value(name)}")
        self.variables[name] = variable

    def allocate(self, name: str) -> None:
        """Allocates memory for a value that a kernel writes."""
        variable = self.variables[name] = self.fresh(name)
        spec, first = self.network.spec(name), self._first_tensor()
        if (
            first is not None
            and (tuple(spec.shape), spec.dtype) == (tuple(first.tensor.shape), first.tensor.dtype)
            and not {name, first.name} & self.network.last
        ):
            self.put(f"{variable} = torch.empty_like({self.variables[first.name]})")
            return
        extras = "" if spec.dtype == "float32" and not self.typed else f", dtype=torch.{spec.dtype}"
        extras += f", device={self.device()}" if self.cuda else ""
        extras += ", memory_format=torch.channels_last" if name in self.network.last else ""
        self.put(f"{variable} = torch.empty({tuple(spec.shape)}{extras})")

    def fresh(self, name: str) -> str:
        name = free(identifier(name), self.taken)
        self.taken.add(name)
        return name

    def device(self) -> str:
        """Returns the device of this method's inputs, or that of the weights if the method has no tensor inputs."""
        first = self._first_tensor()
        if first is not None:
            return f"{self.variables[first.name]}.device"
        state = (e for e in self.network.inputs.values() if e.kind in ("parameter", "buffer") and e.persistent and e.spec is not None)
        return next((f"{self.state[entry.target]}.device" for entry in state), '"cuda"' if self.cuda else '"cpu"')

    def made_on(self) -> str:
        """Returns the device on which the library creates a tensor: that of a weight or of this method's inputs."""
        here = {entry.name for entry in self.users}
        entries = (e for e in self.network.inputs.values() if e.spec is not None and (e.kind != "user" or e.name in here))
        return next((f"{self.variables[entry.name]}.device" for entry in entries), self.device())

    def _first_tensor(self) -> GraphInput | None:
        return next((e for e in self.users if e.spec is not None), None)

    def tree(self, tree: Any, top: bool = False) -> str:
        """Returns the expression for the results of forward or a part of it, with the structure of its outputs."""

        def leaf(index: int) -> str:
            value = self.graph.outputs[index]
            if isinstance(value, dict) and "ref" in value:
                return self.value(value["ref"])
            return literal(value, self.value) if isinstance(value, (dict, str)) else repr(value)

        return written(tree, leaf, top=top or tree is self.graph.output_tree)
