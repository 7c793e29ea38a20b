"""Kernel text with marked sizes, which makes it possible to merge kernels that differ only in their sizes.

A printer marks integers in the text as it prints them: with `free` if the kernel may take the integer as a parameter, with `known` if the compiler
must know it (divisors, array lengths, bounds of short loops). Unmarked integers are ordinary text. The marks are characters from Unicode's private
use area, which programs never contain. `KernelText` reads the marks once; `plain` removes them where they are not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

BEGIN, NEXT, END = "\ue000", "\ue001", "\ue002"
MARK = re.compile(f"{BEGIN}([^{NEXT}]*){NEXT}([^{NEXT}]*){NEXT}([^{END}]*){END}")
HOLE = BEGIN + END  # the place of a size in a template
WINDOW = "\ue003"  # name of the kernel's window
LARGEST = 2**31 - 1
SIZE = "SIZE"


def free(number: int, name: str, parameter: str = SIZE) -> str:
    """Marks a size that may become a kernel parameter called `name`, or a template parameter called `parameter`."""
    return f"{BEGIN}{number}{NEXT}{name}{NEXT}{parameter}{END}" if 0 <= number <= LARGEST else known(number, parameter)


def known(value: int | bool, parameter: str = SIZE) -> str:
    """Marks a size or a flag that the compiler must know and that may become a template parameter."""
    return f"{'-' * (value < 0)}{BEGIN}{str(abs(value) if value < 0 else value).lower()}{NEXT}{NEXT}{parameter}{END}"


def stride(number: int, of: str = "", parameter: str = SIZE) -> str:
    """Marks a factor by which `of` is multiplied."""
    return free(number, _named(of, "stride"), parameter)


def times(text: str, number: int) -> str:
    return f"{text} * {stride(number, text)}"


def shift(number: int) -> str:
    """Marks a number that is added to an index."""
    return free(number, "shift")


def end(number: int, of: str = "") -> str:
    """Marks a number with which `of` is compared."""
    return free(number, _named(of, "end"))


def below(text: str, number: int) -> str:
    return f"{text} < {end(number, text)}"


def beyond(text: str, number: int) -> str:
    return f"{text} >= {end(number, text)}"


def _named(of: str, what: str) -> str:
    """Derives a name from the variable at the end of `of`, if there is one."""
    word = re.search(r"[A-Za-z_]\w*$", of)
    return f"{word[0]}_{what}" if word else what


def plain(text: str) -> str:
    """Returns the text without marks."""
    return MARK.sub(r"\1", text) if BEGIN in text else text


def width(text: str) -> int:
    """Returns the number of printed characters."""
    return len(plain(text))


def words(text: str) -> set[str]:
    """Returns every identifier in the text."""
    return set(re.findall(r"[A-Za-z_]\w*", text))


@dataclass(frozen=True)
class Size:
    """A size. `name` is the size's name as a kernel parameter, or "" if the compiler must know the size. `parameter` is its name as a template
    parameter."""

    value: str
    name: str = ""
    parameter: str = SIZE


@dataclass(frozen=True)
class Window:
    """Window sizes in a struct for which the kernel is compiled."""

    name: str
    sizes: tuple[tuple[str, int], ...]

    def text(self) -> str:
        listed = [f"{name} = {value}" for name, value in self.sizes]
        rows = [", ".join(listed[at : at + 6]) for at in range(0, len(listed), 6)]
        return "\n".join([f"struct {self.name} {{", *(f"    static constexpr int {row};" for row in rows), "};", ""])


@dataclass(frozen=True)
class KernelText:
    """A kernel. `template` has one hole for each of the `sizes`. `part` distinguishes this kernel from the launcher's other kernels. `note` is a
    comment that belongs to the kernel, not to the launcher."""

    launcher: str
    part: str
    bounds: str
    parameters: str
    template: str
    sizes: tuple[Size, ...]
    note: str = ""
    window: Window | None = None
    arguments: tuple[str, ...] = ()  # template arguments

    @classmethod
    def of(
        cls, launcher: str, part: str, bounds: str, parameters: str, lines: Iterable[str], note: str = "", window: Window | None = None
    ) -> KernelText:
        """Builds a kernel from the marked `lines` of its body."""
        body = "".join(f"{line}\n" for line in lines)
        sizes = tuple(Size(*mark.groups()) for mark in MARK.finditer(body))
        return cls(launcher, part, bounds, parameters, MARK.sub(HOLE, body), sizes, note, window)

    @property
    def name(self) -> str:
        return f"{self.launcher}_{self.part}"

    def named(self, old: str, new: str) -> KernelText:
        """Returns the kernel with the launcher's name replaced."""
        parameters, template = self.parameters.replace(old, new), self.template.replace(old, new)
        window = replace(self.window, name=self.window.name.replace(old, new)) if self.window else None
        return replace(self, launcher=self.launcher.replace(old, new), parameters=parameters, template=template, window=window)

    def body(self) -> str:
        pieces = self.template.split(HOLE)
        filled = "".join(piece + size.value for piece, size in zip(pieces, self.sizes, strict=False)) + pieces[-1]
        return filled.replace(WINDOW, self.window.name) if self.window else filled

    def text(self) -> str:
        template = f"template <{', '.join(self.arguments)}>\n" if self.arguments else ""
        return f"{self.note}{template}__global__ void {self.bounds}{self.name}({self.parameters}) {{\n{self.body()}}}\n"


