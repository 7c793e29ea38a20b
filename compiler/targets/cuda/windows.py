"""Convolutions of 16 bits that differ by their window alone as one template: a network of two hundred layers has a dozen of kernels to read.

What the compiler must know stays known to it: the window's sizes are the template's `Window`, other sizes its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.kernel.naming import unused
from compiler.kernel.text import KernelText, Launch, Part, Window, columns, with_values, words
from compiler.targets.cuda.merged import Replacement, alike, replaced, what


def windowed(parts: Sequence[Part]) -> list[Part]:
    """The translation unit with one template for such kernels. The first of them stands where it stood; the others' launchers call it."""
    groups = alike(parts, lambda kernel: (*what(kernel), *(() if kernel.window else (kernel.name,))))
    return replaced(parts, [as_template([(kernel, kernel.window) for kernel in kernels if kernel.window]) for kernels in groups])


def as_template(kernels: Sequence[tuple[KernelText, Window]]) -> Replacement:
    """The first kernel as a template."""
    first, differ = kernels[0][0], columns([kernel for kernel, _ in kernels])
    windows = [window for _, window in kernels]
    taken = {"Window", *words(first.parameters + first.body())}
    texts: dict[tuple[str, ...], str] = {}
    parameters = ["class Window"]
    for values, places in differ.items():
        of_window = [name for name, _ in windows[0].sizes if tuple(str(dict(window.sizes)[name]) for window in windows) == values]
        if of_window:
            texts[values] = f"Window::{of_window[0]}"
            continue
        texts[values] = unused(first.sizes[places[0]].parameter, taken)
        taken.add(texts[values])
        parameters.append(f"{'bool' if set(values) <= {'true', 'false'} else 'int'} {texts[values]}")
    one = with_values(first, {at: texts[values] for values, places in differ.items() for at in places})
    one = replace(one, window=Window("Window", ()), arguments=tuple(parameters))
    given = [values for values in differ if not texts[values].startswith("Window::")]

    def launched(number: int) -> Callable[[Launch], Launch]:
        instance = f"{first.name}<{', '.join([windows[number].name, *(values[number] for values in given)])}>"
        return lambda launch: replace(launch, kernel=instance)

    return {kernel.name: (None if number else one, launched(number)) for number, (kernel, _) in enumerate(kernels)}
