"""A Verifier with fixed rules, for a Coder that is a model: failures are repaired, steps are taken in sequence, and after that, methods are tried one
at a time."""

from __future__ import annotations

from agents.diagnosis import FOR_GROUPS, STRUCTURES, Diagnosis, diagnose, facts_of, on_tensor_cores, structures
from agents.memory import Memory
from agents.roles import steps
from agents.roles.compiled import Compiled
from agents.roles.evidence import held_by_others
from agents.roles.obeying import heed
from agents.roles.situation import NOT_JUDGED, Advice, Attempt, Situation
from agents.run import Engine
from agents.span import Span
from agents.stopping import families_to_leave, family
from agents.strategies import CATALOGUE, by_name, named_in, parts, strategies_of
from verifier.profiling.diagnosing.task_facts import task_facts

SPARE_CALLS = 10  # if fewer calls than this are left in the budget and no program is correct yet, the coder gets all of them
SPLIT = "split-product"
AGAIN = "The same program once more"
EXPLAINED = ("build_failed", "rejected", "crashed")  # the evidence already says what is wrong


class RulesVerifier:
    name = "built-in"

    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        await heed(span, situation, "verifier")
        return by_rules(situation, attempt)

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        return by_rules(situation, attempt)


def by_rules(situation: Situation, attempt: Attempt) -> Advice:
    """Returns the route and, for a correct program, the first method that the rules allow and that has not failed yet."""
    found = diagnosed(situation, attempt)
    if crowded_out(attempt):
        return Advice(found, "repair", "Other processes held the device's memory: it is tried again.")
    if unmeasured(attempt) and situation.best is None:
        return Advice(found, "repair", "Nothing is known to be wrong with it: it is measured again.")
    if not attempt.passed and not unmeasured(attempt):
        return Advice(found, "repair", f"{NOT_JUDGED}: the evidence goes back to the Coder.")
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
    """Returns whether the program's results are correct but its timing is meaningless because the machine was too busy."""
    return attempt.report is not None and attempt.report.status == "inconclusive"


def crowded_out(attempt: Attempt) -> bool:
    """Returns whether the program failed for the first time because other processes held most of the device's memory."""
    report = attempt.report
    if report is None or report.status != "crashed" or attempt.edit.title == AGAIN:
        return False
    return bool(held_by_others(report.message))


def diagnosed(situation: Situation, attempt: Attempt) -> Diagnosis:
    plan = situation.planned
    compiled: Compiled = plan.data
    facts = task_facts(situation.capture) if situation.capture is not None else None
    return diagnose(
        attempt.verdict, attempt.profile, compiled.ceilings, bytes_min=plan.bytes_min, flops=plan.flops, floor_ms=plan.floor_ms, facts=facts
    )


def open_methods(situation: Situation, found: Diagnosis) -> list[str]:
    """Returns the methods that the diagnosis allows, without those that failed at this point and, on a plateau, without the families that yielded no
    gain. Methods that only tune a settled structure wait until another structure has been tried, if there is one."""
    if found.bottleneck == "none":
        return []
    memory, left = Memory.of(situation), families_to_leave(situation)
    where, operators = str((situation.step or {}).get("id", "")), steps.operators_in(situation)
    found_open = [
        name
        for name in dict.fromkeys([*found.methods, *_structures(situation, found)])
        if family(name) not in left
        and memory.failed(name, where) is None
        and name not in built_upon(situation)
        and situation.orders.refuses(name) is None
        and all(strategy.meets(operators) for strategy in strategies_of(name))
    ]
    if any(tried.over != "eager" for tried in memory.tries):
        return found_open
    return [name for name in found_open if not any(strategy.finishes for strategy in strategies_of(name))] or found_open


def _structures(situation: Situation, found: Diagnosis) -> list[str]:
    """Returns the structures that may replace those of the best program, because the groups of a plan (in particular the compiler's) are not
    final."""
    best = situation.best
    if best is None:
        return []
    plan, task = situation.planned, task_facts(situation.capture) if situation.capture is not None else None
    return structures(facts_of(best.verdict, best.profile, plan.data.ceilings, found, plan.flops, task))


def built_upon(situation: Situation) -> set[str]:
    """Returns the methods used in the last two changes of the best program; repeating them would gain little."""
    numbers = {a.number: a for a in situation.attempts}
    attempt, names = situation.best, set[str]()
    for _ in range(2):
        if attempt is None:
            break
        names.update(parts(attempt.edit.strategy))
        attempt = numbers.get(attempt.parent) if attempt.parent is not None else None
    return names


def refinable(situation: Situation) -> list[str]:
    """Returns the structures that the best program has, in which a model may still change something. The rules alone never repeat them."""
    best = situation.best
    if best is None:
        return []
    applied, operators = built_upon(situation) | set(named_in(best.edit.source)), steps.operators_in(situation)
    if best.verdict.precision == "fp32-strict" and on_tensor_cores(best.profile):
        applied.add(SPLIT)  # the only way to use them
    return [
        strategy.name
        for strategy in CATALOGUE
        if strategy.name in (*STRUCTURES, *FOR_GROUPS)
        and strategy.name in applied
        and strategy.meets(operators)
        and situation.orders.refuses(strategy.name) is None
    ]


def failures_in_a_row(situation: Situation) -> int:
    """Returns the number of failed programs since the last one that passed."""
    count = 0
    for attempt in reversed(situation.attempts):
        if attempt.passed:
            break
        count += 1
    return count


def plain_enough(situation: Situation, attempt: Attempt) -> bool:
    """Returns whether this is a first failure that its evidence explains, so no model needs to judge it."""
    return failures_in_a_row(situation) == 1 and attempt.report is not None and attempt.report.status in EXPLAINED


def scarce(run: Engine, situation: Situation) -> bool:
    """Returns whether no program has passed yet and so few calls are left that none should be spent on a judgement or a new plan."""
    limit, spent = run.ledger.limits.calls, run.ledger.spent.calls
    return situation.best is None and limit is not None and limit - spent < SPARE_CALLS
