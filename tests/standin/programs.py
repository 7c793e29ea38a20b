"""Programs of the built-in compiler as a model would submit them, with the choices written into them, complete or as search/replace blocks."""

from __future__ import annotations

import difflib
import json
import re

from agents.roles.edits import MARKER
from compiler import CompilerPlan, DeviceFigures, Options, make_plan, print_program
from tests.standin.capturing import Capturer

LEAVE = "leave-to-library"
CHOICES = re.compile(r"^# Choices: (\{.*\})$", re.MULTILINE)
HELPER_PLACE = re.compile(r"^# --- stitchwork build helper 1:.*?^# --- end of the stitchwork build helper ---\n", re.MULTILINE | re.DOTALL)
MAX_STEPS = 3


class Workshop:
    """Makes plans and programs for tasks. Each graph is captured only once."""

    def __init__(self) -> None:
        self.capturer = Capturer()
        self._plans: dict[tuple[str, str, str], CompilerPlan] = {}

    async def plan(self, task_source: str, mode: str, figures: DeviceFigures) -> CompilerPlan:
        key = (task_source, mode, figures.model_dump_json())
        if key not in self._plans:
            capture = await self.capturer.capture(task_source, mode)
            self._plans[key] = make_plan(capture, task_source, figures)
        return self._plans[key]


def program(plan: CompilerPlan, task_source: str, options: Options) -> str:
    """Returns a program as prompts show it: one comment replaces the build helper, and another records the choices for the next change."""
    text = HELPER_PLACE.sub(f"{MARKER}\n", print_program(plan, task_source, options))
    choices = f"# Choices: {json.dumps(options.model_dump(exclude_defaults=True))}\n"
    head, marker, rest = text.partition("\nclass ModelNew")
    return re.sub(r"\n{4,}", "\n\n\n", f"{head}\n{choices}{marker.lstrip(chr(10))}{rest}")


def choices_of(source: str) -> Options | None:
    """Returns the options with which a program was printed, read from its own text."""
    found = CHOICES.search(source)
    if found is None:
        return None
    try:
        return Options.model_validate_json(found[1])
    except ValueError:
        return None


def steps_of(plan: CompilerPlan) -> list[list[str]]:
    """Returns the groups that have our own kernels, sorted by the time they save, in at most MAX_STEPS parts with about equal savings."""
    groups = sorted(plan.own, key=lambda g: g.bytes - g.eager_bytes)
    saved = [max(1, g.eager_bytes - g.bytes) for g in groups]
    parts: list[list[str]] = [[]]
    part = 0
    for group, bytes_saved in zip(groups, saved, strict=True):
        if parts[-1] and part + bytes_saved > sum(saved) / MAX_STEPS and len(parts) < MAX_STEPS:
            parts.append([])
            part = 0
        parts[-1].append(group.id)
        part += bytes_saved
    return [p for p in parts if p]


def only(plan: CompilerPlan, groups: set[str], options: Options) -> Options:
    """Returns options that use our own kernels for these groups and leave the others to PyTorch."""
    chosen = options
    for group in plan.own:
        names = [name for name in chosen.groups.get(group.id, []) if name != LEAVE]
        chosen = chosen.model_copy(update={"groups": {**chosen.groups, group.id: names + ([] if group.id in groups else [LEAVE])}})
    return chosen.model_copy(update={"groups": {name: value for name, value in chosen.groups.items() if value}})


def own_in(plan: CompilerPlan, options: Options) -> set[str]:
    return {group.id for group in plan.own if not options.on(LEAVE, group.id)}


def blocks(old: str, new: str) -> str | None:
    """Returns search/replace blocks that turn `old` into `new`, or None if the whole file is shorter."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    changed = [list(code[1:]) for code in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes() if code[0] != "equal"]
    if not changed:
        return None
    widened: list[list[int]] = []
    for one in changed:
        low, high, new_low, new_high = one
        while not _unique(old, "".join(before[low:high])):
            if low > 0:
                low, new_low = low - 1, new_low - 1
            if high < len(before):
                high, new_high = high + 1, new_high + 1
            if low == 0 and high == len(before):
                return None
        if widened and low <= widened[-1][1]:
            widened[-1][1], widened[-1][3] = max(high, widened[-1][1]), max(new_high, widened[-1][3])
        else:
            widened.append([low, high, new_low, new_high])
    said = "\n\n".join(block("".join(before[low:high]), "".join(after[a:b])) for low, high, a, b in widened)
    return said if len(said) < 0.7 * len(new) else None


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{_line(search)}=======\n{_line(replace)}>>>>>>> REPLACE"


def _unique(text: str, part: str) -> bool:
    return bool(part.strip()) and text.count(part) == 1


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
