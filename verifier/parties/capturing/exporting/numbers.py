"""Keeps numbers that forward reads from tensors (`.item()`, `float(x)`) on the device.

The exported graph represents them as symbols, with Python operators between them. Here each becomes a zero-dimensional tensor. A number that is not
used in any computation remains the tensor that it was read from; the result of a computation is a double or a 64-bit integer, as in Python.
"""

# sandboxed: reads graphs of the models that tasks define

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from verifier.graph import ASSERTION, Node
from verifier.parties.capturing.exporting.stand_ins import STANDS_FOR, stand_in
from verifier.parties.plain_state import source_of
from verifier.task import TensorSpec

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
READ = ("aten._local_scalar_dense.default", "aten.item.default")
UNASSERTED = "one_hot: "  # start of the messages of assertions that the decomposition of an operator adds about its input
_BINARY = {
    operator.add: "add.Tensor", operator.sub: "sub.Tensor", operator.mul: "mul.Tensor", operator.truediv: "div.Tensor",
    operator.mod: "remainder.Tensor", operator.pow: "pow.Tensor_Tensor", operator.lt: "lt.Tensor", operator.le: "le.Tensor",
    operator.gt: "gt.Tensor", operator.ge: "ge.Tensor", operator.eq: "eq.Tensor", operator.ne: "ne.Tensor",
    operator.and_: "logical_and.default", operator.or_: "logical_or.default",
}  # fmt: skip
_UNARY = {operator.neg: "neg.default", operator.abs: "abs.default", torch.sym_not: "logical_not.default", math.sqrt: "sqrt.default"}
_CHOSEN = {
    torch.sym_max: "gt.Tensor",
    torch.sym_min: "lt.Tensor",
}  # the comparison of the second with the first that selects the second, as in Python
_SCALARS = {
    "add.Scalar": "add.Tensor", "sub.Scalar": "sub.Tensor", "mul.Scalar": "mul.Tensor", "div.Scalar": "div.Tensor",
    "div.Scalar_mode": "div.Tensor_mode", "pow.Tensor_Scalar": "pow.Tensor_Tensor", "pow.Scalar": "pow.Tensor_Tensor",
    "remainder.Scalar": "remainder.Tensor", "fmod.Scalar": "fmod.Tensor", "eq.Scalar": "eq.Tensor", "ne.Scalar": "ne.Tensor",
    "lt.Scalar": "lt.Tensor", "le.Scalar": "le.Tensor", "gt.Scalar": "gt.Tensor", "ge.Scalar": "ge.Tensor",
    "masked_fill.Scalar": "masked_fill.Tensor", "clamp.default": "clamp.Tensor", "clamp_min.default": "clamp_min.Tensor",
    "clamp_max.default": "clamp_max.Tensor",
}  # fmt: skip
_TAKES_TENSORS = {"add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode"}  # accept a number in place of a tensor


