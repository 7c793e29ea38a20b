"""The interface of a kernel family, which implements loops that the fused-loop IR cannot express (windows, products, scans over time) with a
pointwise tail.

A family recognises an operator of the graph (its *anchor*), estimates the cost of a kernel for it, and has one kernel printer per supported language.
If the family has no printer for the target language, the operator is left to the library. Other modules handle the operators around the anchor.
partition.py absorbs pointwise consumers (the *tail*) and cheap pointwise producers of an input (a *prologue*). epilogue.py prints both as statements
over the family's own index variables. forward.py allocates memory, launches the kernels and shares identical ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from compiler.families.epilogue import Prologue, Tail
from compiler.figures import DeviceFigures
from compiler.graph.ir import Argument, Kernel
from compiler.graph.network import Network, count, size_bytes
from compiler.graph.touched import touched_bytes
from compiler.kernel.builder import Refused
from compiler.kernel.text import Part, text_of
from compiler.options import Options
from verifier.graph import Node

NAME = "NAME"  # placeholder for the kernel's name in the printed text, which forward.py replaces with the real name


@dataclass(frozen=True)
class Setting:
    """The information that a family has when it decides whether to take an operator."""

    figures: DeviceFigures
    precision: str = "fp32-strict"  # "fp32-strict", "tf32" or "bf16"
    language: str = "cuda"  # the kernel's language: a key of `Family.printers`
    deterministic: bool = False  # whether sums must be the same in every run

    @property
    def at_places(self) -> bool:
        """True if kernels may add to elements at computed indices, in any order."""
        return self.language == "cuda" and not self.deterministic


@dataclass(frozen=True)
class Match:
    """An anchor that a family takes. `members` are the operators that the match covers, in graph order and without the tail and prologues."""

    family: str
    anchor: str
    members: tuple[str, ...]
    value: str  # input of the tail: the anchor, or whichever of its results is used
    reads: tuple[str, ...]  # values that the kernel reads; views are read through `network.layouts`
    groups: tuple[int, ...]  # number of the value's axes per index variable of the kernel: (1, 1, 2) for n, c and a position in an image
    detail: Any = None  # sizes, strides and anything else that the family derived
    prologue: tuple[str, ...] = ()  # the `reads` that can be recomputed from their pointwise producers whenever an element is loaded
    prologue_groups: tuple[int, ...] = ()  # like `groups`, but for the axes of such an input; () means one variable per axis
    recompute: float = 1.0  # loads per element of such an input; above one, expensive functions are not recomputed
    reserved: tuple[str, ...] = ()  # names of pointers and variables that the family prints, which the tail must not use
    any_layout: bool = False  # whether the kernel can also write results in channels-last layout


@dataclass
class Cost:
    bytes: int  # memory traffic of the kernel
    flops: int
    floor_ms: float  # lower bound on the time, at the device's peak rate for this arithmetic
    expected: str = ""  # human-readable; "" means that the memory traffic is compared with eager PyTorch's


@dataclass
class Packed:
    """A tensor that is computed from weights once, in the first forward call after weights were loaded or moved."""

    name: str  # the pointer's name in the kernel
    values: tuple[str, ...]  # graph values: parameters and buffers only
    code: str  # Python code in which {0}, {1}, ... are the values: "{0}.t().contiguous()"; `device` is the input's device
    dtype: str = "float32"
    elements: int = 0


@dataclass
class Printed:
    """The printed text of one kernel. `parts` hold device functions that only this kernel uses, the __global__ kernels and the launcher

        extern "C" int NAME(POINTERS..., [void* scratch,] void* stream)

    which returns the launch error (C++: `extern "C" void NAME(POINTERS...)`). The pointers are those of `arguments` (graph values, including those of
    the tail) in order, followed by those of `packed`. `shared` holds texts that several kernels may need; each is printed only once, before all
    kernels."""

    parts: Sequence[Part]
    arguments: list[Argument]
    packed: list[Packed] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)  # "cuda_bf16.h"
    flags: tuple[str, ...] = ()  # compiler flags, which apply to the whole program
    scratch: int = 0  # bytes of scratch memory with undefined contents
    comment: list[str] = field(default_factory=list)  # the launch shape; forward.py adds the title and the traffic
    kernels: list[Kernel] = field(default_factory=list)  # IR kernels printed inside this one, besides the tail and the prologues

    @property
    def source(self) -> str:
        return text_of(self.parts)


@dataclass
class Work:
    """A kernel to print or to estimate."""

    network: Network
    match: Match
    tail: Tail
    prologues: dict[str, Prologue]  # input -> the prologue that computes it on load
    setting: Setting
    options: Options = field(default_factory=Options)
    group: str = ""

    early: frozenset[str] = frozenset()  # operators of the prologues

    def kernels(self) -> list[Kernel]:
        """Returns the IR kernels that are printed inside this kernel: the tail and the prologues."""
        return [self.tail.kernel, *(prologue.kernel for prologue in self.prologues.values())]

    @property
    def detail(self) -> Any:
        return self.match.detail

    def knob(self, name: str, default: int) -> int:
        return self.options.knob(name, self.group, default)

    def arguments(self, *own: tuple[str, str]) -> list[Argument]:
        """Returns the pointers for the (name, graph value) pairs that no prologue computes, followed by the pointers of the prologues and of the
        tail."""
        found = []
        for name, value in own:
            if value in self.prologues:
                continue
            base = self.network.base(value)
            spec = self.network.spec(base)
            found.append(Argument(name, base, spec.dtype, count(spec), read=True))
        for prologue in self.prologues.values():
            found += prologue.kernel.arguments.values()
        return found + self.tail.arguments


Printers = Mapping[str, Callable[[Work], Printed]]


class Family(Protocol):
    """The interface of a kernel family. `strategies` are catalogue names. The first one is the gate; if it is disabled, the anchor is left to the
    library."""

    @property
    def name(self) -> str: ...

    @property
    def strategies(self) -> tuple[str, ...]: ...

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        """Returns None if the operator does not belong to this family. If it does belong but is declined, raises `Refused` with the reason."""

    def cost(self, work: Work) -> Cost: ...

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        """Returns the parameters that affect only the speed: name -> (values worth trying, current value)."""

    @property
    def printers(self) -> Printers:
        """The printer for each language. Printers can raise `Refused`."""


def traffic(work: Work) -> int:
    """Returns the size in bytes of all tensors that the kernel touches, each counted once: the anchor's inputs, and everything that the tail and the
    prologues read or write."""
    seen: dict[str, int] = {}
    for value in work.match.reads:
        if value not in work.prologues:
            layout = work.network.layouts[value]
            touched = 1
            for size, stride in zip(layout.shape, layout.strides, strict=True):
                touched *= size if stride else 1
            spec = work.network.spec(layout.base)
            seen[layout.base] = min(size_bytes(spec), touched * size_bytes(spec) // max(count(spec), 1))
    for kernel in work.kernels():
        for argument in kernel.arguments.values():
            if argument.name != work.tail.result or argument.written:
                seen[argument.value] = max(seen.get(argument.value, 0), touched_bytes(work.network, kernel, argument))
    return sum(seen.values())


def plain_cost(work: Work, flops: int, gflops: float | None = None) -> Cost:
    """Estimates the time as the larger of memory time (traffic / bandwidth) and compute time (`flops` / `gflops`, by default the fp32 rate of the
    ordinary cores)."""
    moved, figures = traffic(work), work.setting.figures
    return Cost(moved, flops, max(figures.memory_ms(moved), flops / (gflops or figures.fp32_gflops) / 1e6))


__all__ = ["NAME", "Cost", "Family", "Match", "Packed", "Printed", "Printers", "Refused", "Setting", "Work", "plain_cost", "traffic"]
