"""Merges kernels that differ only in a few sizes into one kernel with parameters.

As a result, even a network with two hundred layers has only about a dozen kernels to read and compile. The kernel printers mark the sizes that may
become parameters (`text.free`). All other sizes remain constants, since divisions by numbers unknown to the compiler and short loops that it cannot
unroll would cost time. Kernels that differ in anything else stay separate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.kernel.naming import unused
from compiler.kernel.text import KernelText, Launch, Launcher, Part, columns, with_values, words


def merged(parts: Sequence[Part]) -> list[Part]:
    """Returns the translation unit with one kernel for each set of similar kernels. The merged kernel replaces the first kernel in the set,
    and the launchers of the others call it."""
    groups = alike(parts, lambda kernel: (*what(kernel), kernel.window, *(size.value for size in kernel.sizes if not size.name)))
    return replaced(parts, [as_one(kernels) for kernels in groups])


def what(kernel: KernelText) -> tuple[object, ...]:
    """Returns a key that identifies a kernel regardless of its sizes."""
    base, _, number = kernel.launcher.rpartition("_")
    return base if number.isdigit() else kernel.launcher, kernel.part, kernel.bounds, kernel.parameters, kernel.template


def alike(parts: Sequence[Part], key: Callable[[KernelText], tuple[object, ...]]) -> list[list[KernelText]]:
    """Returns the groups of two or more kernels with equal keys, excluding kernels without an ordinary launch."""
    started = {one.kernel for part in parts if isinstance(part, Launcher) for one in part.statements if isinstance(one, Launch)}
    found: dict[tuple[object, ...], list[KernelText]] = {}
    for part in parts:
        if isinstance(part, KernelText) and part.name in started:
            found.setdefault(key(part), []).append(part)
    return [kernels for kernels in found.values() if len(kernels) > 1]


# Replacements by kernel name: the new kernel (None if another kernel's replacement covers it) and the function that rewrites a launch.
Replacement = dict[str, tuple[KernelText | None, Callable[[Launch], Launch]]]


def as_one(kernels: Sequence[KernelText]) -> Replacement:
    """Returns the first kernel with the differing sizes turned into parameters."""
    first, differ = kernels[0], columns(kernels)
    taken = words(first.parameters + first.body())
    names: list[str] = []
    for places in differ.values():
        names.append(unused(first.sizes[places[0]].name, taken))
        taken.add(names[-1])
    values = {at: name for places, name in zip(differ.values(), names, strict=True) for at in places}
    one = replace(with_values(first, values), parameters=", ".join([first.parameters, *(f"const int {name}" for name in names)]))

    def launched(sizes: list[str]) -> Callable[[Launch], Launch]:
        return lambda launch: replace(launch, kernel=first.name, arguments=", ".join([launch.arguments, *sizes]))

    return {
        kernel.name: (None if number else one, launched([sizes[number] for sizes in differ])) for number, kernel in enumerate(kernels)
    }  # fmt: skip


def replaced(parts: Sequence[Part], groups: Sequence[Replacement]) -> list[Part]:
    """Returns the translation unit after these replacements."""
    by_name = {name: found for group in groups for name, found in group.items()}

    def statement(one: str | Launch) -> str | Launch:
        return by_name[one.kernel][1](one) if isinstance(one, Launch) and one.kernel in by_name else one

    found: list[Part] = []
    for part in parts:
        if isinstance(part, Launcher):
            found.append(replace(part, statements=tuple(map(statement, part.statements))))
        elif isinstance(part, KernelText) and part.name in by_name:
            kernel = by_name[part.name][0]
            found += [kernel] if kernel else []
        else:
            found.append(part)
    return found