class Numbers:
    """The numbers of one graph. `put` receives the nodes that represent numbers."""

    def __init__(self, put: Callable[[Node], None]):
        self.put = put
        self.values: dict[str, tuple[str, str]] = {}  # symbol -> (value on the device, its dtype)
        self.devices: dict[str, str] = {}
        self.casts: dict[tuple[str, str], str] = {}

    def is_number(self, node: torch.fx.Node) -> bool:
        return isinstance(node.meta.get("val"), SYMBOLS)

    def take(self, node: torch.fx.Node, make: Callable[..., Node]) -> bool:
        """Handles a node, and returns whether it was a number or an assertion about one. Raises `ValueError` for an unsupported operator on
        numbers."""
        target = str(node.target)
        if target == ASSERTION and not str(node.args[1]).startswith(UNASSERTED):
            return False
        if target.startswith(("aten.sym_constrain_range", "aten._assert_async")) and not self._symbols(node):
            return True
        if target.startswith("aten.sym_constrain_range"):
            return True
        if target == "aten._assert_scalar.default":
            self._assertion(node, make)
            return True
        if not self.is_number(node):
            return False
        if target in READ:
            source: Any = node.args[0]
            value = source.meta["val"]
            dtype, name = _name(value.dtype), str(source.name)
            if value.dim():
                name = self._node(make, node, "aten.view.default", [{"ref": name}, []], dtype)
            self.values[node.name] = name, dtype
            return True
        self._computed(node, make)
        return True

    def _computed(self, node: torch.fx.Node, make: Callable[..., Node]) -> None:
        kind = _kind(node.meta["val"])
        function: Any = node.target
        if function is torch.sym_float:
            self.values[node.name] = self._operand(node.args[0], make, node, operator.truediv)["ref"], "float64"
            return
        args = [self._operand(argument, make, node, function) for argument in node.args]
        if function is torch.sym_int or function is math.trunc:
            cut = self._node(make, node, "aten.trunc.default", [args[0]], "float64")
            made = self._node(make, node, "aten._to_copy.default", [{"ref": cut}], "int64", {"dtype": "torch.int64"})
        elif function is operator.floordiv:
            made = self._node(make, node, "aten.div.Tensor_mode", args, kind, {"rounding_mode": "floor"})
        elif function in _CHOSEN:
            test = self._node(make, node, f"aten.{_CHOSEN[function]}", args[::-1], "bool")
            made = self._node(make, node, "aten.where.self", [{"ref": test}, args[1], args[0]], kind)
        elif function in _BINARY:
            made = self._node(make, node, f"aten.{_BINARY[function]}", args, kind)
        elif function in _UNARY or str(function).endswith("sym_sqrt"):
            made = self._node(make, node, f"aten.{_UNARY.get(function, 'sqrt.default')}", args[:1], kind)
        else:
            word = getattr(function, "__name__", str(function))
            raise ValueError(f"{word} of a number read from a tensor is not supported on the device")
        self.values[node.name] = made, kind

    def _operand(self, argument: Any, make: Callable[..., Node], node: torch.fx.Node, function: Any) -> dict[str, str]:
        """Converts an operand to the type in which Python computes: double precision or 64-bit integers."""
        if isinstance(argument, torch.fx.Node):
            if argument.name not in self.values:
                raise ValueError("the size of a tensor depends on data")
            wide = "float64" if function is operator.truediv or self.values[argument.name][1].startswith(("float", "bfloat")) else "int64"
            if isinstance(argument.meta["val"], torch.SymBool):
                wide = "bool"
            return {"ref": self.cast(argument.name, wide, make, node)}
        dtype = "bool" if isinstance(argument, bool) else "int64" if isinstance(argument, int) else "float64"
        return {"ref": self._node(make, node, "aten.scalar_tensor.default", [argument], dtype, {"dtype": f"torch.{dtype}", "device": "input"})}

    def cast(self, symbol: str, dtype: str, make: Callable[..., Node], node: torch.fx.Node) -> str:
        """Casts the value of a symbol to a type."""
        name, own = self.values[symbol]
        if own == dtype:
            return name
        if (name, dtype) not in self.casts:
            self.casts[name, dtype] = self._node(make, node, "aten._to_copy.default", [{"ref": name}], dtype, {"dtype": f"torch.{dtype}"})
        return self.casts[name, dtype]

    def _assertion(self, node: torch.fx.Node, make: Callable[..., Node]) -> None:
        """Moves the task's assertions about a number to the device. Drops the exporter's own assertions, such as that a count is at least 0."""
        message = str(node.args[1]) if len(node.args) > 1 else ""
        condition = node.args[0]
        if message.startswith("Runtime assertion failed for expression") or not isinstance(condition, torch.fx.Node):
            return
        value = self.cast(condition.name, "bool", make, node)
        self.put(make(f"{node.name}", ASSERTION, [{"ref": value}, message], None))

    def rewritten(self, node: torch.fx.Node, made: Node, make: Callable[..., Node]) -> Node:
        """Rewrites a node that takes numbers as one that takes values on the device. Raises `ValueError` if its operator needs the numbers on the
        host."""
        symbols = self._symbols(node)
        if not symbols:
            return made
        short = made.op.removeprefix("aten.")
        spec = made.outputs[0] if len(made.outputs) == 1 else None
        if short in ("full.default", "full_like.default", "scalar_tensor.default") and spec is not None and symbols <= set(_direct(node)):
            value = self.cast(next(iter(symbols)), spec.dtype, make, node)
            if short == "scalar_tensor.default":
                return made.model_copy(update={"op": "aten.alias.default", "args": [{"ref": value}], "kwargs": {}})
            return made.model_copy(update={"op": "aten.expand.default", "args": [{"ref": value}, list(spec.shape)], "kwargs": {}})
        if short == "select.int" and spec is not None and symbols == {getattr(node.args[-1], "name", "")}:
            return self._selected(node, made, make)
        if short.startswith("where.Scalar") and spec is not None:
            return made.model_copy(
                update={"op": "aten.where.self", "args": [made.args[0], *(self._chosen(a, v, spec, make, node) for a, v in self._sides(node, made))]}
            )
        wanted = _SCALARS.get(short, short if short in _TAKES_TENSORS else "")
        tensor = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if not wanted or spec is None or not symbols <= set(_direct(node)):
            raise ValueError(f"{short.partition('.')[0]} needs on the host a number that is read from a tensor")
        dtype = _name(tensor.dtype) if isinstance(tensor, torch.Tensor) else spec.dtype

        def put(argument: Any, value: Any) -> Any:
            if not isinstance(argument, torch.fx.Node) or argument.name not in self.values:
                scalar = isinstance(argument, (int, float)) and short.startswith("clamp")
                return {"ref": self._operand_of(argument, dtype, make, node)} if scalar else value
            own = self.values[argument.name][1]
            floats = own.startswith(("float", "bfloat")) and dtype.startswith(("float", "bfloat"))
            return {"ref": self.cast(argument.name, dtype if floats or short.startswith(("clamp", "masked")) else own, make, node)}

        args = [put(argument, value) for argument, value in zip(node.args, made.args, strict=True)]
        kwargs = {key: put(argument, made.kwargs[key]) for key, argument in node.kwargs.items()}
        return made.model_copy(update={"op": f"aten.{wanted}", "args": args, "kwargs": kwargs})

    def _selected(self, node: torch.fx.Node, made: Node, make: Callable[..., Node]) -> Node:
        """Rewrites `x[i]` as indexing with a tensor."""
        given: Any = node.args
        source, axis, index = given
        places = [*[None] * (axis % source.meta["val"].dim()), {"ref": self.cast(index.name, "int64", make, node)}]
        return made.model_copy(update={"op": "aten.index.Tensor", "args": [made.args[0], places]})

    @staticmethod
    def _sides(node: torch.fx.Node, made: Node) -> list[tuple[Any, Any]]:
        return list(zip(node.args[1:3], made.args[1:3], strict=True))

    def _chosen(self, argument: Any, value: Any, spec: TensorSpec, make: Callable[..., Node], node: torch.fx.Node) -> Any:
        """Returns one of the two values that `where` selects from, converted to the type of its result."""
        if isinstance(argument, torch.fx.Node):
            return {"ref": self.cast(argument.name, spec.dtype, make, node)} if argument.name in self.values else value
        return {"ref": self._operand_of(argument, spec.dtype, make, node)}

    def _operand_of(self, value: Any, dtype: str, make: Callable[..., Node], node: torch.fx.Node) -> str:
        return self._node(make, node, "aten.scalar_tensor.default", [value], dtype, {"dtype": f"torch.{dtype}", "device": "input"})

    def _symbols(self, node: torch.fx.Node) -> set[str]:
        return {argument.name for argument in node.all_input_nodes if self.is_number(argument)}

    def _node(
        self, make: Callable[..., Node], node: torch.fx.Node, op: str, args: list[Any], dtype: str, kwargs: dict[str, Any] | None = None
    ) -> str:
        name = f"{node.name}_number_{len(self.devices) + 1}"
        self.devices[name] = op
        self.put(make(name, op, args, TensorSpec(shape=(), dtype=dtype), kwargs))
        return name


