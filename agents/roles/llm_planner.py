"""A Planner that uses a language model for plans, new plans, ideas, crossovers, alignment, and scripts for a decision tree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agents.decisions.script import LIMITS, Edited, ScriptReply, edited, usable
from agents.decisions.view import View, tree_text
from agents.events import MAX_PAYLOAD_BYTES
from agents.floor import floor_of_task, operations
from agents.llm.messages import Reply
from agents.memory import Memory, recall
from agents.roles import digest, measured, of_device, of_kernels, of_reference
from agents.roles.compiled import Compiled
from agents.roles.exchange import converse, notes_for
from agents.roles.fragments import products_note
from agents.roles.host_cost import spent_text
from agents.roles.planner import payload_of
from agents.roles.prompts import part
from agents.roles.replies import IdeaReply, IdeasReply, PlanReply, UnusableReply, cut, parse
from agents.roles.situation import Attempt, Idea, Plan, Situation, Unusable
from agents.roles.steps import operators_in
from agents.span import Span
from agents.strategies import CATALOGUE, Strategy
from compiler import DeviceFigures, make_plan

TEXTS = ("contract", "reason", "expected", "risk")  # text fields of a step
SHORTEST_TEXT = 300  # a step's text is never cut below this number of characters


class LlmPlanner:
    def __init__(self, profile: str):
        self.name = self.profile = profile

    async def plan(self, span: Span, situation: Situation) -> Plan:
        compiled = situation.plan.data if situation.plan else await compile_plan(span, situation)
        allowed = allowed_in(compiled, situation)
        again = situation.plan is not None and bool(situation.attempts or situation.refusals)
        values = await self._values(span, situation, compiled, allowed)
        if again:
            best = situation.best
            values |= {
                "plan": "\n\n".join([str(situation.planned.payload.get("summary") or ""), *(told(step, situation) for step in steps_of(situation))]),
                "outcome": "\n\n".join(filter(None, (situation.outcome or "The search has stalled.", spent_text(situation.best)))),
                "taught": taught(situation),
                "best": best_text(best, situation) if best else "",
            }
        else:
            values["inspirations"] = "\n".join(found.text for found in await recall(span, situation))
        try:
            reply = await converse(span, "planner", self.profile, f"planner/{'replan' if again else 'plan'}", values, lambda r: read_plan(r, allowed))
        except Unusable as refused:
            if again:
                raise
            return fallback(compiled, situation, refused)
        return plan_of(reply, compiled, situation)

    async def ideas(self, span: Span, situation: Situation, count: int, known: Sequence[Idea]) -> list[Idea]:
        compiled, allowed = planned(situation)
        values = await self._values(span, situation, compiled, allowed)
        tried = {attempt.edit.idea.number: attempt for attempt in situation.attempts if attempt.edit.idea is not None}
        values |= {
            "count": str(count),
            "known": "\n\n".join(f"{idea.number or i}. {digest.idea_text(idea, tried.get(idea.number))}" for i, idea in enumerate(known, start=1)),
            "taught": taught(situation) if situation.attempts else "",
            "inspirations": "\n".join(found.text for found in await recall(span, situation)),
        }
        try:
            reply = await converse(span, "planner", self.profile, "planner/ideas", values, lambda r: read_ideas(r, allowed))
        except Unusable as refused:
            await span.say("planner", f"No ideas this time. {refused.reason}")
            return []
        titles = {idea.title.casefold() for idea in known}
        fresh = [idea for idea in reply.ideas if idea.title.casefold() not in titles]
        return [idea_of(idea) for idea in fresh[:count]]

    async def cross(self, span: Span, situation: Situation, first: Idea, second: Idea) -> Idea:
        compiled, allowed = planned(situation)
        values = await self._values(span, situation, compiled, allowed)
        tried = {attempt.edit.idea.number: attempt for attempt in situation.attempts if attempt.edit.idea is not None}
        values |= {"first": digest.idea_text(first, tried.get(first.number)), "second": digest.idea_text(second, tried.get(second.number))}
        parents = (first.number, second.number)
        try:
            reply = await converse(span, "planner", self.profile, "planner/cross", values, lambda r: read_idea(r, allowed))
        except Unusable as refused:
            await span.say("planner", f"The two ideas are joined unchanged. {refused.reason}")
            return Idea(
                f"{first.title}; {second.title}"[:120],
                f"{first.text}\n\nTogether with: {second.text}"[:4000],
                tuple(dict.fromkeys([*first.strategies, *second.strategies])),
                max((idea.expected for idea in (first, second) if idea.expected is not None), default=None),
                parents,
            )
        return idea_of(reply, parents)

    async def align(self, span: Span, situation: Situation, idea: Idea, attempt: Attempt) -> Idea:
        compiled, allowed = planned(situation)
        values = await self._values(span, situation, compiled, allowed)
        said = measured.measured_text(attempt, situation)
        values |= {"idea": digest.idea_text(idea), "program": digest.program_text(attempt.edit.source), "measured": said}
        try:
            reply = await converse(span, "planner", self.profile, "planner/align", values, lambda r: read_idea(r, allowed))
        except Unusable as refused:
            await span.say("planner", f"The idea stays as it was. {refused.reason}")
            return idea
        return idea_of(reply, (idea.number,) if idea.number else idea.parents)

    async def edit_tree(self, span: Span, situation: Situation, view: View) -> Edited:
        compiled, allowed = planned(situation)
        values = await self._values(span, situation, compiled, allowed)
        best = situation.best
        values |= {
            "tree": tree_text(view),
            "revision": str(view.tree.revision),
            "why": view.why,
            "best": best_text(best, situation) if best is not None else "",
            "left_out": "\n".join(f"- {sentence}" for sentence in view.left_out),
            "marks": view.marks.said,
            "taught": taught(situation) if situation.attempts else "",
            "inspirations": "\n".join(found.text for found in await recall(span, situation)),
            "limits": LIMITS,
        }
        catalogue = {strategy.name for strategy in CATALOGUE}
        return await converse(
            span, "planner", self.profile, "planner/tree", values, lambda r: usable(edited(view.tree, parse(r, ScriptReply), catalogue))
        )

    async def _values(self, span: Span, situation: Situation, compiled: Compiled, allowed: list[Strategy]) -> dict[str, str]:
        """Return the variables that are available to all prompts of this role."""
        language = digest.language_of(situation.settings)
        return {
            "task": digest.task_text(situation),
            "device": of_device.device_text(compiled.figures),
            "reference": digest.reference_text(situation),
            "profile": of_reference.profile_text(situation.reference, measured.eager_ms(situation)),
            "floors": digest.floors_text(compiled, situation),
            "strategies": "\n\n".join(
                filter(None, (digest.catalogue_text(allowed), products_note([strategy.name for strategy in allowed], compiled.figures)))
            ),
            "language_rules": part(f"language_{language}"),
            "precision_rules": part(f"precision_{situation.settings.precision.replace('-', '_')}"),
            "notes": await notes_for(span, "planner"),
        }


async def compile_plan(span: Span, situation: Situation) -> Compiled:
    """Return the compiler's view of the task: the groups with their floors, for the device that the verifier describes."""
    described = await span.effect("device", span.run.describe_device)
    figures = DeviceFigures.of(described or None, situation.settings.device)
    return Compiled(make_plan(situation.captured, situation.task_source, figures, situation.settings.precision), figures)


