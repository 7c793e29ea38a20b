"""What a target is: a language that kernels are printed in, and how a printed program builds and calls them.

A new one is a folder here with a `target.py` and an entry in lookup.py. Where its kernels read like those of another language it takes that one's
printers (`dialect`), and families need no change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from compiler.families import Family, Printed, Work, by_name
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel
from compiler.options import Options

Offered = dict[str, tuple[tuple[int, ...], int]]  # number of a kernel: values worth trying, value now


class KernelShape(Protocol):
    """How a kernel runs, as far as it is the same for all languages."""

    @property
    def style(self) -> str:
        """How rows and elements are shared out: "elements", "rows", "split", ..."""

    @property
    def cache(self) -> bool:
        """Whether dear values of a row are kept between passes."""

    @property
    def stream(self) -> bool:
        """Whether stores go past the cache."""

    def describe(self, cuda: bool) -> str:
        """The launch shape or loop structure in words; `cuda`: on a GPU."""


S = TypeVar("S", bound=KernelShape)


@dataclass(frozen=True)
class Step:
    """A number of a kernel that moves change, and the values next to the one it has; `told`: the change in words, over {value} and {now}."""

    knob: str
    now: int
    others: Collection[int]
    told: str
    why: str = "only a number changes"


@dataclass(frozen=True)
class Names:
    """Names that a program uses: of its helpers by their usual ones, and of all that the task binds."""

    helpers: Mapping[str, str]
    bound: Collection[str]


class Target(ABC, Generic[S]):
    """A language. `S`: the shapes of its kernels."""

    language: str  # the key in lookup.py
    title: str  # for people
    on_gpu: bool  # whether memory is on a GPU, where launches can be recorded and put on streams
    reserved: frozenset[str]  # names that a printed kernel has for itself
    in_module: bool = False  # whether kernels are functions of the program's module and take tensors; else a library's, which take addresses
    builder: str = ""  # text of the function that builds such a library
    check: str = ""  # text of the function of forward that takes what a launch returns; "" where it returns nothing

    # -- kernels ------------------------------------------------------------------------------------------------------------

    @property
    def dialect(self) -> str:
        """The language of families that it prints: a key of `Family.printers`."""
        return self.language

    def supports(self, family: Family) -> bool:
        """Whether the family prints for it."""
        return self.dialect in family.printers

    def print_family(self, work: Work) -> Printed:
        """The kernel of a family; raises `Refused`."""
        return by_name(work.match.family).printers[self.dialect](work)

    def check_covered(self, kernel: Kernel) -> None:
        """Raises `Refused` for a kernel that has no form in this language."""
        return None

    @abstractmethod
    def shape_of(self, kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> S:
        """How the kernel runs."""

    @abstractmethod
    def body(self, kernel: Kernel, shape: S) -> str:
        """The kernel's text, with its launcher."""

    def scratch_floats(self, kernel: Kernel, shape: S) -> int:
        """Length of the scratch tensor that its launcher takes; 0 where it takes none."""
        return 0

    def read_again(self, kernel: Kernel, shape: S) -> dict[str, int]:
        """For each tensor that no cache holds, by how many passes more than one it is read from memory."""
        return {}

    @abstractmethod
    def print(self, kernels: list[tuple[Kernel, S, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> str:
        """The source of all kernels, each under its comment (lines), behind the functions that they use. `printed`: kernels of families by name, each
        with what is printed of the IR in it."""

    # -- the program --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def imports(self, task: list[str], source: str) -> list[str]:
        """The import statements of a program with kernels: the task's, and its own."""

    @abstractmethod
    def module(self, source: str, pointers: Mapping[str, int], flags: tuple[str, ...], names: Names) -> str:
        """The statements of the program's module that make the kernels of `source`. `pointers`: how many each launcher takes."""

    def begin(self, tensor: str | None) -> list[str]:
        """Statements of forward before its first launch; `tensor`: one of its inputs, if it has one."""
        return []

    @abstractmethod
    def pointer(self, variable: str, shift: int = 0) -> str:
        """A tensor as launchers take it; `shift`: bytes from its first element."""

    @abstractmethod
    def call(self, name: str, pointers: list[str], names: Names) -> str:
        """The statement that launches a kernel."""

    # -- numbers ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def knobs_of(self, kernel: Kernel, shape: S, figures: DeviceFigures) -> Offered:
        """Numbers that change nothing but the speed."""

    @abstractmethod
    def steps(self, kernel: Kernel, shape: S) -> list[Step]:
        """Those of them that moves change, one value at a time."""

    def could_stream(self, kernel: Kernel, shape: S) -> bool:
        """Whether stores that go through the cache could go past it."""
        return False


def beside(values: tuple[int, ...], now: int) -> set[int]:
    """The values of a number one step below and above."""
    at = values.index(now) if now in values else 0
    return {*values[max(at - 1, 0) : at + 2]} - {now}


def neighbours(offered: Offered) -> list[Step]:
    """Each number one step up and down."""
    return [Step(name, now, beside(values, now), name + " {value} instead of {now}") for name, (values, now) in offered.items()]