def _direct(node: torch.fx.Node) -> Iterator[str]:
    """Yields the names of arguments that are not elements of a list. (The elements of a size must be known on the host.)"""
    for argument in [*node.args, *node.kwargs.values()]:
        if isinstance(argument, torch.fx.Node):
            yield argument.name


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _kind(value: Any) -> str:
    return "bool" if isinstance(value, torch.SymBool) else "int64" if isinstance(value, torch.SymInt) else "float64"


def _read(kind: type, symbolic: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns a version of `kind(...)` that leaves a number that is read from a tensor on the device."""

    def read(*args: Any, **kwargs: Any) -> Any:
        value = args[0] if len(args) == 1 and not kwargs else None
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, SYMBOLS):
            return symbolic(value)
        return kind(*((value,) if len(args) == 1 and not kwargs else args), **kwargs)

    return read


def _extreme(function: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Returns a version of `max` or `min` that leaves the result on the device if an argument is a number that is read from a tensor. The arguments
    must be of one type, because Python returns the chosen one with its own type."""

    def choose(*args: Any, **kwargs: Any) -> Any:
        kinds = {type(STANDS_FOR.get(type(value), value)) for value in args}
        if len(args) > 1 and not kwargs and len(kinds) == 1 and kinds <= {float, int} and any(isinstance(value, SYMBOLS) for value in args):
            return functools.reduce(symbolic, args)
        return function(*args, **kwargs)

    return choose


@contextlib.contextmanager
def numbers_stay(model: torch.nn.Module) -> Iterator[None]:
    """Makes `float(x)` and `int(x)` of a tensor mean `x.item()` while the model's module is exported, so that later operators can use the result.
    Keeps `max` and `min` of such numbers on the device, and makes `x[i] = y` write to position `i` of `x`."""
    names = source_of(model)
    kinds = {"float": (builtins.float, torch.sym_float), "int": (builtins.int, torch.sym_int)}
    instead: dict[str, Any] = {name: stand_in(kind, _read(kind, symbolic)) for name, (kind, symbolic) in kinds.items()}
    instead |= {"max": _extreme(builtins.max, torch.sym_max), "min": _extreme(builtins.min, torch.sym_min)}
    placed = [name for name in instead if name not in names]
    names.update({name: instead[name] for name in placed})
    before: Any = torch.Tensor.__setitem__

    def put(tensor: torch.Tensor, key: Any, value: Any) -> None:
        if not _at_number(key):
            before(tensor, key, value)
            return
        _put_at(tensor, key if isinstance(key, tuple) else (key,), value)

    torch.Tensor.__setitem__ = put  # type: ignore[method-assign,assignment]  # replaced while the model is exported
    try:
        yield
    finally:
        del torch.Tensor.__setitem__  # uncovers the original in the base class
        for name in placed:
            del names[name]


def _put_at(tensor: torch.Tensor, key: tuple[Any, ...], value: Any) -> None:
    """Writes to a position without creating a view of it, because the view's start in memory would depend on data."""
    numbers: Any = (torch.Tensor, torch.SymInt)
    wrapped: Any = torch.scalar_tensor
    around = tensor[tuple(slice(None) if isinstance(part, numbers) else part for part in key)]
    given = sum(part is not None and part is not Ellipsis for part in key)
    places: list[torch.Tensor | None] = []
    for part in key:
        if isinstance(part, torch.SymInt):
            places.append(wrapped(part, dtype=torch.int64, device=tensor.device))
        elif isinstance(part, torch.Tensor):
            places.append(part.long())
        elif part is Ellipsis:
            places += [None] * (tensor.dim() - given)
        elif isinstance(part, slice) or part is None:
            places.append(None)
    if isinstance(value, torch.Tensor):
        rank = around.dim() - sum(place is not None for place in places)
        while value.dim() > rank and value.shape[0] == 1:
            value = value[0]
        value = value.to(around.dtype)
    else:
        value = torch.full((), value, dtype=around.dtype, device=around.device)
    torch.ops.aten.index_put_(around, places, value)


def _at_number(key: Any) -> bool:
    """Returns whether an index selects a single position given by a number on the device, such as `x[i]` or `x[:, i]` for a zero-dimensional tensor
    `i`."""
    parts = key if isinstance(key, tuple) else (key,)
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    whole = all(one.dim() == 0 and not (one.is_floating_point() or one.is_complex() or one.dtype in (torch.bool, torch.uint8)) for one in tensors)
    plain = all(
        isinstance(part, (int, slice, type(Ellipsis), type(None), torch.SymInt, torch.Tensor)) and not isinstance(part, bool) for part in parts
    )
    return whole and plain and any(isinstance(part, (torch.Tensor, torch.SymInt)) for part in parts)
