"""The representation of kernels as data: a domain of axes, scalar operations in SSA form, and the tensors that they read and write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["row", "full"]  # one value per row of the domain, or one per element
HALVES = frozenset({"bfloat16", "float16"})  # storage types only; a kernel computes in float32 and rounds once, when it stores the result
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e5m2"})  # kernels only read them, because each format rounds out-of-range values differently
NARROW = HALVES | FLOAT8
FLOATS = HALVES | {"float32"}
SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
         **dict.fromkeys(FLOAT8, 1)}  # fmt: skip  # bytes


def in_registers(dtype: str) -> str:
    """Returns the type in which a kernel computes with values of `dtype`."""
    return "float32" if dtype in NARROW else dtype


@dataclass
class Argument:
    """A tensor argument of a kernel. It is dense in memory."""

    name: str  # its name in the kernel's source
    value: str  # its name in forward
    dtype: str
    elements: int
    shift: int = 0  # number of elements by which the pointer is advanced at launch
    read: bool = False
    written: bool = False


@dataclass
class Access:
    """The address of a read or write: element (i0, i1, ...) of the domain is at `offset + sum(i * strides)`."""

    argument: str
    strides: tuple[int, ...]
    offset: int = 0
    index: str = ""  # for a gather: the operation that computes the position along the gathered axis
    index_stride: int = 0


@dataclass
class Op:
    """A scalar operation. `kind` is load, gather, coord, const, cast, round, where, reduce, scan, placed, or the name of a scalar function. `args`
    are the names of operations. The arguments of `placed`, which only a store reads, are a value and the position at which to store it. `dtype` is
    the type in registers; for example, loading a 16-bit type yields float32."""

    name: str
    kind: str
    args: tuple[str, ...]
    dtype: str
    level: Level
    attr: Any = None  # value of a const, axis of a coord, "sum", "max" or "argmax" (of a value and its position), or 16-bit type of a round
    access: Access = field(default_factory=lambda: Access("", ()))  # for a load or gather; otherwise empty


@dataclass
class Store:
    """A store. If `how` is "", the value replaces the element; if it is "sum", "amax" or "amin", the value is combined with the element. In the
    latter case, several values may be combined with one element in any order, the access has an `index`, and `op` is a placed operation."""

    op: str
    level: Level
    access: Access
    how: str = ""


INNER = ("i", "j", "k", "l", "m", "n")  # loop variables for a row's axes in printed kernels


@dataclass
class Kernel:
    """A fused-loop kernel. The `outer` axes enumerate rows, which run in parallel. The `inner` axes are the axes of a row, and reductions run over
    them."""

    name: str
    title: str
    sizes: list[int]
    outer: list[int]
    inner: list[int]
    arguments: dict[str, Argument] = field(default_factory=dict)
    ops: dict[str, Op] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return product(self.sizes[axis] for axis in self.outer)

    @property
    def length(self) -> int:
        return product(self.sizes[axis] for axis in self.inner)

    @property
    def reduces(self) -> bool:
        return any(op.kind in ("reduce", "scan") for op in self.ops.values())

    @property
    def scans(self) -> bool:
        return any(op.kind == "scan" for op in self.ops.values())

    def accesses(self) -> list[Access]:
        return [op.access for op in self.ops.values() if op.access.argument] + [store.access for store in self.stores]


def shift_pointers(kernel: Kernel) -> None:
    """Moves the common offset of a read-only tensor into its pointer, so that kernels for different slices have the same text."""
    for argument in kernel.arguments.values():
        accesses = [access for access in kernel.accesses() if access.argument == argument.name]
        argument.shift = 0 if argument.written else min(access.offset for access in accesses)
        for access in accesses:
            access.offset -= argument.shift


def product(sizes: Iterable[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def collapse(kernel: Kernel) -> Kernel:
    """Merges neighbouring outer axes, and neighbouring inner axes, that every tensor access traverses as if they were one."""
    coords = {op.attr for op in kernel.ops.values() if op.kind == "coord"}
    accesses = kernel.accesses()

    def joins(a: int, b: int) -> bool:
        return not coords & {a, b} and all(access.strides[a] == access.strides[b] * kernel.sizes[b] for access in accesses)

    def merged(axes: list[int]) -> list[list[int]]:
        runs: list[list[int]] = []
        for axis in axes:
            if kernel.sizes[axis] == 1 and axis not in coords:
                continue
            if runs and joins(runs[-1][-1], axis):
                runs[-1].append(axis)
            else:
                runs.append([axis])
        return runs

    outer, inner = merged(kernel.outer), merged(kernel.inner)
    runs = [*outer, *inner]
    for access in accesses:
        access.strides = tuple(access.strides[run[-1]] for run in runs)
    for op in kernel.ops.values():
        if op.kind == "coord":
            op.attr = next(at for at, run in enumerate(runs) if op.attr in run)
    kernel.sizes = [product(kernel.sizes[axis] for axis in run) for run in runs]
    kernel.outer, kernel.inner = list(range(len(outer))), list(range(len(outer), len(runs)))
    if not runs and kernel.reduces:  # even a sum over a single element needs an axis for its loop
        kernel.sizes, kernel.inner = [1], [0]
        for access in accesses:
            access.strides = (0,)
    return kernel
