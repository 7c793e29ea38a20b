"""Text of kernels whose printers say which of their integers are sizes, so that kernels that differ in sizes alone are known as one.

A printer marks an integer within the text as it prints it: `free` where the kernel may as well take it as a parameter, `known` where the compiler
must know it, as it must divisors, lengths of arrays and ends of short loops. What is not marked is part of the text. Marks are characters of
Unicode's private area, which no program has. `KernelText` reads them once; whoever has no use for them drops them (`plain`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

BEGIN, NEXT, END = "\ue000", "\ue001", "\ue002"
MARK = re.compile(f"{BEGIN}([^{NEXT}]*){NEXT}([^{NEXT}]*){NEXT}([^{END}]*){END}")
HOLE = BEGIN + END  # of a size, in a template
WINDOW = "\ue003"  # the name of the kernel's window
LARGEST = 2**31 - 1
SIZE = "SIZE"


def free(number: int, name: str, parameter: str = SIZE) -> str:
    """A size that may become a parameter of the kernel, called `name`; or of a template, called `parameter`."""
    return f"{BEGIN}{number}{NEXT}{name}{NEXT}{parameter}{END}" if 0 <= number <= LARGEST else known(number, parameter)


def known(value: int | bool, parameter: str = SIZE) -> str:
    """A size, or a flag, that the compiler must know: it may become a parameter of a template."""
    return f"{'-' * (value < 0)}{BEGIN}{str(abs(value) if value < 0 else value).lower()}{NEXT}{NEXT}{parameter}{END}"


def stride(number: int, of: str = "", parameter: str = SIZE) -> str:
    """What `of` is multiplied by."""
    return free(number, _named(of, "stride"), parameter)


def times(text: str, number: int) -> str:
    return f"{text} * {stride(number, text)}"


def shift(number: int) -> str:
    """What is added to an index."""
    return free(number, "shift")


def end(number: int, of: str = "") -> str:
    """What `of` is compared with."""
    return free(number, _named(of, "end"))


def below(text: str, number: int) -> str:
    return f"{text} < {end(number, text)}"


def beyond(text: str, number: int) -> str:
    return f"{text} >= {end(number, text)}"


def _named(of: str, what: str) -> str:
    """After the variable that `of` ends with, if it does."""
    word = re.search(r"[A-Za-z_]\w*$", of)
    return f"{word[0]}_{what}" if word else what


def plain(text: str) -> str:
    """Without marks."""
    return MARK.sub(r"\1", text) if BEGIN in text else text


def width(text: str) -> int:
    """Characters that are printed."""
    return len(plain(text))


def words(text: str) -> set[str]:
    """Every name in it."""
    return set(re.findall(r"[A-Za-z_]\w*", text))


@dataclass(frozen=True)
class Size:
    """`name` as a parameter of the kernel, "" where the compiler must know it; `parameter`: as one of a template."""

    value: str
    name: str = ""
    parameter: str = SIZE


@dataclass(frozen=True)
class Window:
    """Sizes of a window as a struct that the kernel is compiled for."""

    name: str
    sizes: tuple[tuple[str, int], ...]

    def text(self) -> str:
        listed = [f"{name} = {value}" for name, value in self.sizes]
        rows = [", ".join(listed[at : at + 6]) for at in range(0, len(listed), 6)]
        return "\n".join([f"struct {self.name} {{", *(f"    static constexpr int {row};" for row in rows), "};", ""])


@dataclass(frozen=True)
class KernelText:
    """A kernel: `template` has a hole for each of `sizes`. `part` is what sets it apart from the launcher's other kernels; `note` a comment that
    belongs to it, and not to its launcher."""

    launcher: str
    part: str
    bounds: str
    parameters: str
    template: str
    sizes: tuple[Size, ...]
    note: str = ""
    window: Window | None = None
    arguments: tuple[str, ...] = ()  # of its template

    @classmethod
    def of(
        cls, launcher: str, part: str, bounds: str, parameters: str, lines: Iterable[str], note: str = "", window: Window | None = None
    ) -> KernelText:
        """`lines` of the body, with marks."""
        body = "".join(f"{line}\n" for line in lines)
        sizes = tuple(Size(*mark.groups()) for mark in MARK.finditer(body))
        return cls(launcher, part, bounds, parameters, MARK.sub(HOLE, body), sizes, note, window)

    @property
    def name(self) -> str:
        return f"{self.launcher}_{self.part}"

    def named(self, old: str, new: str) -> KernelText:
        """With another name in place of the launcher's."""
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
    """A statement of a launcher; `asks`: whether it asks for so much shared memory first."""

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
    """The function that a program calls; it returns the launch's error."""

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
    """With another name in place of the launcher's."""
    return [part.replace(old, new) if isinstance(part, str) else part.named(old, new) for part in parts]


def columns(kernels: Sequence[KernelText]) -> dict[tuple[str, ...], list[int]]:
    """Sizes that differ between kernels of one template: their value in each, and where they stand."""
    found: dict[tuple[str, ...], list[int]] = {}
    for at, values in enumerate(zip(*([size.value for size in kernel.sizes] for kernel in kernels), strict=True)):
        if len(set(values)) > 1:
            found.setdefault(values, []).append(at)
    return found


def with_values(kernel: KernelText, values: dict[int, str]) -> KernelText:
    """The kernel with other text in place of some of its sizes."""
    return replace(kernel, sizes=tuple(Size(values[at]) if at in values else size for at, size in enumerate(kernel.sizes)))


def without_gaps(text: str) -> str:
    """No more than one empty line at a time."""
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text
