"""A Coder that uses a language model. It works on one program, step or method at a time, and it repairs programs based on the evidence.

`pair` is the split from ECE1508's poster: a frontend agent that only makes the program correct, and a mid-end agent that only tunes a correct
program, based on what the compiler and the hardware report. Both send their prompts to the same profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agents.llm.messages import Reply
from agents.memory import Memory, recall
from agents.memory.within import ancestors
from agents.roles import digest, measured, of_device, of_diagnosis, of_kernels, source_knobs, steps
from agents.roles.best_program import best_text
from agents.roles.compiled import Compiled
from agents.roles.edits import Written, author_of, read_program, signed, unsigned
from agents.roles.evidence import tried_text
from agents.roles.exchange import converse, notes_for
from agents.roles.fragments import fragments_text
from agents.roles.prompts import part
from agents.roles.replies import UnusableReply
from agents.roles.rules_verifier import AGAIN, crowded_out, unmeasured
from agents.roles.situation import Advice, Attempt, Edit, Idea, Knob, Situation
from agents.settings import Settings
from agents.span import Span
from agents.strategies import CATALOGUE, Facts, Strategy, combined, named_in, parts, strategies_of

SHOWN_REFUSALS = 3


class LlmCoder:
    def __init__(self, profile: str, *, pair: bool = False):
        self.name = self.profile = profile
        self.pair = pair

    async def write(self, span: Span, situation: Situation, parent: Attempt | None, advice: Advice | None) -> Edit | None:
        if parent is not None and (unmeasured(parent) or crowded_out(parent)):
            changes = f"nothing: candidate {parent.number} could not be measured, so it is tried again"
            return replace(parent.edit, title=AGAIN, changes=changes, says=())
        purpose, method = self._purpose(situation, parent, advice)
        values = await self._values(span, situation, parent, advice)
        chosen = strategies_of(method or "")
        planned = [s for name in (situation.step or {}).get("strategies") or [] for s in strategies_of(name)]
        helpful = unapplied(chosen or planned, parent, advice)
        values |= {
            "method": method_text(chosen, method, advice),
            "how_to": self._how_to(helpful, situation, parent, advice),
        }
        earned = await recall(span, situation) if chosen and parent is not None and parent.passed else []
        names = {strategy.name for strategy in chosen}
        values["inspirations"] = "\n".join(found.text for found in earned if not names.isdisjoint(parts(found.strategy)))
        together = "" if parent is not None and not parent.passed else combined(strategy.name for strategy in planned)
        return await self._edit(
            span, situation, purpose, values, parent, method or "", together, title=(situation.step or {}).get("title", ""), wanted=order(advice)
        )

    @staticmethod
    def _how_to(strategies: Sequence[Strategy], situation: Situation, parent: Attempt | None, advice: Advice | None) -> str:
        language, source = digest.language_of(situation.settings), parent.edit.source if parent is not None else ""
        told = digest.how_to_text(strategies, language, situation.step, order(advice))
        fitting = [s for s in strategies if not digest.contradicts(s, situation.step, order(advice))] if language == "cuda" else []
        return "\n\n".join(filter(None, (told, fragments_text(fitting, situation.planned.data.figures, source))))

    async def realise(self, span: Span, situation: Situation, idea: Idea, parent: Attempt | None) -> Edit | None:
        values = await self._values(span, situation, parent, None)
        together = combined(idea.strategies)
        how_to = digest.how_to_text(strategies_of(together), digest.language_of(situation.settings), {"contract": idea.text})
        values |= {"idea": digest.idea_text(idea), "how_to": how_to}
        return await self._edit(span, situation, "coder/realise", values, parent, together, title=idea.title, idea=idea)

    def knobs(self, situation: Situation, attempt: Attempt) -> list[Knob]:
        return source_knobs.knobs(attempt.edit.source)

    async def tune(self, span: Span, situation: Situation, attempt: Attempt, values: Mapping[str, int]) -> Edit | None:
        source = source_knobs.tuned(attempt.edit.source, values)
        if source is None or source == attempt.edit.source:
            return None
        said = ", ".join(f"{name} = {value}" for name, value in values.items())
        return Edit(
            source,
            said[:200],
            f"{said} on candidate {attempt.number}",
            (f"{said}.",),
            "block-size",
            attempt.edit.step,
            idea=attempt.edit.idea,
            author=attempt.edit.author,
        )

    def _purpose(self, situation: Situation, parent: Attempt | None, advice: Advice | None) -> tuple[str, str | None]:
        """Returns the prompt to use and the method that it calls for."""
        if parent is None:
            return ("frontend/translate" if self.pair else "coder/first"), None
        if not parent.passed:
            tuning = self.pair and any(a.passed for a in ancestors(parent, {a.number: a for a in situation.attempts}))
            return ("midend/repair" if tuning else "frontend/repair" if self.pair else "coder/repair"), parent.edit.strategy or None
        method = advice.method if advice is not None and advice.route == "optimise" else None
        if method is None and situation.step is not None:
            return "coder/step", None
        return ("midend/tune" if self.pair else "coder/optimise"), method

    @staticmethod
    def _step(situation: Situation, parent: Attempt | None) -> str:
        """Returns the current goal for the program: the plan's step, the idea that it implements, or all steps together."""
        compiled: Compiled = situation.planned.data
        if situation.step is not None:
            return digest.step_text(situation.step, compiled)
        if parent is not None and parent.edit.idea is not None:
            return digest.idea_text(parent.edit.idea)
        if parent is not None and began(parent) is not None:
            first = began(parent)
            return digest.groups_text(situation.planned.payload, compiled, parent.passed, None if first is parent or first is None else first.number)
        return "\n\n".join(digest.step_text(step, compiled) for step in situation.planned.payload.get("steps") or [])

    async def _edit(
        self,
        span: Span,
        situation: Situation,
        purpose: str,
        values: Mapping[str, str],
        parent: Attempt | None,
        strategy: str,
        planned: str = "",
        *,
        title: str,
        idea: Idea | None = None,
        wanted: str = "",
    ) -> Edit:
        """Returns the edit. `strategy` is the method that was requested. If no method was requested, the ledger credits the strategies that the reply
        names together with those that the step had `planned`."""
        before = parent.edit.source if parent is not None else None
        shown = digest.shown_program(parent, wanted) if parent is not None and parent.passed else None

        def read(reply: Reply) -> tuple[Written, str]:
            written = read_program(reply, situation.task_source, before, shown)
            text = unsigned(written.source).strip()
            same = next((a for a in situation.attempts if unsigned(a.edit.source).strip() == text), None)
            if same is not None and same.report is not None:
                raise UnusableReply(
                    f"This is candidate {same.number} again, which is known: {measured.verdict_text(same.report)[:600]}. Send another one."
                )
            return replace(written, source=signed(written.source, self.profile, reply.model)), reply.model

        written, model = await converse(span, "coder", self.profile, purpose, values, read)
        title = written.title or title or "A program"
        changes = written.changes or f"{title} ({written.form})"
        idea = idea or (parent.edit.idea if parent is not None else None)
        return Edit(
            written.source,
            title[:200],
            changes,
            (),
            strategy or combined([planned, written.strategy]),
            str((situation.step or {}).get("id", ""))[:60],
            idea=idea,
            author=author_of(self.profile, model),
        )

    async def _values(self, span: Span, situation: Situation, parent: Attempt | None, advice: Advice | None) -> dict[str, str]:
        """Returns the variables that are available to all prompts of this role."""
        compiled: Compiled = situation.planned.data
        settings = situation.settings
        passed = parent if parent is not None and parent.passed else None
        failed = parent if parent is not None and not parent.passed and parent.report is not None else None
        source = parent.edit.source if parent else ""
        return {
            "task": digest.task_text(situation),
            "device": of_device.device_text(compiled.figures),
            "reference": digest.reference_text(situation),
            "plan": digest.plan_text(situation.planned.payload, situation),
            "step": "" if failed is not None and places_told(failed, situation) else self._step(situation, parent),
            "program": digest.shown_text(digest.shown_program(passed, order(advice))) if passed else digest.program_text(source) if source else "",
            "next_step": digest.step_text(steps.following(situation), compiled),
            "measured": measured.measured_text(passed, situation) if passed else "",
            "lost": measured.lost_text(passed, situation) if passed else "",
            "strategy_names": ", ".join(names_for(settings)),
            "evidence": tried_text(failed) if failed else "",
            "best": best_text(situation) if failed else "",
            "resources": of_kernels.resources_text(parent, compiled.figures) if parent else "",
            "diagnosis": of_diagnosis.diagnosis_text(advice.base or advice.diagnosis, None if ordered(advice) else advice) if advice else "",
            "taught": Memory.of(situation).digest("coder", failed.number if failed else None) if situation.attempts else "",
            "refusals": "\n".join(f"- {reason}" for reason in situation.refusals[-SHOWN_REFUSALS:]),
            "language_rules": part(f"language_{digest.language_of(settings)}"),
            "precision_rules": part(f"precision_{settings.precision.replace('-', '_')}"),
            "notes": await notes_for(span, "coder"),
        }


