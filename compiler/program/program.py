"""Prints a plan with its options as one readable source file: the task's constructor, the kernels, and a forward that launches them."""

from __future__ import annotations

import re
from typing import Any

from compiler.kernel.builder import Refused
from compiler.options import Options
from compiler.planning.plan import CompilerPlan
from compiler.program.forward import Forward
from compiler.program.task_text import TaskText

NUMBER = re.compile(r"\b\d+\b")


def print_program(plan: CompilerPlan, task_source: str, options: Options) -> str:
    """Returns the program. If there is nothing to compile, it contains the task's own forward under the new name."""
    if plan.graph is None or not plan.own:
        return unchanged(plan, task_source)
    text = TaskText.of(task_source, plan.graph)
    forward = Forward(plan, text, options)
    body = forward.text()
    if not forward.has_kernels and not options.on("cuda-graph"):
        return unchanged(plan, task_source, "every group was given back to PyTorch, which was faster here")
    parts = [f'"""{_header(plan, forward)}"""\n']
    target, source = plan.target, forward.source() if forward.has_kernels else ""
    parts.append("\n".join(target.imports(text.imports(), source) if source else text.imports()) + "\n")
    if source and target.builder:
        parts.append("\n" + target.builder.rstrip("\n") + "\n")
    if definitions := text.definitions():
        parts.append("\n" + "\n\n\n".join(definitions) + "\n")
    kernels = target.module(source, forward.pointers(), forward.flags(), forward.names) + "\n" if source else ""
    parts.append(kernels + forward.support())
    methods = text.methods_text()
    parts.append(f"\n{text.head()}\n" + (methods + "\n\n" if methods else "") + body)
    if epilogue := text.epilogue():
        parts.append("\n" + "\n\n\n".join(epilogue) + "\n")
    return "\n".join(parts)


def _header(plan: CompilerPlan, forward: Forward) -> str:
    lines = [f"Kernels in {plan.target.title} for this task, printed by Stitchwork's built-in compiler.", ""]
    own = [g for g in plan.groups if g.id in forward.own_groups]
    rest = [g for g in plan.groups if g.id not in forward.own_groups]

    def times(alike: list[Any]) -> str:
        return f" ({len(alike)} times)" if len(alike) > 1 else ""

    lines.append("Own kernels:")
    for title, alike, reason in _gathered(own):
        lines.append(f"- {title}{times(alike)}: {reason}")
    if rest:
        lines += ["", "Left to PyTorch and its libraries:"]
        for title, alike, reason in _gathered(rest):
            lines.append(f"- {title}{times(alike)}: {forward.refused.get(alike[0].id, reason)}")
    if plan.left:
        lines += ["", "Left in Python, because it cannot be captured:", *(f"- {why}" for why in plan.left)]
    if notes := forward.network.notes:
        lines += ["", "Identities of algebra:", *(f"- {note}" for note in notes)]
    applied = [s for s in forward.applied if s]
    if applied:
        lines += ["", f"Strategies: {', '.join(applied)}."]
    lines += ["", "Made for the shapes of the task's inputs; forward only (no gradients)."]
    return quoted("\n".join(lines)) + "\n"


def quoted(text: str) -> str:
    """Escapes the text for use inside a docstring."""
    return text.replace("\\", "/").replace('"""', "'''")


def _gathered(groups: list[Any]) -> list[tuple[str, list[Any], str]]:
    """Merges groups that differ only in numbers and describes them together: "64 to 1920 rows of 7840 elements"."""
    found: dict[tuple[str, str], list[Any]] = {}
    for group in groups:
        found.setdefault((group.title, NUMBER.sub("#", group.reason)), []).append(group)
    return [(title, alike, _ranges([group.reason for group in alike])) for (title, _), alike in found.items()]


def _ranges(texts: list[str]) -> str:
    """Merges messages that differ only in their numbers into one message in which those numbers become ranges."""
    columns = zip(*(NUMBER.findall(text) for text in texts), strict=True)
    ends = iter([sorted(column, key=int) for column in columns])

    def told(match: re.Match[str]) -> str:
        values = next(ends)
        return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"

    return NUMBER.sub(told, texts[0])


def unchanged(plan: CompilerPlan, task_source: str, why: str = "") -> str:
    """Returns the task unchanged except for the program's name and a docstring that explains why nothing was compiled."""
    text = TaskText(task_source)
    why = why or plan.why_none
    return "\n".join([f'"""{quoted(f"The task as it is: {why}.")}"""\n', *(part + "\n" for part in text.whole())])


__all__ = ["Refused", "print_program"]
