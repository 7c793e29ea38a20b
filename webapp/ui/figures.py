"""Filters that write figures and names. They are builtins (settings.TEMPLATES), so no page needs `{% load %}`.

{{ n|counted:"run" }}             a number with its noun: 1 run, 2 runs
{{ x|sentence }}                 a clause from an engine as a sentence
{{ x|ticked }}                   text in which `this` is code
{{ x|plain }} {{ x|short_device }}    a name for comparison; the usual part of a device's name
{{ x|ms }} {{ x|seconds }} {{ x|bytes }} {{ x|percent }} {{ x|grouped }} {{ x|whole }} {{ run|duration }}    figures with units; "–" for None
"""

from __future__ import annotations

import re
from typing import Any

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()


def times(ratio: float) -> str:
    """Format with three significant figures, but always with the complete integer part, as in 2.41, 12.3 and 141."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"


@register.filter
def short_device(name: str) -> str:
    """Return the commonly used part of the name: "NVIDIA H200" -> "H200", "AMD EPYC 9654 96-Core Processor" -> "EPYC 9654"."""
    words = str(name or "").replace("(R)", "").replace("(TM)", "").replace("@", " @ ").split()
    dropped = {"NVIDIA", "AMD", "Intel", "CPU", "Processor", "GeForce", "Corporation", "Virtual"}
    words = words[: words.index("@")] if "@" in words else words
    return " ".join(w for w in words if w not in dropped and not w.lower().endswith("-core"))


@register.filter
def ms(value: float | None) -> str:
    """Format milliseconds in the most readable unit, with three significant figures."""
    if value is None:
        return "–"
    scaled, unit = (value / 1000, "s") if value >= 1000 else (value, "ms") if value >= 1 else (value * 1000, "µs")
    return f"{scaled:.3g} {unit}" if scaled < 999.5 else f"{scaled:.0f} {unit}"


@register.filter
def seconds(value: float | None) -> str:
    """Format an elapsed time for people, as in 0.8 s, 12 s, 3 min 20 s and 2 h 5 min."""
    if value is None:
        return "–"
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@register.filter
def duration(thing: Any) -> str:
    """Format the time between `started_at` and `finished_at` of a run or a verification."""
    if not thing.started_at or not thing.finished_at:
        return "–"
    return seconds((thing.finished_at - thing.started_at).total_seconds())


@register.filter
def bytes(value: float | None) -> str:
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return ""


@register.filter
def plain(name: str) -> str:
    """Normalise a name for comparison, so "Layer norm" and "layer_norm" are equal."""
    return name.replace("_", " ").casefold()


@register.filter
def sentence(text: str) -> str:
    """Turn a clause from an engine into a sentence."""
    return text and text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")


@register.filter
def grouped(value: int | None) -> str:
    """Group digits with non-breaking spaces: 1234567 -> "1 234 567"."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


@register.filter
def whole(value: float | None) -> str:
    """Round and group an averaged count: 12345.6 -> "12 346"."""
    return grouped(None if value is None else round(value))


@register.filter
def counted(value: Any, noun: str) -> str:
    """Return a number, or the length of a list, with its noun.

    `{{ 1|counted:"run" }}` is "1 run"; `"entry,entries"` gives an irregular plural.
    """
    one, _, many = noun.partition(",")
    try:
        number = 0 if value is None or value == "" else int(value) if isinstance(value, (int, float, str)) else len(value)
    except ValueError:  # user input
        return f"{value} {many or one + 's'}"
    return f"{grouped(number)} {one if number == 1 else many or one + 's'}"


@register.filter
def ticked(text: str) -> SafeString:
    """Return the text with `this` marked as code."""
    return mark_safe(re.sub(r"(?<!`)`([^`\n]+)`(?!`)", r"<code>\1</code>", escape(text)))


@register.filter
def percent(value: float | None) -> str:
    return "–" if value is None else f"{value * 100:.0f} %"