def planned(situation: Situation) -> tuple[Compiled, list[Strategy]]:
    compiled: Compiled = situation.planned.data
    return compiled, allowed_in(compiled, situation)


def allowed_in(compiled: Compiled, situation: Situation) -> list[Strategy]:
    facts = of_reference.facts_of_reference(compiled, situation)
    written = any(attempt.passed for attempt in situation.attempts)
    return digest.catalogue_for(facts, digest.language_of(situation.settings), operators_in(situation), written=written)


def steps_of(situation: Situation) -> list[dict[str, Any]]:
    return list(situation.planned.payload.get("steps") or [])


def told(step: dict[str, Any], situation: Situation) -> str:
    """Return a step of the plan so far, with the programs written for it."""
    made = [attempt for attempt in situation.attempts if attempt.edit.step and attempt.edit.step == step.get("id")]
    said = ", ".join(f"candidate {a.number} ({a.report.status.replace('_', ' ') if a.report is not None else 'not verified'})" for a in made)
    return f"{digest.step_text(step)}\nprograms made for it: {said or 'none'}"


def taught(situation: Situation) -> str:
    """Return what was learned in this run, including from replies that contained no program."""
    memory = Memory.of(situation)
    parts = [memory.digest("planner"), memory.digest("errors")]
    if situation.refusals:
        parts.append("\n".join(["Unusable replies:", *(f"- {reason}" for reason in situation.refusals[-3:])]))
    return "\n\n".join(filter(None, parts)) or "Nothing yet."


