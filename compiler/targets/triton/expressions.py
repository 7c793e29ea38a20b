"""Prints scalar operations as Triton expressions over blocks, and lists the names reserved for a printed Triton kernel's own use."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable

from compiler.graph.ir import FLOAT8, Access, Kernel, Op
from compiler.kernel.builder import Refused
from compiler.kernel.expressions import INFIX, address
from compiler.kernel.functions import LIBDEVICE
from compiler.kernel.text import plain

TYPES = {"float32": "tl.float32", "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8",
         "bool": "tl.int1"}  # fmt: skip
PLAIN = {"const", "load", "gather", "coord", "cast", "spread", "where", "neg", "not", "invert", "reciprocal", "rsqrt", "sqrt", "div", "abs", "sign",
         "max", "min", "sigmoid", "isnan", "isinf", "reduce", "scan"}  # fmt: skip
REDUCES = {"sum", "max", "min", "amax", "amin"}
RESERVED = frozenset({*keyword.kwlist, "tl", "triton", "libdevice", "float", "range", "row", "at", "inside", "in_rows", "in_columns", "start", "step",
                      "chunk", "scratch", "BLOCK", "ROWS", "CHUNKS", "i", "j", "k", "l", "m", "n", "at_least", "at_most", "sigmoid_of", "cut",
                      "product_of", "row0", "row1", "row2", "row3", "row4"})  # fmt: skip
LONG = 2**31 - 2**20  # with at least this many elements, an index that can run past the tensor by a block needs 64 bits


def check_covered(kernel: Kernel) -> None:
    """Raises `Refused` for an operation that cannot be expressed in Triton."""
    for argument in kernel.arguments.values():
        if argument.dtype in FLOAT8:
            raise Refused(f"{argument.dtype} is not printed in Triton")
    for op in kernel.ops.values():
        if op.kind not in PLAIN and op.kind not in INFIX and op.kind not in LIBDEVICE:
            raise Refused(f"{op.kind} is not printed in Triton")
        if op.kind == "reduce" and op.attr not in REDUCES or op.kind == "scan" and op.attr != "sum":
            raise Refused(f"a {op.kind} by {op.attr} is not printed in Triton")
        if op.kind in ("reduce", "scan") and op.dtype != "float32":
            raise Refused(f"a {op.kind} of {op.dtype} is not printed in Triton")


def constant(value: bool | int | float, dtype: str) -> str:
    if dtype == "bool":
        return "True" if value else "False"
    if dtype != "float32":
        return str(value)
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return f"{float(value)!r}"


class Expressions:
    """Prints operations as expressions. `variables` holds an expression for each axis. `masks` holds, for each axis, the mask of those elements of
    the block that are inside the domain, or "" if all are inside. `known` maps operations that already have a variable."""

    def __init__(self, kernel: Kernel, variables: dict[int, str], masks: dict[int, str], known: dict[str, str]):
        self.kernel, self.variables, self.masks, self.known = kernel, variables, masks, known
        self._axes: dict[str, set[int]] = {}

    def axes(self, name: str) -> set[int]:
        """Returns the axes along which the value of an operation varies."""
        if name not in self._axes:
            op = self.kernel.ops[name]
            found = set().union(*(self.axes(a) for a in op.args)) if op.args else set()
            if op.access is not None:
                found |= {axis for axis, stride in enumerate(op.access.strides) if stride}
            if op.kind == "coord":
                found.add(op.attr)
            self._axes[name] = found - set(self.kernel.inner) if op.kind == "reduce" else found
        return self._axes[name]

    def mask(self, axes: Iterable[int]) -> str:
        """Returns the mask as an additional argument of a load or store, or "" if nothing needs masking."""
        names = list(dict.fromkeys(self.masks[axis] for axis in sorted(axes) if self.masks[axis]))
        return f", mask={' & '.join(names)}" if names else ""

    def store(self, access: Access, value: str) -> str:
        where = self.place(access)
        return f"tl.store({where}, {value}{self.mask(axis for axis, stride in enumerate(access.strides) if stride)})"

    def place(self, access: Access, index: str = "") -> str:
        rest = plain(address(self.kernel, access, self.variables))
        terms = [access.argument, *([index] if index else []), *([rest] if rest != "0" else [])]
        return " + ".join(terms)

    def text(self, name: str) -> str:
        return self.known[name] if name in self.known else self.expression(self.kernel.ops[name])

    def inner(self, name: str) -> str:
        """Returns the value as an operand of an infix operator, with parentheses if it itself contains one."""
        text, op = self.text(name), self.kernel.ops[name]
        bare = text.isidentifier() or (op.kind == "const" and not text.startswith("-")) or _is_call(text)
        return text if bare else f"({text})"

    def expression(self, op: Op) -> str:
        kind, args = op.kind, op.args
        if kind == "const":
            return constant(op.attr, op.dtype)
        if kind == "load":
            return f"tl.load({self.place(op.access)}{self.mask(self.axes(op.name))})" + self._widened(op.access)
        if kind == "gather":
            stride = op.access.index_stride
            index = self.inner(args[0]) + (f" * {stride}" if stride != 1 else "")
            return f"tl.load({self.place(op.access, index)}{self.mask(self.axes(op.name))})" + self._widened(op.access)
        if kind == "coord":
            text = self.variables[op.attr]
            return f"{text if text.isidentifier() else f'({text})'}.to(tl.int64)"
        if kind == "div":
            return f"tl.div_rn({self.text(args[0])}, {self.text(args[1])})" if op.dtype == "float32" else self._infix(op, "//")
        if kind in INFIX:
            return self._infix(op, INFIX[kind])
        if kind == "cast":
            return f"{self.inner(args[0])}.to({TYPES[op.dtype]})"
        if kind == "spread":
            return self.text(args[0])
        if kind == "where":
            return f"tl.where({', '.join(self.text(a) for a in args)})"
        if kind == "round" and op.attr:
            return f"{self.inner(args[0])}.to(tl.{op.attr}).to(tl.float32)"
        if kind == "neg":
            return f"-{self.inner(args[0])}"
        if kind == "not":
            return f"{self.inner(args[0])} == 0"
        if kind == "invert":
            return f"~{self.inner(args[0])}"
        if kind == "reciprocal":
            return f"tl.div_rn(1.0, {self.text(args[0])})"
        if kind == "sqrt":
            return f"tl.sqrt_rn({self.text(args[0])})"
        if kind == "rsqrt":
            return f"tl.div_rn(1.0, tl.sqrt_rn({self.text(args[0])}))"
        if kind == "abs":
            return f"tl.abs({self.text(args[0])})"
        if kind == "sign":
            x = self.inner(args[0])
            return f"({x} > 0).to({TYPES[op.dtype]}) - ({x} < 0).to({TYPES[op.dtype]})"
        if kind == "isnan":
            return f"{self.inner(args[0])} != {self.inner(args[0])}"
        if kind == "isinf":
            return f'tl.abs({self.text(args[0])}) == float("inf")'
        if kind in ("max", "min"):
            own = {"max": "at_least", "min": "at_most"} if op.dtype == "float32" else {"max": "tl.maximum", "min": "tl.minimum"}
            return f"{own[kind]}({', '.join(self.text(a) for a in args)})"
        if kind == "sigmoid":
            return f"sigmoid_of({self.text(args[0])})"
        return f"libdevice.{LIBDEVICE[kind]}({', '.join(self.text(a) for a in args)})"

    def _widened(self, access: Access) -> str:
        """Converts a loaded value to float32, the type in which kernels compute regardless of the type in memory. Stores round to the type in
        memory."""
        return ".to(tl.float32)" if self.kernel.arguments[access.argument].dtype in ("bfloat16", "float16") else ""

    def _infix(self, op: Op, sign: str) -> str:
        return f"{self.inner(op.args[0])} {sign} {self.inner(op.args[1])}"

    def declare(self, ops: Iterable[Op], uses: dict[str, int]) -> list[str]:
        """Returns assignments for loads and for expressions that are long or used more than once. Other expressions are printed where they are
        used."""
        lines = []
        for op in ops:
            if op.name in self.known or op.kind in ("reduce", "scan"):
                continue
            text = self.expression(op)
            if op.kind == "const":
                self.known[op.name] = text
            elif op.kind in ("load", "gather") or uses.get(op.name, 0) > 1 or len(text) > 72:
                lines.append(f"{op.name} = {text}")
                self.known[op.name] = op.name
        return lines


def uses(kernel: Kernel) -> dict[str, int]:
    """Returns how many times each operation is used. An operation on both sides of one comparison counts once."""
    found: dict[str, int] = {}
    for name in [a for op in kernel.ops.values() for a in (*op.args, *(op.args if op.kind in ("sign", "isnan") else ()))] + [
        store.op for store in kernel.stores
    ]:
        found[name] = found.get(name, 0) + 1
    return found


def _is_call(text: str) -> bool:
    """True if `text` is a single call such as `tl.where(...)`, in which the last character closes the first parenthesis."""
    head = text.split("(")[0]
    if not text.endswith(")") or not head or not head.replace(".", "").isidentifier():
        return False
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == ")":
            return at == len(text) - 1
    return False