def places_told(failed: Attempt, situation: Situation) -> bool:
    """Returns whether the best program is the compiler's program that a failed one was made from, whose groups the request then lists with it."""
    return situation.step is None and failed.edit.idea is None and situation.best is not None and began(failed) is situation.best


def unapplied(strategies: Sequence[Strategy], parent: Attempt | None, advice: Advice | None) -> list[Strategy]:
    """Returns the strategies whose instructions help. If an order says what to change, omits the strategies that the program's header names: the
    program shows how it applies them, and their instructions assume a program that does not."""
    applied = named_in(parent.edit.source) if parent is not None and order(advice) else ()
    return [strategy for strategy in strategies if strategy.name not in applied]


def names_for(settings: Settings) -> list[str]:
    """Returns the names that a reply may give its change: all names for the language, without those that the precision policy rules out."""
    facts = Facts("cuda" if settings.device.startswith("cuda") else "cpu", "", settings.precision)
    return [s.name for s in CATALOGUE if getattr(s, digest.language_of(settings)) and (s.veto(facts) is None)]


def began(attempt: Attempt) -> Attempt | None:
    """Returns the program itself or its nearest predecessor that the compiler wrote; the groups of that program are the plan's steps. Returns None if
    the
    compiler wrote none of them."""
    current: Attempt | None = attempt
    while current is not None and current.edit.options is None:
        current = current.base
    return current


def ordered(advice: Advice) -> bool:
    """Returns whether the Verifier agent described in words what the method should change. If so, that description is shown only together with the
    method."""
    return bool(advice.method) and isinstance(advice.move, str) and bool(advice.move)


def order(advice: Advice | None) -> str:
    """Returns the Verifier agent's description of the change; empty if there is none."""
    return advice.move if advice is not None and isinstance(advice.move, str) else ""


def method_text(chosen: Sequence[Strategy], method: str | None, advice: Advice | None) -> str:
    """Returns the text of one or more methods. If there is an order, it is included; its author has already considered what rules out a method.
    Otherwise, the expected gain of each method and the conditions that rule it out are included."""
    if not chosen:
        return method or (advice.reason if advice else "") or "Whatever the diagnosis suggests."
    if advice is not None and ordered(advice):
        return "\n".join([*(f"`{s.name}`: {s.title}." for s in chosen), f"The order: {advice.move}"])
    return "\n".join(f"`{s.name}`: {s.title}. Brings: {s.expectation}. Not for: {s.forbidden}." for s in chosen)
