"""The steps of a plan, for workflows whose coder takes them one at a time."""

from __future__ import annotations

from typing import Any

from agents.roles.situation import Plan, Situation

MOST_STEPS = 4  # maximum number of steps that are coded one by one; the rest of a longer plan becomes one combined step

Step = dict[str, Any]


def workable(plan: Plan) -> list[Step]:
    """Returns, in order, the steps that have to be coded: custom kernels, and library calls that change. The result is never empty if the plan has a
    step."""
    steps = [step for step in plan.payload.get("steps") or [] if isinstance(step, dict)]
    own = [step for step in steps if step.get("space") == "own kernel" or (step.get("space") == "library" and step.get("strategies"))] or steps[:1]
    if len(own) <= MOST_STEPS:
        return own
    return [*own[: MOST_STEPS - 1], together(own[MOST_STEPS - 1 :])]


def together(steps: list[Step]) -> Step:
    """Returns several steps combined into one."""

    def every(name: str) -> list[str]:
        return list(dict.fromkeys(str(value) for step in steps for value in step.get(name) or []))

    def joined(name: str) -> str:
        return "; ".join(f"{step.get('id')}: {step[name]}" for step in steps if step.get(name))

    return {
        "id": f"{steps[0].get('id')}-{steps[-1].get('id')}", "title": f"the rest: {', '.join(str(s.get('title', '')) for s in steps)}"[:200],
        "operators": every("operators"), "space": "own kernel", "strategies": every("strategies"), "contract": joined("contract"),
        "expected": joined("expected"), "risk": joined("risk"), "reason": joined("reason"),
    }  # fmt: skip


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
