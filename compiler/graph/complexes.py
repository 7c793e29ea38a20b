"""Represents complex numbers as pairs of real tensors, which kernels can process. Typical cases are `view_as_complex(x) * turned` and a filter
between two Fourier transforms.

Library operators (transforms, products) still use complex tensors. A complex value is *whole* if it is an input or the result of a library operator
or a view; its *parts* are then views of its pairs of reals. Values that are computed element by element have only parts. If a library operator reads
such a value, it becomes whole: the kernel that computes the parts also writes the pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.graph.layout import VIEWS
from compiler.graph.regions import REGION
from compiler.graph.values import new_node, plain, refs
from verifier.graph import Node
from verifier.task import TensorSpec

COMPLEX = "complex64"
MOVES = frozenset(
    [REGION, *(f"aten.{name}" for name in (
        "cat.default", "index.Tensor", "gather.default", "index_select.default", "roll.default", "flip.default", "slice_scatter.default",
        "select_scatter.default", "clone.default", "contiguous.default", "sum.dim_IntList", "mean.dim", "neg.default",
    ))]
)  # fmt: skip
Part = Any  # one part of an operand: a reference or a number


def as_reals(nodes: list[Node], specs: dict[str, TensorSpec], results: set[str]) -> list[Node]:
    """Returns the nodes with complex64 arithmetic rewritten as float32 arithmetic. Values that forward returns keep their names."""
    if not any(spec.dtype == COMPLEX for spec in specs.values()):
        return nodes
    found = _Reals(dict(specs), results)
    for node in nodes:
        found.add(node)
    return found.nodes


class _Reals:
    def __init__(self, specs: dict[str, TensorSpec], results: set[str]):
        self.specs, self.results = specs, results
        self.nodes: list[Node] = []
        self.makers: dict[str, Node] = {}  # producers of whole values
        self.parts: dict[str, tuple[str, str]] = {}
        self.origin: Node | None = None  # the node being replaced

    def add(self, node: Node) -> None:
        self.origin = node
        read = list(dict.fromkeys(refs([node.args, list(node.kwargs.values())])))
        complexes = [name for name in read if self.specs[name].dtype == COMPLEX]
        own = len(node.outputs) == 1 and node.outputs[0].dtype == COMPLEX
        if own and self.by_parts(node, complexes):
            if node.name in self.results:
                self.make_whole(node.name)
            return
        if not own and len(complexes) == 1 and self.to_reals(node, complexes[0]):
            return
        for name in complexes:
            self.make_whole(name)
        self.nodes.append(node)
        if own:
            self.makers[node.name] = node

    def put(self, name: str, op: str, args: list[Any], shape: tuple[int, ...], dtype: str = "float32") -> str:
        assert self.origin is not None, "something is replaced"
        replaces = name == self.origin.name or self.specs.get(name, TensorSpec(shape=(), dtype="")).dtype == COMPLEX
        while not replaces and name in self.specs:
            name += "_of"
        kwargs = {"dtype": f"torch.{dtype}", "device": "input"} if op in ("full.default", "arange.default") else {}
        made = new_node(self.origin, name, op if op.startswith("stitch") else f"aten.{op}", args, TensorSpec(shape=tuple(shape), dtype=dtype), kwargs)
        self.nodes.append(made)
        self.specs[name] = made.outputs[0]
        return name

    # -- whole and parts ------------------------------------------------------------------------------------------------------

    def make_whole(self, name: str) -> None:
        """Creates the complex tensor for a value that has only parts."""
        if name in self.makers or name not in self.parts:
            return
        shape = self.specs[name].shape
        pairs = self.pairs(name, f"{name}_pairs")
        self.put(name, "view_as_complex.default", [{"ref": pairs}], shape, COMPLEX)
        self.makers[name] = self.nodes[-1]

    def pairs(self, name: str, into: str) -> str:
        """Creates a tensor in which the two parts are interleaved."""
        shape = tuple(self.specs[name].shape)
        both = [self.put(f"{into}_of_{at}", "unsqueeze.default", [{"ref": part}, len(shape)], (*shape, 1)) for at, part in enumerate(self.of(name))]
        at = self.put(f"{into}_at", "arange.default", [2], (2,), "int64")
        first = self.put(f"{into}_first", "eq.Scalar", [{"ref": at}, 0], (2,), "bool")
        return self.put(into, "where.self", [{"ref": first}, *({"ref": part} for part in both)], (*shape, 2))

    def of(self, name: str) -> tuple[str, str]:
        """Returns the names of a complex value's parts."""
        if name not in self.parts:
            self.parts[name] = self.taken_apart(name)
        return self.parts[name]

    def taken_apart(self, name: str) -> tuple[str, str]:
        shape, maker = tuple(self.specs[name].shape), self.makers.get(name)
        source = maker.args[0]["ref"] if maker is not None and maker.args and isinstance(maker.args[0], dict) and "ref" in maker.args[0] else ""
        if maker is not None and maker.op in VIEWS and source in self.specs and self.specs[source].dtype == COMPLEX:
            return self.each(name, maker.op, lambda at: [{"ref": self.of(source)[at]}, *maker.args[1:]], shape)
        if maker is not None and maker.op == "aten.view_as_complex.default":
            pairs = source
        else:
            pairs = self.put(f"{name}_pairs", "view_as_real.default", [{"ref": name}], (*shape, 2))
        return self.each(name, "select.int", lambda at: [{"ref": pairs}, len(shape), at], shape)

    def each(self, name: str, op: str, args: Callable[[int], list[Any]], shape: tuple[int, ...]) -> tuple[str, str]:
        op = op.removeprefix("aten.")
        return self.put(f"{name}_real", op, args(0), shape), self.put(f"{name}_imag", op, args(1), shape)

    def operand(self, value: Any) -> tuple[Part, Part | None]:
        """Returns both parts of an operand; the second is None for a real operand."""
        if isinstance(value, dict) and "ref" in value:
            if self.specs[value["ref"]].dtype != COMPLEX:
                return value, None
            real, imag = self.of(value["ref"])
            return {"ref": real}, {"ref": imag}
        if isinstance(value, dict) and "complex" in value:
            return value["complex"][0], value["complex"][1]
        return value, None

    # -- operators ------------------------------------------------------------------------------------------------------------

    def by_parts(self, node: Node, complexes: list[str]) -> bool:
        """Computes the parts of the result from the parts of the operands if possible, and returns whether it did."""
        name, shape = node.op.partition(".")[2].partition(".")[0], tuple(node.outputs[0].shape)
        if node.op in VIEWS:
            if complexes and complexes[0] in self.makers:
                return False  # the node remains a view of a whole value
            if complexes and complexes[0] in self.parts:
                self.parts[node.name] = self.each(node.name, node.op, lambda at: self.replaced(node.args, at), shape)
            return node.name in self.parts
        if node.op == "aten.full.default":
            real, imag = self.operand(node.args[1])
            self.parts[node.name] = self.each(node.name, node.op, lambda at: [list(shape), (real, imag or 0)[at]], shape)
        elif node.op in MOVES and complexes and not node.kwargs.get("dtype"):
            mixed = [one for one in refs(node.args) if self.specs[one].dtype == "float32"]
            if mixed:
                return False
            self.parts[node.name] = self.each(node.name, node.op, lambda at: self.replaced(node.args, at), shape)
        elif name in ARITHMETIC and not (name == "div" and (len(node.args) > 2 or node.kwargs)):
            return ARITHMETIC[name](self, node, shape)
        else:
            return False
        return True

    def replaced(self, value: Any, at: int) -> Any:
        """Returns the arguments with every complex value replaced by one part of it."""
        if isinstance(value, list):
            return [self.replaced(one, at) for one in value]
        if isinstance(value, dict) and "ref" in value and self.specs[value["ref"]].dtype == COMPLEX:
            return {"ref": self.of(value["ref"])[at]}
        return value

    def to_reals(self, node: Node, source: str) -> bool:
        """Computes the real results of a complex value from its parts, if possible, and returns whether it did."""
        shape, name = tuple(node.outputs[0].shape) if node.outputs else (), node.op
        if name == "aten.view_as_real.default" and source in self.parts and source not in self.makers:
            self.pairs(source, node.name)
        elif name in ("aten.real.default", "aten.imag.default"):
            self.put(node.name, "alias.default", [{"ref": self.of(source)[name == "aten.imag.default"]}], shape)
        elif name == "aten.abs.default":
            self.absolute(node.name, source, shape)
        else:
            return False
        return True

    def absolute(self, name: str, source: str, shape: tuple[int, ...]) -> None:
        """Computes the magnitude from the larger part and a ratio, because the squares of the parts might overflow or underflow float32."""

        def put(suffix: str, op: str, *args: Any, dtype: str = "float32") -> dict[str, str]:
            return {"ref": self.put(f"{name}_{suffix}", op, list(args), shape, dtype)}

        real, imag = (put(f"of_{at}", "abs.default", {"ref": part}) for at, part in enumerate(self.of(source)))
        large, small = put("large", "maximum.default", real, imag), put("small", "minimum.default", real, imag)
        ratio = put("ratio", "div.Tensor", small, large)
        square = put("square", "add.Scalar", put("part", "mul.Tensor", ratio, ratio), 1)
        length = put("length", "mul.Tensor", large, put("root", "sqrt.default", square))
        self.put(name, "where.self", [put("none", "isnan.default", ratio, dtype="bool"), large, length], shape)

    def binary(self, name: str, op: str, left: Part, right: Part, shape: tuple[int, ...]) -> str:
        """Applies a binary operator to two parts. A scalar must be the second operand; in a sum or product it may also be the first."""
        if not isinstance(left, dict):
            left, right = right, left
        return self.put(name, f"{op}.{'Tensor' if isinstance(right, dict) else 'Scalar'}", [left, right], shape)


