"""The steps of a plan, for workflows whose coder takes them one at a time."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

from agents.floor import group_of_step
from agents.roles.compiled import Compiled
from agents.roles.situation import Plan, Situation
from agents.roles.step_gains import fitted, gain_ms, gains_nothing, loops_of

MOST_STEPS = 4  # maximum number of steps that are coded one by one; the rest of a longer plan becomes one combined step
OF_ONE_LOOP = "the reference computes these operators in one loop over groups, so they take its place together"
WITHOUT_GAIN = (
    "by their own figures, no step of this plan gains anything alone: write a kernel where several of them, or these and their neighbours, become "
    "one launch, or leave them in PyTorch and save work of the host"
)

Step = dict[str, Any]


def workable(plan: Plan) -> list[Step]:
    """Returns the steps that have to be coded: custom kernels, and library calls that change. Steps of the compiler's own plan come in the order of
    their gains, without those that gain nothing; the steps of a model's plan come in its order. The result is never empty if the plan has a step."""
    steps = [step for step in plan.payload.get("steps") or [] if isinstance(step, dict)]
    own = [step for step in steps if step.get("space") == "own kernel" or (step.get("space") == "library" and step.get("strategies"))]
    own = _by_gain(plan.data, own) or steps[:1]
    if len(own) <= MOST_STEPS:
        return own
    return [*own[: MOST_STEPS - 1], together(own[MOST_STEPS - 1 :])]


def _by_gain(compiled: Any, steps: list[Step]) -> list[Step]:
    """Returns the steps with strategies that suit their rows, those of one loop combined, in the order of their gains, without those that gain
    nothing. If none gains anything, combines all of them and says so. Returns them unchanged if any is not a group of the compiler."""
    if not isinstance(compiled, Compiled):
        return steps
    groups = {str(step.get("id")): found[0] for step in steps if (found := group_of_step(compiled, step))}
    if not steps or len(groups) < len(steps):
        return steps
    loops, ranked = loops_of(compiled), list[tuple[float, Step]]()
    for loop, members in groupby(steps, lambda step: loops.get(str(step.get("id")))):
        chosen = [fitted(compiled, step) for step in members]
        if loop is not None and len(chosen) > 1:
            ranked.append((math.inf, {**together(chosen, "a loop over groups"), "reason": OF_ONE_LOOP, "expected": ""}))
            continue
        for step in chosen:
            group = groups[str(step.get("id"))]
            if not gains_nothing(compiled, group):
                ranked.append((gain_ms(compiled, group), step))
    if not ranked:
        every = [fitted(compiled, step) for step in steps]
        return [{**(together(every) if len(every) > 1 else every[0]), "reason": WITHOUT_GAIN}]
    return [step for _, step in sorted(ranked, key=lambda one: -one[0])]


def together(steps: list[Step], what: str = "the rest") -> Step:
    """Returns several steps combined into one."""
    ids = [name for step in steps for name in (step.get("members") or [str(step.get("id"))])]

    def every(name: str) -> list[str]:
        return list(dict.fromkeys(str(value) for step in steps for value in step.get(name) or []))

    def joined(name: str) -> str:
        said = [f"{step.get('id')}: {step[name]}" for step in steps if step.get(name)]
        alike = {str(step.get(name) or "") for step in steps}
        return alike.pop() if len(alike) == 1 else "; ".join(said)

    return {
        "id": _named(ids), "title": f"{what}: {', '.join(dict.fromkeys(str(s.get('title', '')) for s in steps))}"[:200],
        "operators": ids if all(step.get("members") for step in steps) else every("operators"),  # ids of groups say which operators are meant
        "space": "own kernel", "strategies": every("strategies"), "contract": joined("contract"),
        "expected": joined("expected"), "risk": joined("risk"), "reason": joined("reason"), "members": ids,
    }  # fmt: skip


def _named(ids: list[str]) -> str:
    """Returns the id of combined steps: a run if their numbers follow each other, otherwise the first one and the number of the others."""
    numbers = [int(name[1:]) if name[1:].isdigit() else None for name in ids]
    follows = None in numbers or all(b is not None and a is not None and b > a for a, b in zip(numbers, numbers[1:], strict=False))
    return f"{ids[0]}-{ids[-1]}" if follows else f"{ids[0]} and {len(ids) - 1} more"


def following(situation: Situation) -> Step | None:
    """Returns the next step, or None if this was the last one or the coder does not work step by step."""
    if situation.plan is None or situation.step is None:
        return None
    steps = workable(situation.plan)
    ids = [step.get("id") for step in steps]
    at = ids.index(situation.step.get("id")) + 1 if situation.step.get("id") in ids else len(steps)
    return steps[at] if at < len(steps) else None


def first(situation: Situation) -> Step | None:
    steps = workable(situation.plan) if situation.plan else []
    return steps[0] if steps else None


def operators_in(situation: Situation) -> list[str] | None:
    """Returns the names of the task's operators as in its graph, or None if not all of them are known."""
    graph = situation.capture.graph if situation.capture is not None else None
    return [node.op for node in graph.nodes] if graph is not None and graph.nodes and not graph.left else None
