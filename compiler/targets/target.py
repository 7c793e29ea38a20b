"""The interface of a target: a language in which kernels are printed, together with the code that builds and calls them in a printed program.

To add a target, create a folder in this package with a `target.py`, and add an entry in lookup.py. If its kernels look like those of another
language, the target can use that language's printers (`dialect`), and the families need no change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from compiler.families import Family, Printed, Work, by_name
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel
from compiler.kernel.schedule import Schedule
from compiler.options import Options

Offered = dict[str, tuple[tuple[int, ...], int]]  # knob -> (values worth trying, current value)


class KernelShape(Protocol):
    """The language-independent part of a kernel's execution plan."""

    @property
    def style(self) -> str:
        """How rows and elements are distributed: "elements", "rows", "split", ..."""

    @property
    def cache(self) -> bool:
        """True if expensive values of a row are kept between passes."""

    @property
    def stream(self) -> bool:
        """True if stores bypass the cache."""

    def describe(self, cuda: bool) -> str:
        """Describes the launch shape or loop structure in words. `cuda` is true on a GPU."""


S = TypeVar("S", bound=KernelShape)


@dataclass(frozen=True)
class Step:
    """A knob that moves can change, with the values adjacent to the current one. `told` is a description of the change with the fields {value} and
    {now}."""

    knob: str
    now: int
    others: Collection[int]
    told: str
    why: str = "only a number changes"


@dataclass(frozen=True)
class Names:
    """The names that a program uses: the names of its helpers, keyed by their default names, and all names bound by the task."""

    helpers: Mapping[str, str]
    bound: Collection[str]


class Target(ABC, Generic[S]):
    """A language. `S` is the type of its kernel shapes."""

    language: str  # the key in lookup.py
    title: str  # human-readable
    on_gpu: bool  # whether the memory is on a GPU, where launches can be recorded and assigned to streams
    reserved: frozenset[str]  # names reserved for a printed kernel's own use
    in_module: bool = False  # whether kernels are module functions that take tensors; otherwise they are library functions that take addresses
    builder: str = ""  # text of the function that builds the library
    check: str = ""  # text of the function that forward uses to check the result of a launch, or "" if launches return nothing

    # -- kernels ------------------------------------------------------------------------------------------------------------

    @property
    def dialect(self) -> str:
        """The language of the family printers that the target uses, as a key of `Family.printers`."""
        return self.language

    def supports(self, family: Family) -> bool:
        """True if the family has a printer for this target."""
        return self.dialect in family.printers

    def print_family(self, work: Work) -> Printed:
        """Prints the kernel of a family. Raises `Refused` if that is not possible."""
        return by_name(work.match.family).printers[self.dialect](work)

    def check_covered(self, kernel: Kernel) -> None:
        """Raises `Refused` for a kernel that cannot be expressed in this language."""
        return None

    @abstractmethod
    def shape_of(self, kernel: Kernel, figures: DeviceFigures, options: Options, group: str) -> S:
        """Chooses how the kernel runs."""

    @abstractmethod
    def passes(self, kernel: Kernel, shape: S) -> Schedule:
        """Returns the passes over a row as the kernel is printed. A pass must not reread values that have already been overwritten."""

    @abstractmethod
    def body(self, kernel: Kernel, shape: S) -> str:
        """Returns the kernel's text and its launcher."""

    def scratch_floats(self, kernel: Kernel, shape: S) -> int:
        """Returns the length of the scratch tensor that the kernel's launcher takes, or 0 if it takes none."""
        return 0

    def read_again(self, kernel: Kernel, shape: S) -> dict[str, int]:
        """Returns, for each tensor that no cache holds, how many passes after the first one read it from memory."""
        return {}

    @abstractmethod
    def print(self, kernels: list[tuple[Kernel, S, list[str]]], printed: Mapping[str, tuple[Printed, list[Kernel], list[str]]]) -> str:
        """Returns the source of all kernels, preceded by the functions that they use, each with its comment lines above it. `printed` holds the
        family kernels by name, each with the IR kernels printed inside it."""

    # -- the program --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def imports(self, task: list[str], source: str) -> list[str]:
        """Returns the import statements of a program with kernels: the task's and its own."""

    @abstractmethod
    def module(self, source: str, pointers: Mapping[str, int], flags: tuple[str, ...], names: Names) -> str:
        """Returns the module-level statements that create the kernels of `source`. `pointers` is the number of pointers per launcher."""

    def begin(self, tensor: str | None) -> list[str]:
        """Returns the statements of forward that precede its first launch. `tensor` is one of its inputs, if it has any."""
        return []

    @abstractmethod
    def pointer(self, variable: str, shift: int = 0) -> str:
        """Returns a tensor in the form that launchers take. `shift` is the offset from its first element in bytes."""

    @abstractmethod
    def call(self, name: str, pointers: list[str], names: Names) -> str:
        """Returns the statement that launches a kernel."""

    # -- numbers ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def knobs_of(self, kernel: Kernel, shape: S, figures: DeviceFigures) -> Offered:
        """Returns the parameters that affect only the speed."""

    @abstractmethod
    def steps(self, kernel: Kernel, shape: S) -> list[Step]:
        """Returns the knobs that moves change one step at a time."""

    def could_stream(self, kernel: Kernel, shape: S) -> bool:
        """True if the stores go through the cache but could bypass it."""
        return False


def beside(values: tuple[int, ...], now: int) -> set[int]:
    """Returns the values of a knob one step below and one step above the current value."""
    at = values.index(now) if now in values else 0
    return {*values[max(at - 1, 0) : at + 2]} - {now}


def neighbours(offered: Offered) -> list[Step]:
    """Returns the moves that change each knob by one step up or down."""
    return [Step(name, now, beside(values, now), name + " {value} instead of {now}") for name, (values, now) in offered.items()]