def _known(*parts: Part | None) -> bool:
    return all(part is None or isinstance(part, (int, float)) or (isinstance(part, dict) and "ref" in part) for part in parts)


def _product(reals: _Reals, node: Node, shape: tuple[int, ...]) -> bool:
    (a, b), (c, d) = reals.operand(node.args[0]), reals.operand(node.args[1])
    if not _known(a, b, c, d) or not isinstance(a, dict) or "ref" not in a:
        return False
    name = node.name
    if b is None or d is None:  # one of the operands is real
        by = [(a, c), (b, c)] if d is None else [(a, c), (a, d)]
        reals.parts[name] = (reals.binary(f"{name}_real", "mul", *by[0], shape), reals.binary(f"{name}_imag", "mul", *by[1], shape))
        return True
    products = [reals.binary(f"{name}_term_{at}", "mul", *pair, shape) for at, pair in enumerate(((a, c), (b, d), (a, d), (b, c)))]
    refs_of = [{"ref": one} for one in products]
    reals.parts[name] = (
        reals.put(f"{name}_real", "sub.Tensor", refs_of[:2], shape),
        reals.put(f"{name}_imag", "add.Tensor", refs_of[2:], shape),
    )
    return True


def _sum(reals: _Reals, node: Node, shape: tuple[int, ...]) -> bool:
    (a, b), (c, d) = reals.operand(node.args[0]), reals.operand(node.args[1])
    op = node.op.split(".")[1]
    if plain(node.kwargs.get("alpha", 1)) != 1 or len(node.args) > 2 or not _known(a, b, c, d) or not isinstance(a, dict) or "ref" not in a:
        return False
    real = reals.binary(f"{node.name}_real", op, a, c, shape)
    if b is not None and d is not None:
        imag = reals.binary(f"{node.name}_imag", op, b, d, shape)
    elif b is not None:
        imag = reals.put(f"{node.name}_imag", "expand.default", [b, list(shape)], shape)
    else:
        zero = {"ref": reals.put(f"{node.name}_none", "full.default", [list(shape), 0], shape)}
        imag = reals.binary(f"{node.name}_imag", op, zero, d, shape)
    reals.parts[node.name] = (real, imag)
    return True


