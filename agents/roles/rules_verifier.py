"""The Verifier by fixed rules for a coder that is a model: what failed is repaired, steps come one after the other, then one method at a time."""

from __future__ import annotations

from agents.diagnosis import Diagnosis, diagnose
from agents.memory import Memory
from agents.roles import steps
from agents.roles.compiled import Compiled
from agents.roles.obeying import heed
from agents.roles.situation import Advice, Attempt, Situation
from agents.run import Engine
from agents.span import Span
from agents.stopping import families_to_leave, family
from agents.strategies import by_name, parts, strategies_of
from verifier.profiling.diagnosing.task_facts import task_facts

SPARE_CALLS = 10  # of a budget: with fewer left and nothing right yet, they belong to the coder
EXPLAINED = ("build_failed", "rejected", "crashed")  # the evidence says what is wrong


class RulesVerifier:
    name = "built-in"

    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        await heed(span, situation, "verifier")
        return by_rules(situation, attempt)

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        return by_rules(situation, attempt)


def by_rules(situation: Situation, attempt: Attempt) -> Advice:
    """Route and, for a correct program, the first method that the rules allow and that has not failed."""
    found = diagnosed(situation, attempt)
    if unmeasured(attempt) and situation.best is None:
        return Advice(found, "repair", "Nothing is known to be wrong with it: it is measured once more.")
    if not attempt.passed and not unmeasured(attempt):
        return Advice(found, "repair", "It has to be right before it can be faster: the evidence goes back to the Coder.")
    best = situation.best or attempt
    of_best = None if attempt is best else diagnosed(situation, best)
    base = "" if attempt is best else f" Candidate {attempt.number} is not better than candidate {best.number}, which stays the base."
    following = steps.following(situation)
    if following is not None:
        return Advice(found, "next-step", f"The step is right. Next: {following.get('id')}, {following.get('title')}.{base}", base=of_best)
    methods = open_methods(situation, of_best or found)
    if not methods:
        return Advice(found, "stop", f"No applicable optimization left; stopped early.{base}")
    strategy = by_name(methods[0])
    said = f"Next: {methods[0]} on candidate {best.number}. {strategy.title}; {strategy.expectation}." if strategy else f"Next: {methods[0]}."
    return Advice(found, "optimise", f"{said}{base}"[:2000], methods[0], base=of_best)


def unmeasured(attempt: Attempt) -> bool:
    """The program's results are right, but the clocks say nothing: the machine was too busy."""
    return attempt.report is not None and attempt.report.status == "inconclusive"


def diagnosed(situation: Situation, attempt: Attempt) -> Diagnosis:
    plan = situation.planned
    compiled: Compiled = plan.data
    facts = task_facts(situation.capture) if situation.capture is not None else None
    return diagnose(
        attempt.verdict, attempt.profile, compiled.ceilings, bytes_min=plan.bytes_min, flops=plan.flops, floor_ms=plan.floor_ms, facts=facts
    )


def open_methods(situation: Situation, found: Diagnosis) -> list[str]:
    """Methods that the diagnosis allows, without those that failed in this place and, at a plateau, without the families that brought nothing."""
    if found.bottleneck == "none":
        return []
    memory, left = Memory.of(situation), families_to_leave(situation)
    where, operators = str((situation.step or {}).get("id", "")), steps.operators_in(situation)
    return [
        name
        for name in found.methods
        if family(name) not in left
        and memory.failed(name, where) is None
        and name not in built_upon(situation)
        and situation.orders.refuses(name) is None
        and all(strategy.meets(operators) for strategy in strategies_of(name))
    ]


def built_upon(situation: Situation) -> set[str]:
    """Methods that the best program was made by already, in its last two changes: the same again would bring little."""
    numbers = {a.number: a for a in situation.attempts}
    attempt, names = situation.best, set[str]()
    for _ in range(2):
        if attempt is None:
            break
        names.update(parts(attempt.edit.strategy))
        attempt = numbers.get(attempt.parent) if attempt.parent is not None else None
    return names


def failures_in_a_row(situation: Situation) -> int:
    """Programs that did not pass since the last one that did."""
    count = 0
    for attempt in reversed(situation.attempts):
        if attempt.passed:
            break
        count += 1
    return count


def plain_enough(situation: Situation, attempt: Attempt) -> bool:
    """A first failure that its evidence explains by itself needs no judgement of a model."""
    return failures_in_a_row(situation) == 1 and attempt.report is not None and attempt.report.status in EXPLAINED


def scarce(run: Engine, situation: Situation) -> bool:
    """Whether so few calls are left that neither a judgement nor a new plan is worth one before a program has passed."""
    limit, spent = run.ledger.limits.calls, run.ledger.spent.calls
    return situation.best is None and limit is not None and limit - spent < SPARE_CALLS
