"""Kernels as data: a domain of axes, scalar operations in SSA form, the tensors they read and write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["row", "full"]  # one value for a row of the domain, or one for each element
HALVES = frozenset({"bfloat16", "float16"})  # types of memory only: a kernel computes with float32 and rounds once, when it stores
FLOATS = HALVES | {"float32"}
SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1}  # bytes


def in_registers(dtype: str) -> str:
    """The type in which a kernel computes with values of `dtype`."""
    return "float32" if dtype in HALVES else dtype


@dataclass
class Argument:
    """A tensor of a kernel, dense in memory."""

    name: str  # in the kernel's source
    value: str  # the tensor in forward
    dtype: str
    elements: int
    shift: int = 0  # elements by which the pointer is moved when the kernel is launched
    read: bool = False
    written: bool = False


@dataclass
class Access:
    """Where an operation reads or writes: element (i0, i1, ...) of the domain is at `offset + sum(i * strides)`."""

    argument: str
    strides: tuple[int, ...]
    offset: int = 0
    index: str = ""  # of a gather: the operation that gives the position along the gathered axis
    index_stride: int = 0


@dataclass
class Op:
    """`kind`: load, gather, coord, const, cast, round, where, reduce, scan, or the name of a scalar function. `args` are names of operations.
    `dtype` is that of a register: a load of a 16 bit type gives float32."""

    name: str
    kind: str
    args: tuple[str, ...]
    dtype: str
    level: Level
    attr: Any = None  # the value of a const, the axis of a coord, "sum", "max", "argmax" (of a value and its place), the 16 bit type of a round
    access: Access = field(default_factory=lambda: Access("", ()))  # of a load or a gather; any other has an empty one, of no argument


@dataclass
class Store:
    op: str
    level: Level
    access: Access


INNER = ("i", "j", "k", "l", "m", "n")  # variables of a row's axes in printed kernels


@dataclass
class Kernel:
    """`outer` axes enumerate rows and run in parallel; `inner` axes lie within a row and are what reductions run over."""

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
    """Moves a common offset of a tensor that is only read into its pointer, so that kernels over other slices print alike."""
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
    """Merge neighbouring axes (within outer, within inner) that every tensor walks through as if they were one."""
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
    if not runs and kernel.reduces:  # a sum over one element: its loop needs an axis
        kernel.sizes, kernel.inner = [1], [0]
        for access in accesses:
            access.strides = (0,)
    return kernel