def _quotient(reals: _Reals, node: Node, shape: tuple[int, ...]) -> bool:
    """Divides a complex value by a real number or tensor."""
    (a, b), (c, d) = reals.operand(node.args[0]), reals.operand(node.args[1])
    if b is None or d is not None or not _known(a, b, c):
        return False
    reals.parts[node.name] = (reals.binary(f"{node.name}_real", "div", a, c, shape), reals.binary(f"{node.name}_imag", "div", b, c, shape))
    return True


def _conjugate(reals: _Reals, node: Node, shape: tuple[int, ...]) -> bool:
    real, imag = reals.of(node.args[0]["ref"])
    reals.parts[node.name] = (real, reals.put(f"{node.name}_imag", "neg.default", [{"ref": imag}], shape))
    return True


def _composed(reals: _Reals, node: Node, shape: tuple[int, ...]) -> bool:
    """Builds a complex value from a real and an imaginary tensor."""
    if any(reals.specs[one["ref"]].dtype != "float32" for one in node.args):
        return False
    reals.parts[node.name] = reals.each(node.name, "expand.default", lambda at: [node.args[at], list(shape)], shape)
    return True


def _polar(reals: _Reals, node: Node, shape: tuple[int, ...]) -> bool:
    return _turned(reals, node.name, node.args[0], node.args[1], shape)


def _exponential(reals: _Reals, node: Node, shape: tuple[int, ...]) -> bool:
    real, imag = reals.of(node.args[0]["ref"])
    size = reals.put(f"{node.name}_size", "exp.default", [{"ref": real}], shape)
    return _turned(reals, node.name, {"ref": size}, {"ref": imag}, shape)


def _turned(reals: _Reals, name: str, size: Part, angle: Part, shape: tuple[int, ...]) -> bool:
    """Computes the parts of a value from its magnitude and its angle."""
    if any(reals.specs[one["ref"]].dtype != "float32" for one in (size, angle)):
        return False
    turned = [{"ref": reals.put(f"{name}_{op}", f"{op}.default", [angle], tuple(reals.specs[angle["ref"]].shape))} for op in ("cos", "sin")]
    reals.parts[name] = (reals.binary(f"{name}_real", "mul", turned[0], size, shape), reals.binary(f"{name}_imag", "mul", turned[1], size, shape))
    return True


ARITHMETIC: dict[str, Callable[[_Reals, Node, tuple[int, ...]], bool]] = {
    "mul": _product, "add": _sum, "sub": _sum, "div": _quotient, "_conj": _conjugate, "conj": _conjugate, "_conj_physical": _conjugate,
    "conj_physical": _conjugate, "complex": _composed, "polar": _polar, "exp": _exponential,
}  # fmt: skip