def read_plan(reply: Reply, allowed: Sequence[Strategy]) -> PlanReply:
    plan = parse(reply, PlanReply)
    for at, step in enumerate(plan.steps):
        known_names(step.strategies, allowed, f"steps[{at}].strategies")
    return fitting(plan)


def fitting(plan: PlanReply) -> PlanReply:
    """Return the plan. Its longest texts are cut and marked until it fits into an event, so that no plan is lost because of its length."""
    while len(json.dumps(plan.model_dump())) > MAX_PAYLOAD_BYTES - 1024:
        step, name = max(((s, n) for s in plan.steps for n in TEXTS), key=lambda place: len(getattr(*place)))
        text = getattr(step, name)
        if len(text) <= SHORTEST_TEXT:  # the texts are not the reason why the plan is too long
            longest = max(plan.steps, key=lambda s: len(s.operators))
            longest.operators = longest.operators[: max(len(longest.operators) // 2, 1)]
        else:
            setattr(step, name, cut(text, max(len(text) * 3 // 4, SHORTEST_TEXT)))
    return plan


def best_text(best: Attempt, situation: Situation) -> str:
    """Return the best program with its measurements, and the changes to it that yielded no gain."""
    parts = [
        measured.measured_text(best, situation),
        of_kernels.resources_text(best, situation.planned.data.figures if situation.plan is not None else None),
        digest.shown_text(digest.shown_program(best), edits=False),
    ]
    lost = measured.lost_text(best, situation)
    return "\n\n".join([*parts, *([f"Tried on it without gain:\n{lost}"] if lost else [])])


def read_ideas(reply: Reply, allowed: Sequence[Strategy]) -> IdeasReply:
    found = parse(reply, IdeasReply)
    for at, idea in enumerate(found.ideas):
        known_names(idea.strategies, allowed, f"ideas[{at}].strategies")
    return found


def read_idea(reply: Reply, allowed: Sequence[Strategy]) -> IdeaReply:
    idea = parse(reply, IdeaReply)
    known_names(idea.strategies, allowed, "strategies")
    return idea


def known_names(names: Sequence[str], allowed: Sequence[Strategy], where: str) -> None:
    """Reject strategies that are not in the catalogue. Whether an existing strategy is suitable at this point is not checked."""
    catalogue = {strategy.name for strategy in CATALOGUE}
    unknown = [name for name in names if name not in catalogue]
    if unknown:
        raise UnusableReply(
            f"- {where}: not in the catalogue: {', '.join(unknown[:6])}. Allowed here: {', '.join(s.name for s in allowed)}. "
            "Leave the list empty where none fits."
        )


def plan_of(reply: PlanReply, compiled: Compiled, situation: Situation) -> Plan:
    capture, floor_ms = situation.captured, floor_of_task(compiled, situation.captured).ms or None
    payload: dict[str, Any] = {"summary": reply.summary, "steps": [step.model_dump() for step in reply.steps], "floor_ms": floor_ms, "more": 0}
    return Plan(payload, (), compiled, floor_ms, capture.bytes_min, operations(compiled, capture))


def fallback(compiled: Compiled, situation: Situation, refused: Unusable) -> Plan:
    """Return the plan that is used if the model provided none. It consists of the compiler's groups or, if there are none, of a single step for
    everything."""
    capture, floor_ms = situation.captured, floor_of_task(compiled, situation.captured).ms or None
    payload = payload_of(compiled, floor_ms)
    if not payload["steps"]:
        step = {
            "id": "s1", "title": "the whole forward pass", "operators": [], "space": "own kernel", "strategies": [],
            "contract": "same shapes, strides and dtypes as the reference", "expected": "", "risk": "", "reason": "there is no other plan",
        }  # fmt: skip
        payload = {"summary": "one step: the whole forward pass", "steps": [step], "floor_ms": floor_ms, "more": 0}
    says = f"The model returned no usable plan, so the compiler's groups are the plan. {refused.reason}\n"
    return Plan(payload, (says,), compiled, floor_ms, capture.bytes_min, operations(compiled, capture))


def idea_of(reply: IdeaReply, parents: tuple[int, ...] = ()) -> Idea:
    return Idea(reply.title, reply.text, tuple(reply.strategies), reply.expected, parents)