@dataclass(frozen=True)
class Launch:
    """A launch statement. If `asks` is set, the launcher must first opt in to this much shared memory."""

    kernel: str
    grid: str
    threads: int
    arguments: str
    shared: int = 0
    asks: bool = False

    def lines(self) -> list[str]:
        asked = [f"cudaFuncSetAttribute({self.kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, {self.shared});"] if self.asks else []
        return [*asked, f"{self.kernel}<<<{self.grid}, {self.threads}, {self.shared}, (cudaStream_t)stream>>>({self.arguments});"]


@dataclass(frozen=True)
class Launcher:
    """The function that a program calls. It returns the error code of the launch."""

    name: str
    parameters: str
    statements: tuple[str | Launch, ...] = field(default=())

    def named(self, old: str, new: str) -> Launcher:
        def renamed(statement: str | Launch) -> str | Launch:
            return statement.replace(old, new) if isinstance(statement, str) else replace(statement, kernel=statement.kernel.replace(old, new))

        return Launcher(self.name.replace(old, new), self.parameters.replace(old, new), tuple(map(renamed, self.statements)))

    def text(self) -> str:
        lines = [line for one in self.statements for line in ([one] if isinstance(one, str) else one.lines())]
        inside = "".join(f"    {line}\n" for line in [*lines, "return (int)cudaGetLastError();"])
        return f'extern "C" int {self.name}({self.parameters}) {{\n{inside}}}\n'


Part = str | KernelText | Launcher


def text_of(parts: Iterable[Part]) -> str:
    return "".join(plain(part) if isinstance(part, str) else part.text() for part in parts)


def named(parts: Iterable[Part], old: str, new: str) -> list[Part]:
    """Returns the parts with the launcher's name replaced."""
    return [part.replace(old, new) if isinstance(part, str) else part.named(old, new) for part in parts]


def columns(kernels: Sequence[KernelText]) -> dict[tuple[str, ...], list[int]]:
    """Returns the sizes that differ between kernels with the same template: their values in each kernel and their positions."""
    found: dict[tuple[str, ...], list[int]] = {}
    for at, values in enumerate(zip(*([size.value for size in kernel.sizes] for kernel in kernels), strict=True)):
        if len(set(values)) > 1:
            found.setdefault(values, []).append(at)
    return found


def with_values(kernel: KernelText, values: dict[int, str]) -> KernelText:
    """Returns the kernel with some of its sizes replaced by other text."""
    return replace(kernel, sizes=tuple(Size(values[at]) if at in values else size for at, size in enumerate(kernel.sizes)))


def without_gaps(text: str) -> str:
    """Collapses runs of empty lines into one."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text
