"""What a family of kernels is: loops that the fused-loop IR cannot express (windows, products, scans over time), with a pointwise tail.

A family recognises an operator of the graph (its *anchor*), says what one kernel of it costs, and has a printer of that kernel for each language
that it speaks; where it has none for the target's, the operator is the library's. What stands around the anchor is not its business: partition.py
absorbs pointwise consumers (the *tail*) and cheap pointwise producers of an input (a *prologue*), epilogue.py prints both as statements over the
family's own index variables, forward.py allocates, launches and shares equal kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from compiler.families.epilogue import Prologue, Tail
from compiler.figures import DeviceFigures
from compiler.graph.ir import Argument, Kernel
from compiler.graph.network import Network, count, size_bytes
from compiler.kernel.builder import Refused
from compiler.kernel.text import Part, text_of
from compiler.options import Options
from verifier.graph import Node

NAME = "NAME"  # stands for the kernel's name in what a family prints; forward.py puts the name in


@dataclass(frozen=True)
class Setting:
    """What a family may know before it says yes."""

    figures: DeviceFigures
    precision: str = "fp32-strict"  # "fp32-strict", "tf32" or "bf16"
    language: str = "cuda"  # that the kernel is printed in: a key of `Family.printers`


@dataclass(frozen=True)
class Match:
    """An anchor that a family takes. `members` are the operators that it covers without tail and prologue, in their order in the graph."""

    family: str
    anchor: str
    members: tuple[str, ...]
    value: str  # what the tail goes on from: the anchor, or the result that is taken from it
    reads: tuple[str, ...]  # values that the kernel reads; views among them are read through `network.layouts`
    groups: tuple[int, ...]  # how many axes of the value each index variable of the kernel runs over: (1, 1, 2) for n, c and a position in an image
    detail: Any = None  # what the family worked out: sizes, strides
    prologue: tuple[str, ...] = ()  # those of `reads` whose pointwise producers it can compute again whenever it loads an element
    prologue_groups: tuple[int, ...] = ()  # as `groups`, of the axes of such an input; () for one variable an axis
    recompute: float = 1.0  # how often each element of such an input is loaded: dear functions are not recomputed where it is more than once
    reserved: tuple[str, ...] = ()  # names of pointers and variables that it prints, which the tail must not use
    any_layout: bool = False  # whether it writes results whose channels lie innermost too


@dataclass
class Cost:
    bytes: int  # that the kernel moves
    flops: int
    floor_ms: float  # at the device's ceiling for this arithmetic
    expected: str = ""  # for people; "" for the comparison of traffic with eager


@dataclass
class Packed:
    """A tensor that is derived from weights once (at the first forward after weights were loaded or moved)."""

    name: str  # of the pointer in the kernel
    values: tuple[str, ...]  # values of the graph: parameters and buffers only
    code: str  # Python with {0}, {1}, ... for the values: "{0}.t().contiguous()"; `device` is the input's; of type float32 unless it says otherwise
    dtype: str = "float32"
    elements: int = 0


@dataclass
class Printed:
    """`parts` hold device functions of this kernel only, the __global__ kernels and the launcher

        extern "C" int NAME(POINTERS..., [void* scratch,] void* stream)

    which returns the launch error (C++: `extern "C" void NAME(POINTERS...)`). Pointers are in the order of `arguments` (of the graph: the tail's
    are among them), then of `packed`. `shared` are texts that several kernels need: each is printed once, in front of all kernels."""

    parts: Sequence[Part]
    arguments: list[Argument]
    packed: list[Packed] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)  # "cuda_bf16.h"
    flags: tuple[str, ...] = ()  # of the compiler, for the whole program
    scratch: int = 0  # bytes of scratch memory, whose contents are undefined
    comment: list[str] = field(default_factory=list)  # launch shape; forward.py adds title and traffic

    @property
    def source(self) -> str:
        return text_of(self.parts)


@dataclass
class Work:
    """One kernel to be printed or estimated."""

    network: Network
    match: Match
    tail: Tail
    prologues: dict[str, Prologue]  # input -> what computes it on load
    setting: Setting
    options: Options = field(default_factory=Options)
    group: str = ""

    early: frozenset[str] = frozenset()  # operators of the prologues

    def kernels(self) -> list[Kernel]:
        """What is printed of the IR in it."""
        return [self.tail.kernel, *(prologue.kernel for prologue in self.prologues.values())]

    @property
    def detail(self) -> Any:
        return self.match.detail

    def knob(self, name: str, default: int) -> int:
        return self.options.knob(name, self.group, default)

    def arguments(self, *own: tuple[str, str]) -> list[Argument]:
        """Pointers of (name, value of the graph) pairs less those that a prologue computes, then of the prologues, then of the tail."""
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
    """`strategies`: names of the catalogue; the first is the gate, without which the anchor is left to the library."""

    @property
    def name(self) -> str: ...

    @property
    def strategies(self) -> tuple[str, ...]: ...

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        """None where the operator is none of this family's; raises `Refused` with the reason where it is, but is declined."""

    def cost(self, work: Work) -> Cost: ...

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        """Numbers that change nothing but the speed: name -> (values worth trying, value now)."""

    @property
    def printers(self) -> Printers:
        """Language -> what prints the kernel in it; it may raise `Refused`."""


def traffic(work: Work) -> int:
    """Bytes of all tensors that the kernel touches, each once: what the anchor reads, what tail and prologues read and write."""
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
                seen[argument.value] = size_bytes(work.network.spec(argument.value))
    return sum(seen.values())


def plain_cost(work: Work, flops: int, gflops: float | None = None) -> Cost:
    """Traffic over the bandwidth or `flops` over a ceiling (fp32 on the usual cores where none is given), whichever takes longer."""
    moved, figures = traffic(work), work.setting.figures
    return Cost(moved, flops, max(figures.memory_ms(moved), flops / (gflops or figures.fp32_gflops) / 1e6))


__all__ = ["NAME", "Cost", "Family", "Match", "Packed", "Printed", "Printers", "Refused", "Setting", "Work", "plain_cost", "traffic"]
