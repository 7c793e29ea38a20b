"""The built-in Planner. Its plan consists of the compiler's groups, with the minimum cost and the expected gain of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agents.decisions.script import Edited
from agents.decisions.view import View
from agents.events import MAX_PAYLOAD_BYTES
from agents.floor import floor_of, floor_of_group, floor_of_task, operations
from agents.memory.experience import recall
from agents.roles import compiled_ideas
from agents.roles.compiled import Compiled
from agents.roles.obeying import heed
from agents.roles.situation import Attempt, Idea, Plan, Situation
from agents.span import Span
from compiler import DeviceFigures, Options, make_plan
from compiler.planning.cost import bound_of, duration, expected_ms
from compiler.planning.tuned import fingerprints

MAX_STEPS = 24  # maximum number of steps in an event or a message; any further steps are only counted


class BuiltInPlanner:
    name = "built-in"

    async def plan(self, span: Span, situation: Situation) -> Plan:
        capture, device = situation.captured, situation.settings.device
        described = await span.effect("device", span.run.describe_device)
        figures = DeviceFigures.of(described or None, device)
        compiled = Compiled(make_plan(capture, situation.task_source, figures, situation.settings.precision, situation.settings.language), figures)
        floor_ms = floor_of_task(compiled, capture).ms or None
        model = str((described or {}).get("device_model") or "")
        recalled = await recall(span, situation, model, lambda: fingerprints(compiled.plan, situation.task_source, Options()).values())
        situation.records, situation.tuned = recalled.records, recalled.tuned
        return Plan(
            payload=payload_of(compiled, floor_ms),
            says=tuple(says(compiled, capture.bytes_min, operations(compiled, capture), floor_ms)),
            data=compiled,
            floor_ms=floor_ms,
            bytes_min=capture.bytes_min,
            flops=operations(compiled, capture),
        )

    async def ideas(self, span: Span, situation: Situation, count: int, known: Sequence[Idea]) -> list[Idea]:
        await heed(span, situation, "planner")
        return compiled_ideas.ideas(situation, count, known)

    async def cross(self, span: Span, situation: Situation, first: Idea, second: Idea) -> Idea:
        return compiled_ideas.cross(situation, first, second)

    async def align(self, span: Span, situation: Situation, idea: Idea, attempt: Attempt) -> Idea:
        return compiled_ideas.align(situation, idea, attempt)

    async def edit_tree(self, span: Span, situation: Situation, view: View) -> Edited:
        await heed(span, situation, "planner")
        return compiled_ideas.edit_tree(situation, view)


def payload_of(compiled: Compiled, floor_ms: float | None) -> dict[str, Any]:
    steps = [
        {
            "id": group.id,
            "title": group.title[:200],
            "operators": group.kinds[:16],
            "space": group.space,
            "strategies": list(group.strategies),
            "contract": "same shapes, strides and dtypes as the reference",
            "expected": group.expected,
            "floor_ms": rounded(floor_of_group(compiled, group).ms),
            "expected_ms": rounded(expected_ms(group, compiled.figures, compiled.plan.precision)),
            "bound": bound_of(group, compiled.figures),
            "risk": "",
            "reason": group.reason[:300],
        }
        for group in compiled.plan.groups[:MAX_STEPS]
    ]
    payload = {"summary": summary_of(compiled, floor_ms), "steps": steps, "floor_ms": floor_ms}
    while len(json.dumps(payload)) > MAX_PAYLOAD_BYTES - 1024:
        steps.pop()
    return {**payload, "more": len(compiled.plan.groups) - len(steps)}


def rounded(milliseconds: float) -> float:
    return float(f"{milliseconds:.4g}")


def summary_of(compiled: Compiled, floor_ms: float | None) -> str:
    groups = compiled.plan.groups
    said = [f"{len(groups)} group{'s' if len(groups) != 1 else ''}"]
    for space, words in (("own kernel", "in own kernels"), ("library", "to the library"), ("pytorch", "left in PyTorch")):
        count = sum(group.space == space for group in groups)
        if count:
            said.append(f"{count} {words}")
    if floor_ms:
        said.append(f"floor {duration(floor_ms)}")
    return ", ".join(said)


def says(compiled: Compiled, bytes_min: int | None, flops: int | None, floor_ms: float | None) -> Iterator[str]:
    figures = compiled.figures
    yield f"{summary_of(compiled, floor_ms).capitalize()} on {figures.name}"
    if floor_ms:
        floor = floor_of(bytes_min, flops, figures, compiled.plan.precision)
        yield f": {floor.bound} bound, {floor.says()}"
    yield ".\n"
    for note in [compiled.plan.reason, *compiled.plan.notes]:
        if note:
            yield f"{note[0].upper()}{note[1:]}.\n"
    for group in compiled.plan.groups[:MAX_STEPS]:
        expected = duration(expected_ms(group, figures, compiled.plan.precision))
        cost = f"floor {duration(floor_of_group(compiled, group).ms)} ({bound_of(group, figures)}), expected {expected}"
        yield f"- {group.id}: {group.title}, {group.space}; {cost}. {group.reason}\n"
    if len(compiled.plan.groups) > MAX_STEPS:
        yield f"- and {len(compiled.plan.groups) - MAX_STEPS} more groups\n"
