"""Merges 16-bit convolutions that differ only in their windows into one template.

As a result, even a network with two hundred layers has only about a dozen kernels to read. Sizes that the compiler must know remain compile-time
constants: the window's sizes become the template's `Window`, and the other sizes become template parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.kernel.naming import unused
from compiler.kernel.text import KernelText, Launch, Part, Window, columns, with_values, words
from compiler.targets.cuda.merged import Replacement, alike, replaced, what


def windowed(parts: Sequence[Part]) -> list[Part]:
    """Returns the translation unit with one template for each set of such kernels. The template replaces the first kernel in the set, and
    the launchers of the others call it."""
    groups = alike(parts, lambda kernel: (*what(kernel), *(() if kernel.window else (kernel.name,))))
    return replaced(parts, [as_template([(kernel, kernel.window) for kernel in kernels if kernel.window]) for kernels in groups])


def as_template(kernels: Sequence[tuple[KernelText, Window]]) -> Replacement:
    """Returns the first kernel as a template."""
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
