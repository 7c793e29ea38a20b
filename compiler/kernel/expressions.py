"""Prints scalar operations as C expressions. C++ and CUDA use the same expressions except for the names of functions."""

from __future__ import annotations

import math
from collections.abc import Iterable

from compiler.graph.ir import NARROW, Access, Argument, Kernel, Op, Store
from compiler.kernel.text import shift, times

C_TYPES = {
    "float32": "float",
    "float64": "double",  # for sums and values derived from them; never stored
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
# Booleans are stored as bytes, because g++ has no vectors of bool.
POINTED = {**C_TYPES, "bool": "unsigned char"}
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
         "and": "&", "or": "|", "xor": "^", "rshift": ">>", "lshift": "<<"}  # fmt: skip
SHORT = ("int8", "uint8", "int16")  # C computes with these as int, PyTorch within the type
LEAVES_TYPE = ("add", "sub", "mul", "neg", "abs", "invert", "lshift")  # operations whose result may not fit the type of their operands
JOINS = {"sum": "join_sum", "amax": "join_max", "amin": "join_min"}  # the compiler's own functions, which combine a value with an element in memory


def constant(value: bool | int | float, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype != "float32":
        return f"{value}LL" if abs(value) > 2**31 - 1 else str(value)
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    if value == int(value) and abs(value) < 1e6:
        return f"{value:.1f}f"  # keeps the sign of -0.0
    return f"{value!r}f" if "e" in repr(value) or "." in repr(value) else f"{value!r}.0f"


def product_term(variable: str, stride: int) -> str:
    return variable if stride == 1 else times(variable, stride)


def address(kernel: Kernel, access: Access, variables: dict[int, str]) -> str:
    """Returns the index expression of an access, given the loop variable of each axis. Sizes in the expression are marked (see text.py)."""
    terms = [product_term(variables[axis], stride) for axis, stride in enumerate(access.strides) if stride and variables[axis] != "0"]
    if access.offset:
        terms.append(shift(access.offset) if terms else str(access.offset))
    return " + ".join(terms) or "0"


def widened(text: str, dtype: str) -> str:
    """Converts an element stored as `dtype` to a register value."""
    return f"(float){text}" if dtype in NARROW else text


class Expressions:
    """Prints operations. `known` maps operations that already have a variable or a cached value to their text."""

    def __init__(self, kernel: Kernel, functions: dict[str, str], variables: dict[int, str], known: dict[str, str]):
        self.kernel, self.functions, self.variables, self.known = kernel, functions, variables, known

    def text(self, name: str) -> str:
        return self.known[name] if name in self.known else self.expression(self.kernel.ops[name])

    def inner(self, name: str) -> str:
        """Returns the text as an operand of an infix operator, in parentheses if it is itself an infix expression."""
        text = self.text(name)
        op = self.kernel.ops[name]
        bare = (
            name in self.known or (op.kind in ("load", "coord", "gather") and op.dtype != "bool") or (op.kind == "const" and not text.startswith("-"))
        )
        return text if bare or (text.endswith(")") and text.split("(")[0].isidentifier() and _closes_last(text)) else f"({text})"

    def expression(self, op: Op) -> str:
        text = self._expression(op)
        return f"({C_TYPES[op.dtype]})({text})" if op.dtype in SHORT and op.kind in LEAVES_TYPE else text

    def _expression(self, op: Op) -> str:
        kind, args = op.kind, op.args
        if kind == "const":
            return constant(op.attr, op.dtype)
        if kind == "load":
            text = self.element(op.access)
            return f"{text} != 0" if op.dtype == "bool" else self.widened(op.access, text)
        if kind == "coord":
            return f"(long long){self.variables[op.attr]}"
        if kind == "gather":
            text = self.element(op.access, args[0])
            return f"{text} != 0" if op.dtype == "bool" else self.widened(op.access, text)
        if kind == "placed":
            return self.text(args[0])
        if kind in INFIX:
            return f"{self.inner(args[0])} {INFIX[kind]} {self.inner(args[1])}"
        if kind == "cast" and op.dtype == "uint8" and self.kernel.ops[args[0]].dtype == "float32":
            return f"(unsigned char)(long long){self.inner(args[0])}"  # as PyTorch; a GPU would turn negative numbers into 0
        if kind == "cast":
            return f"({C_TYPES[op.dtype]}){self.inner(args[0])}"
        if kind == "round" and op.attr:
            return f"(float)({C_TYPES[op.attr]}){self.inner(args[0])}"
        if kind == "spread":
            return self.text(args[0])
        if kind == "where":
            return f"{self.inner(args[0])} ? {self.inner(args[1])} : {self.inner(args[2])}"
        if kind == "neg":
            return f"-{self.inner(args[0])}"
        if kind == "not":
            return f"!{self.inner(args[0])}"
        if kind == "invert":
            return f"~{self.inner(args[0])}"
        if kind == "reciprocal":
            return f"1.0f / {self.inner(args[0])}"
        if kind == "rsqrt":
            return f"1.0f / sqrtf({self.text(args[0])})"
        if kind == "abs":
            return f"fabsf({self.text(args[0])})" if op.dtype == "float32" else f"std::abs({self.text(args[0])})"
        if kind == "sign":
            x = self.inner(args[0])
            return f"({C_TYPES[op.dtype]})(({x} > 0) - ({x} < 0))"
        if kind in ("max", "min") and op.dtype != "float32":
            a, b = self.inner(args[0]), self.inner(args[1])
            return f"{a} {'>' if kind == 'max' else '<'} {b} ? {a} : {b}"
        return f"{self.functions[kind]}({', '.join(self.text(a) for a in args)})"

    def element(self, access: Access, position: str = "") -> str:
        """Returns the expression for an element in memory. `position` is the operation that computes its position, if any."""
        rest = address(self.kernel, access, self.variables)
        if not position:
            return f"{access.argument}[{rest}]"
        alone = access.index_stride == 1 and rest == "0"
        where = product_term(self.text(position) if alone else self.inner(position), access.index_stride)
        if rest != "0":
            where = f"{where} + {shift(access.offset) if rest == str(access.offset) else rest}"
        return f"{access.argument}[{where}]"

    def stored(self, store: Store) -> str:
        """Returns the statement for a store."""
        value = self.text(store.op)
        if not store.how:
            return f"{self.element(store.access)} = {value};"
        element = self.element(store.access, self.kernel.ops[store.op].args[1])
        return f"{JOINS[store.how]}(&{element}, {value});"

    def widened(self, access: Access, text: str) -> str:
        return widened(text, self.kernel.arguments[access.argument].dtype)


def _closes_last(text: str) -> bool:
    """Returns whether the last character of `text` closes the first opening parenthesis."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and character == ")":
            return at == len(text) - 1
    return False


def functions_used(kernel: Kernel) -> set[str]:
    return {op.kind for op in kernel.ops.values()}


def narrow_used(kernels: Iterable[Kernel], arguments: Iterable[Argument]) -> list[str]:
    """Returns the 16-bit and 8-bit types that the kernels read, write or round to."""
    kernels = list(kernels)
    found = {argument.dtype for argument in [*arguments, *(a for kernel in kernels for a in kernel.arguments.values())]}
    found |= {op.attr for kernel in kernels for op in kernel.ops.values() if op.kind == "round" and op.attr}
    return sorted(found & NARROW)
