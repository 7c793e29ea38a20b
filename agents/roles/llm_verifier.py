"""A Verifier that uses a language model. The model reads the deterministic diagnosis and its few figures, but never raw counters. It chooses one of
the methods that the rules allow, and a route. If its replies are unusable, the rules decide instead, so a bad diagnosis never ends a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agents.budget import OutOfBudget
from agents.diagnosis import Diagnosis
from agents.knowledge import look_up
from agents.llm.messages import Reply
from agents.memory import Memory
from agents.ports import Passage
from agents.roles import digest, measured, of_device, of_diagnosis, of_kernels, steps
from agents.roles.best_program import best_text
from agents.roles.compiled import Compiled
from agents.roles.evidence import tried_text
from agents.roles.exchange import converse, notes_for
from agents.roles.fragments import products_note
from agents.roles.prompts import part
from agents.roles.replies import DiagnosisReply, JudgementReply, UnusableReply, parse
from agents.roles.rules_verifier import by_rules, crowded_out, diagnosed, open_methods, plain_enough, refinable, scarce, unmeasured
from agents.roles.situation import Advice, Attempt, Situation, Unusable
from agents.roles.verifier import BuiltInVerifier
from agents.settings import Settings
from agents.span import Span
from agents.strategies import by_name, combined, named_in, parts
from compiler.options import Move

PASSAGES = 3
FEW_LEFT = 3  # number of programs at or below which a change is invited to combine independent gains
REASON = 10_000  # maximum number of characters of one model's explanation that are passed on to the next
MODEL_UNITS = ("calls", "tokens", "dollars")
ONWARD = {
    "repair": "Repair:",
    "next-step": "Continue with the next step.",
    "re-plan": "The plan must change.",
    "stop": "No worthwhile change is left.",
}


class LlmVerifier:
    """`always`: the model judges every failure, including those that the compiler's message explains. `moves`: the compiler plays the Coder and
    carries out its own moves, and the model chooses among them."""

    def __init__(self, profile: str, *, always: bool = False, moves: bool = False):
        self.name = self.profile = profile
        self.always, self.moves = always, moves

    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        if unmeasured(attempt) or crowded_out(attempt) or is_last(span, attempt):
            return await self._ruled(span, situation, attempt)
        if not attempt.passed:
            return await self._judge(span, situation, attempt)
        return await self._diagnose(span, situation, attempt)

    async def _judge(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        ruled = await self._ruled(span, situation, attempt)
        if self.moves or (not self.always and (plain_enough(situation, attempt) or scarce(span.run, situation))):
            return ruled
        routes = ["repair", *self._onward(situation)]
        query = f"{attempt.verdict.status.replace('_', ' ')} {attempt.verdict.message}"[:400]
        values, passages = await self._values(span, situation, attempt, query)
        values |= {
            "evidence": tried_text(attempt),
            "diagnosis": of_diagnosis.diagnosis_text(ruled.diagnosis),
            "best": best_text(situation),
            "precision_rules": part(f"precision_{situation.settings.precision.replace('-', '_')}"),
            "routes": f"{', '.join(routes)}. {left_text(span.run.settings, attempt, routes)}",
        }
        try:
            said = await converse(span, "verifier", self.profile, "verifier/judge", values, lambda r: read_judgement(r, routes, passages))
        except Unusable as refused:
            return without_model(ruled, refused.reason)
        found = ruled.diagnosis.model_copy(update={"text": f"{ruled.diagnosis.text} {said.defect}".strip()})
        reason = f"{said.why} {ONWARD[said.route]} {said.fix if said.route != 'stop' else ''}".strip()
        return Advice(found, said.route, reason[:REASON], move=said.fix, documents=used(said.documents, passages))

    async def _diagnose(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        ruled = await self._ruled(span, situation, attempt)
        best = situation.best or attempt
        of_best = ruled.diagnosis if attempt is best else diagnosed(situation, best)
        offered = self._offered(situation, of_best)
        routes = [*(["optimise"] if offered else []), *self._onward(situation)]
        if routes == ["stop"]:
            return ruled if ruled.route == "stop" else Advice(ruled.diagnosis, "stop", "No applicable optimization left; stopped early.")
        query = f"{of_best.bottleneck} {' '.join(fault.name for fault in of_best.faults)} {' '.join(titles(offered))}"
        values, passages = await self._values(span, situation, best, query)
        methods = methods_text(offered, {*named_in(best.edit.source), *refinable(situation)})
        values |= {
            "measured": measured.measured_text(best, situation),
            "resources": of_kernels.resources_text(best, situation.planned.data.figures),
            "lost": measured.lost_text(best, situation),
            "next_step": digest.step_text(steps.following(situation), situation.planned.data),
            "diagnosis": of_diagnosis.diagnosis_text(of_best),
            "methods": "\n\n".join(filter(None, (methods, products_note(offered, situation.planned.data.figures)))),
            "precision_rules": part(f"precision_{situation.settings.precision.replace('-', '_')}"),
            "routes": f"{', '.join(routes)}. {left_text(span.run.settings, attempt, routes)}",
        }
        try:
            said = await converse(span, "verifier", self.profile, "verifier/diagnose", values, lambda r: read_diagnosis(r, routes, offered, passages))
        except Unusable as refused:
            return without_model(ruled, refused.reason)
        except OutOfBudget as error:
            if not self.moves or error.unit not in MODEL_UNITS:
                raise
            return without_model(ruled, str(error))  # the compiler can continue without any model
        told = of_best.model_copy(update={"text": f"{of_best.text} {said.bottleneck}".strip()})
        found, base = (told, None) if attempt is best else (ruled.diagnosis, told)
        method = (combined([said.method]) if said.method else None) if said.route == "optimise" else None
        onto = f"Next: {method} on candidate {best.number}." if method else ONWARD[said.route]
        reason = f"{onto} {said.change or said.bottleneck}"[:REASON]
        move: Move | str = said.change
        if self.moves and method:
            move = next(m for m in BuiltInVerifier.open_moves(situation, of_best)[0] if m.strategy in parts(method))
        return Advice(found, said.route, reason, method, said.expected if method else None, move, used(said.documents, passages), base)

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        return by_rules(situation, attempt)

    async def _ruled(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        return await BuiltInVerifier().advise(span, situation, attempt) if self.moves else by_rules(situation, attempt)

    def _offered(self, situation: Situation, found: Diagnosis) -> list[str]:
        if not self.moves:
            return [*(offered := open_methods(situation, found)), *(name for name in refinable(situation) if offered and name not in offered)]
        return [] if found.bottleneck == "none" else list(dict.fromkeys(move.strategy for move in BuiltInVerifier.open_moves(situation, found)[0]))

    @staticmethod
    def _onward(situation: Situation) -> list[str]:
        """Returns the routes, other than repair and optimise, that are currently possible."""
        onward = ["next-step"] if steps.following(situation) is not None else []
        return [*onward, *(["re-plan"] if situation.replans_left > 0 else []), "stop"]

    async def _values(self, span: Span, situation: Situation, attempt: Attempt, query: str) -> tuple[dict[str, str], list[Passage]]:
        compiled: Compiled = situation.planned.data
        passages = await look_up(span, query, PASSAGES)
        values = {
            "task": digest.task_text(situation),
            "device": of_device.device_text(compiled.figures),
            "reference": digest.reference_text(situation),
            "plan": "\n\n".join(filter(None, (digest.plan_text(situation.planned.payload, situation), digest.untouched_text(attempt)))),
            "step": digest.step_text(situation.step, compiled),
            "program": digest.shown_text(digest.shown_program(attempt), edits=False) if attempt.passed else digest.program_text(attempt.edit.source),
            "taught": Memory.of(situation).digest("verifier", None if attempt.passed else attempt.number),
            "documents": digest.documents_text(passages),
            "notes": await notes_for(span, "verifier"),
        }
        return values, passages


def is_last(span: Span, attempt: Attempt) -> bool:
    """Returns whether no further program can follow this one, in which case no advice is requested. Uses the run's initial budget, so a resumed run
    makes the same calls even if the budget was raised."""
    return attempt.number == span.run.settings.budget.candidates


def left_text(settings: Settings, attempt: Attempt, routes: Sequence[str]) -> str:
    """States how many programs can still be written, and which options remain after a failed one. Uses the run's initial budget, like `is_last`."""
    limit = settings.budget.candidates
    left = max(limit - attempt.number, 0) if limit is not None else 0
    count = f"{left} more program{'s' if left != 1 else ''}"
    said = "The number of programs is not limited." if limit is None else f"At most {count} can be tried, repairs included."
    said += " A program that fails comes back for `repair` a few times at most; after that, the best program stays the base."
    if limit is not None and left <= FEW_LEFT and "optimise" in routes:
        said += " So few are left that one change may combine gains that do not depend on each other: join their methods with ` + `."
    later = [f"`{route}`" for route in ("next-step", "re-plan") if route in routes]
    stay = f" {' and '.join(later)} stay{'s' if len(later) == 1 else ''} open as long as the run continues, also after a change that failed."
    return f"{said}{stay if later else ''}"


