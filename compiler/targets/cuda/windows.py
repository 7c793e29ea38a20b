"""Convolutions of 16 bits that differ by their window alone as one template: a network of two hundred layers has a dozen of kernels to read.

What the compiler must know stays known to it: the window's sizes are the template's `Window`, other sizes its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.kernel.naming import unused
from compiler.targets.cuda.merged import KERNEL, NUMBER, STEM, Found

WINDOW = re.compile(r"\b\w+_window\b")
STRUCT = re.compile(r"^struct (\w+_window) \{\n(.*?)^\};", re.M | re.S)
CONSTANT = re.compile(r"(\w+) = (-?\d+)")
SIZE = re.compile(rf"{NUMBER.pattern}|\b(?:true|false)\b")
NAMES = ((re.compile(r"blockIdx\.z \*$"), "EACH"), (re.compile(r"(?:\(stages,|<)$"), "STEPS"))  # of steps of the depth: of a part of it, in all


@dataclass
class Windowed(Found):
    """`window`: the name of its window's sizes."""

    window: str

    def alike(self) -> tuple[str, ...]:
        """What must be the same in kernels that become one."""
        parts, at = [STEM.sub("", self.name), self.bounds, self.parameters], 0
        for start, end in self.numbers:
            parts.append(WINDOW.sub("", self.body[at:start]))
            at = end
        return (*parts, WINDOW.sub("", self.body[at:]))


def windowed(source: str) -> str:
    """The translation unit with one template for such kernels. The first of them stands where it stood; the others' launchers call it."""
    constants = {match[1]: dict(CONSTANT.findall(match[2])) for match in STRUCT.finditer(source)}
    groups: dict[tuple[str, ...], list[Windowed]] = {}
    for match in KERNEL.finditer(source):
        windows = set(WINDOW.findall(match["body"])) & set(constants)
        if len(windows) == 1 and not source[: match.start()].endswith(">\n"):  # no template yet
            sizes = [size.span() for size in SIZE.finditer(match["body"])]
            found = Windowed(match["name"], match["bounds"], match["parameters"], match["body"], match.span(), sizes, windows.pop())
            groups.setdefault(found.alike(), []).append(found)
    edits: list[tuple[int, int, str]] = []
    for kernels in groups.values():
        if len(kernels) > 1:
            edits += _template(source, kernels, constants)
    for start, end, text in sorted(edits, reverse=True):
        source = source[:start] + text + source[end:]
    return re.sub(r"\n{3,}", "\n\n", source) if edits else source


def _template(source: str, kernels: Sequence[Windowed], constants: dict[str, dict[str, str]]) -> list[tuple[int, int, str]]:
    """Edits that leave the first kernel as a template; none where what differs is no matter of templates."""
    first = kernels[0]
    columns: dict[tuple[str, ...], list[int]] = {}  # values in each kernel -> where they stand
    for index, (start, _) in enumerate(first.numbers):
        values = tuple(kernel.value(index) for kernel in kernels)
        if len(set(values)) > 1:
            line = first.body[first.body.rfind("\n", 0, start) + 1 : first.body.find("\n", start)]
            if "asm" in line or line.lstrip().startswith("#"):
                return []
            columns.setdefault(values, []).append(index)
    taken = {"Window", *re.findall(r"[A-Za-z_]\w*", first.parameters + first.body)}
    texts: dict[tuple[str, ...], str] = {}
    parameters = ["class Window"]
    for values, places in columns.items():
        known = [name for name in constants[first.window] if all(constants[k.window].get(name) == v for k, v in zip(kernels, values, strict=True))]
        if known:
            texts[values] = f"Window::{known[0]}"
            continue
        texts[values] = unused(_name(first, places[0]), taken)
        taken.add(texts[values])
        parameters.append(f"{'bool' if set(values) <= {'true', 'false'} else 'int'} {texts[values]}")
    named = {index: texts[values] for values, places in columns.items() for index in places}
    body = first.body
    for index in sorted(named, reverse=True):
        start, end = first.numbers[index]
        body = body[:start] + named[index] + body[end:]
    body = re.sub(rf"\b{first.window}\b", "Window", body)
    head = f"template <{', '.join(parameters)}>\n__global__ void {first.bounds}{first.name}({first.parameters}) {{\n"
    edits = [(*first.span, f"{head}{body}}}\n")]
    given = [values for values in columns if not texts[values].startswith("Window::")]
    for number, kernel in enumerate(kernels):
        if number:
            edits.append((*kernel.span, ""))
        instance = f"{first.name}<{', '.join([kernel.window, *(values[number] for values in given)])}>"
        for use in re.finditer(rf"\b{kernel.name}\b", source):
            if not kernel.span[0] <= use.start() < kernel.span[1]:
                edits.append((*use.span(), instance))
    return edits


def _name(kernel: Windowed, index: int) -> str:
    start, _ = kernel.numbers[index]
    before = kernel.body[kernel.body.rfind("\n", 0, start) + 1 : start].rstrip()
    if kernel.value(index) in ("true", "false"):
        return "WHOLE"
    return next((name for pattern, name in NAMES if pattern.search(before)), "SIZE")
