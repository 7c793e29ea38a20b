"""Plans edited by a person: which parts may be changed, and how the built-in Coder applies those changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agents.events import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from agents.roles.compiled import Compiled
    from compiler import Options

MAX_STEPS = 40
MAX_TEXT = 2000  # characters per field
SPACES = ("own kernel", "library", "pytorch")
TEXTS = ("title", "contract", "risk", "reason")
LISTS = ("operators", "strategies")
FIGURES = ("floor_ms", "bound")  # step figures set by the compiler; they stay valid because a person's edits do not change the step's operators


class PlanRefused(ValueError):
    """Raised if an edited plan cannot be followed. The message says where the problem is and what to do."""


def edited_plan(plan: dict[str, Any], edited: Any) -> dict[str, Any]:
    """Returns the plan with a person's `summary` and `steps`. Steps may be changed, dropped, reordered or added. Raises `PlanRefused`."""
    if not isinstance(edited, dict) or not isinstance(edited.get("steps"), list) or not isinstance(edited.get("summary", ""), str):
        raise PlanRefused("a plan is an object with `summary`, a text, and `steps`, a list")
    if len(edited["steps"]) > MAX_STEPS:
        raise PlanRefused(f"a plan has at most {MAX_STEPS} steps, this one has {len(edited['steps'])}")
    known = {step["id"]: step for step in plan.get("steps", [])}
    steps: list[dict[str, Any]] = []
    for place, step in enumerate(edited["steps"], start=1):
        steps.append(_step(step, place, known, {s["id"] for s in steps}))
    whole = {**plan, "summary": edited.get("summary", plan.get("summary", ""))[:MAX_TEXT], "steps": steps}
    size = len(json.dumps(whole, ensure_ascii=False).encode())
    if size > MAX_PAYLOAD_BYTES - 1024:
        raise PlanRefused(f"the plan has {size} bytes, and {MAX_PAYLOAD_BYTES - 1024} fit: shorten the texts")
    return whole


def _step(step: Any, place: int, known: dict[str, dict[str, Any]], taken: set[str]) -> dict[str, Any]:
    if not isinstance(step, dict):
        raise PlanRefused(f"step {place} is not an object")
    name = str(step.get("id") or f"step-{place}")[:60]
    if name in taken:
        raise PlanRefused(f"step {place} has the id {name!r} of an earlier step: ids have to differ")
    found = {"operators": [], "strategies": [], "contract": "", "expected": None, "risk": "", "reason": "", **known.get(name, {}), **step, "id": name}
    for field in TEXTS:
        if not isinstance(found.get(field), str) or len(found[field]) > MAX_TEXT:
            raise PlanRefused(f"step {place}: `{field}` is a text of at most {MAX_TEXT} characters")
    if not found["title"].strip():
        raise PlanRefused(f"step {place} has no title")
    if found.get("space", "own kernel") not in SPACES:
        raise PlanRefused(f"step {place}: `space` is one of {', '.join(SPACES)}")
    for field in LISTS:
        if not isinstance(found[field], list) or not all(isinstance(item, str) and len(item) <= 200 for item in found[field]):
            raise PlanRefused(f"step {place}: `{field}` is a list of names")
    if isinstance(found["expected"], bool) or not isinstance(found["expected"], (int, float, str, type(None))):
        raise PlanRefused(f"step {place}: `expected` is a number, the speedup, or a text, or null")
    kept = ("id", "title", "operators", "space", "strategies", "contract", "expected", "risk", "reason")
    figures = {field: value for field, value in known.get(name, {}).items() if field in FIGURES}
    return {"space": "own kernel", **{name: found[name] for name in kept if name in found}, **figures}


def first_options(compiled: Compiled, payload: dict[str, Any]) -> Options:
    """Returns the built-in Coder's choices for this plan, based on what a person removed from a group or added to it. Edits that the Coder's kernels
    cannot carry out are ignored.

    A group is not fused if a complete list of steps omits it, or if it was assigned to the library or to PyTorch.
    """
    from compiler import Options  # the web process edits plans without the compiler, which takes seconds to load
    from compiler.options import SAFE, TRIED

    options = Options()
    steps = {step["id"]: step for step in payload.get("steps", [])}
    for group in compiled.plan.groups:
        step = steps.get(group.id)
        left = step is None and not payload.get("more")
        if group.space == "own kernel" and (left or (step is not None and step.get("space", "own kernel") != "own kernel")):
            options = options.choose("leave-to-library", group.id, True)
        if step is None:
            continue
        for strategy in (*SAFE, *TRIED):
            planned, wanted = strategy in group.strategies, strategy in step.get("strategies", [])
            if planned != wanted:
                options = options.choose(strategy, "" if strategy in ("cuda-graph", "channels-last", "overlap-streams") else group.id, wanted)
    return options