def read_diagnosis(reply: Reply, routes: Sequence[str], offered: Sequence[str], passages: Sequence[Passage]) -> DiagnosisReply:
    said = parse(reply, DiagnosisReply)
    problems = open_route(said.route, routes) + known_documents(said.documents, passages)
    if said.route == "optimise" and not (parts(said.method or "") and set(parts(said.method or "")) <= set(offered)):
        what = "is missing" if said.method is None else f"is {said.method!r}, which is not allowed now"
        problems.append(f"- method: it {what}. Allowed: {', '.join(offered)}.")
    if problems:
        raise UnusableReply("\n".join(problems))
    return said


def read_judgement(reply: Reply, routes: Sequence[str], passages: Sequence[Passage]) -> JudgementReply:
    said = parse(reply, JudgementReply)
    problems = open_route(said.route, routes) + known_documents(said.documents, passages)
    if problems:
        raise UnusableReply("\n".join(problems))
    return said


def open_route(route: str, routes: Sequence[str]) -> list[str]:
    return [] if route in routes else [f"- route: {route!r} is not open now. Open: {', '.join(routes)}."]


def known_documents(ids: Sequence[str], passages: Sequence[Passage]) -> list[str]:
    unknown = [i for i in ids if i not in {p.id for p in passages}]
    there = ", ".join(p.id for p in passages) or "none was given"
    return [f"- documents: {', '.join(unknown)} is not among the passages ({there})."] if unknown else []


def used(ids: Sequence[str], passages: Sequence[Passage]) -> tuple[Passage, ...]:
    return tuple(p for p in passages if p.id in ids)


def without_model(ruled: Advice, why: str) -> Advice:
    said = f"{ruled.reason} (By the rules, without the model's diagnosis: {why})"
    return Advice(ruled.diagnosis, ruled.route, said[:2000], ruled.method, ruled.expected, ruled.move, base=ruled.base)


def titles(names: Sequence[str]) -> list[str]:
    return [strategy.title for name in names if (strategy := by_name(name)) is not None]


def methods_text(names: Sequence[str], applied: Collection[str] = ()) -> str:
    """Returns the methods with their benefits. Methods that the program names as `applied` come last and are marked."""
    known = [strategy for name in names if (strategy := by_name(name)) is not None]
    new, old = ([strategy for strategy in known if (strategy.name in applied) is there] for there in (False, True))
    heading = "The program applies these already; a change within one of them goes by its name:"
    lines = [digest.catalogue_text(new), f"{heading}\n{digest.catalogue_text(old)}" if old else ""]
    return "\n".join(filter(None, lines)) or "None: the method is null."
