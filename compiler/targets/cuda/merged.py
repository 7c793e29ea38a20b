"""Kernels that differ in a few sizes as one kernel that takes them: a network of two hundred layers has a dozen of kernels to read and to compile.

Only factors and terms of indices, bounds of comparisons and the steps of a product become parameters: a division by a number that the compiler does
not know, or a short loop that it cannot unroll, would cost time. Whatever else differs keeps its own kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.kernel.naming import unused

KERNEL = re.compile(r"^__global__ void (?P<bounds>(?:__\w+__\([^)]*\) )*)(?P<name>\w+)\((?P<parameters>[^)]*)\) \{\n(?P<body>.*?)^\}\n", re.M | re.S)
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")  # an int: neither part of a name nor of a float, and without a suffix
STEM = re.compile(r"(?:_\d+)?_(?=[a-z]+\d*$)")  # between what kernels of a launcher have in common and what sets them apart
TEMPLATE = re.compile(r"\w+<[^<>;]*>(?=[({ ])")
DECLARED = re.compile(r"^\s*(?:alignas\(\d+\) |__shared__ |extern |static |const |unsigned )*\w+ \w+(?:\[[^\]]*\])*\[[^\]]*$")
PARTS = re.compile(r"^\s*for \(int part = 0; part < \d+;")  # over what several blocks have found of a sum
FACTOR = re.compile(r"[\w)\]] ?\*(?: \(int\))?$")  # a product's, and no pointer's type
TERM = re.compile(r"[\w)\]] \+$")
COMPARED = re.compile(r"[\w)\]] [<>]=?$")
OWN_COMMENT = re.compile(r"^\};\n((?://[^\n]*\n)+)\Z", re.M)  # of a kernel, behind a struct; else it is the launcher's
LARGEST = 2**31 - 1


@dataclass
class Found:
    """A kernel in the text. `numbers`: where its body has those that may differ."""

    name: str
    bounds: str
    parameters: str
    body: str
    span: tuple[int, int]
    numbers: list[tuple[int, int]]

    def value(self, index: int) -> str:
        start, end = self.numbers[index]
        return self.body[start:end]


@dataclass
class Mergeable(Found):
    """`free`: those of its integers that may become parameters."""

    free: list[bool]

    def fixed(self) -> tuple[str, ...]:
        """What must be the same in kernels that are merged; also what they do, by which their time is told (`cost.times`)."""
        parts, at = [STEM.sub("", self.name), self.bounds, self.parameters], 0
        for (start, end), free in zip(self.numbers, self.free, strict=True):
            if free:
                parts.append(self.body[at:start])
                at = end
        return (*parts, self.body[at:])


def merged(source: str) -> str:
    """The translation unit with one kernel for those that are alike. The first of them stands where it stood; the others' launchers call it."""
    alike: dict[tuple[str, ...], list[Mergeable]] = {}
    for match in KERNEL.finditer(source):
        if not source[: match.start()].endswith(">\n"):  # a template
            found = _found(match)
            alike.setdefault(found.fixed(), []).append(found)
    edits: list[tuple[int, int, str]] = []
    for kernels in alike.values():
        if len(kernels) > 1:
            edits += _as_one(source, kernels) or []
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return re.sub(r"\n{3,}", "\n\n", source) if edits else source


def _found(match: re.Match[str]) -> Mergeable:
    body = match["body"]
    numbers = [number.span() for number in NUMBER.finditer(body)]
    return Mergeable(match["name"], match["bounds"], match["parameters"], body, match.span(), numbers, [_free(body, *span) for span in numbers])


def _free(body: str, start: int, end: int) -> bool:
    line_start, line_end = body.rfind("\n", 0, start) + 1, body.find("\n", end)
    line = body[line_start:line_end]
    before, after = line[: start - line_start].rstrip(), line[end - line_start :].lstrip()
    if line.lstrip().startswith(("#", "//")) or "asm" in line or int(body[start:end]) > LARGEST or not before:
        return False
    if line.lstrip().startswith("for ") and (not PARTS.match(line) or body[:line_start].endswith("#pragma unroll\n")):
        return False
    if DECLARED.match(before) or any(span.start() < start - line_start < span.end() for span in TEMPLATE.finditer(line)):
        return False
    stops = after[:1] in (")", "?", "&", "|", ";", ":")
    return (
        bool(FACTOR.search(before))
        or bool(TERM.search(before))
        or (before.endswith("(") and after.startswith("+ "))
        or (before.endswith("=") and after.startswith("- "))
        or (bool(COMPARED.search(before)) and stops)
        or (before.endswith(":") and "?" in before and stops)
        or before.endswith("run(memory,")  # the steps of a product
    )


def _as_one(source: str, kernels: Sequence[Mergeable]) -> list[tuple[int, int, str]] | None:
    """Edits that leave the first kernel, with what differs as parameters; null where a launcher names a kernel in a way not known here."""
    first = kernels[0]
    columns: dict[tuple[str, ...], list[int]] = {}  # values in each kernel -> where they stand
    for index, free in enumerate(first.free):
        values = tuple(kernel.value(index) for kernel in kernels)
        if free and len(set(values)) > 1:
            columns.setdefault(values, []).append(index)
    taken = set(re.findall(r"[A-Za-z_]\w*", first.parameters + first.body))
    names = []
    for places in columns.values():
        names.append(unused(_name(first, places[0]), taken))
        taken.add(names[-1])
    body = first.body
    named = {index: name for places, name in zip(columns.values(), names, strict=True) for index in places}
    for index in sorted(named, reverse=True):
        start, end = first.numbers[index]
        body = body[:start] + named[index] + body[end:]
    parameters = ", ".join([first.parameters, *(f"const int {name}" for name in names)])
    edits = [(*first.span, f"__global__ void {first.bounds}{first.name}({parameters}) {{\n{body}}}\n")]
    for number, kernel in enumerate(kernels):
        if number:
            start, end = kernel.span
            own = OWN_COMMENT.search(source[:start])
            edits.append((own.start(1) if own else start, end, ""))
        sizes = [values[number] for values in columns]
        for use in re.finditer(rf"\b{kernel.name}\b", source):
            if kernel.span[0] <= use.start() < kernel.span[1]:
                continue
            launch = re.match(rf"{kernel.name}(<<<.*?>>>\()([^;]*)\);", source[use.start() :])
            if launch:
                arguments = ", ".join([launch[2], *sizes])
                edits.append((use.start(), use.start() + launch.end(), f"{first.name}{launch[1]}{arguments});"))
            elif source[: use.start()].endswith("cudaFuncSetAttribute("):
                edits.append((*use.span(), first.name))
            else:
                return None
    return edits


def _name(kernel: Found, index: int) -> str:
    """By what the number does in the kernel."""
    start, _ = kernel.numbers[index]
    line = kernel.body[kernel.body.rfind("\n", 0, start) + 1 : start].rstrip()
    if FACTOR.search(line):
        factor = re.search(r"([A-Za-z_]\w*) ?\*$", line)
        return f"{factor[1]}_stride" if factor else "stride"
    if line.endswith("run(memory,"):
        return "steps"
    if line.endswith(("+", "(")):
        return "shift"
    compared = re.search(r"([A-Za-z_]\w*) [<>]=?$", line)
    return f"{compared[1]}_end" if compared else "count" if line.endswith("=") else "end"
