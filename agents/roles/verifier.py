"""The built-in Verifier: fixed rules for the diagnosis, compiler moves for the advice, and the catalogue as the gate between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agents.diagnosis import Diagnosis, diagnose
from agents.floor import floor_of_group
from agents.roles.compiled import Compiled
from agents.roles.obeying import heed
from agents.roles.promises import trusted
from agents.roles.situation import Advice, Attempt, Situation, required
from agents.span import Span
from agents.stopping import NEAR_FLOOR, families_to_leave, family, fraction_of_floor
from agents.strategies import Facts, by_name
from compiler import Move, moves
from compiler.planning.cost import against_floor, duration, expected_ms

SHOWN_GROUPS = 3


class BuiltInVerifier:
    name = "built-in"

    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        await heed(span, situation, "verifier")
        advice, groups = self.by_rules(situation, attempt), taken(situation, attempt)
        said = " ".join([advice.diagnosis.says(), *against_floors(situation, groups)])
        return replace(advice, diagnosis=advice.diagnosis.model_copy(update={"text": said, "spent": ""}), groups=groups)

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        found = self._diagnose(situation, attempt)
        best = situation.best
        if best is None:
            return Advice(found, "repair", "It has to be right before it can be fast.")
        if found.bottleneck == "none" and attempt is best and (fraction_of_floor(situation, attempt) or 1.0) >= NEAR_FLOOR:
            return Advice(found, "stop", "The program is at 95 % of the floor or better: no worthwhile gain is left.")
        of_best = found if attempt is best else self._diagnose(situation, best)
        open_moves, refused = self.open_moves(situation, of_best)
        if not open_moves:
            reason = "No applicable optimization left; stopped early" + (f": {'; '.join(dict.fromkeys(refused))}." if refused else ".")
            return Advice(found, "stop", reason[:2000])
        move = open_moves[0]
        base = f"candidate {best.number}" + ("" if attempt is best else f", since candidate {attempt.number} is not better")
        where = f" in {move.group}" if move.group else ""
        reason = f"Next: {move.strategy}{where} on {base}. {sentence(move.why)}"
        return Advice(found, "optimise", reason[:2000], move.strategy, move.expected_speedup, move)

    @staticmethod
    def open_moves(situation: Situation, of_best: Diagnosis) -> tuple[list[Move], list[str]]:
        """Returns the permitted moves on the best program, and the reasons why others are refused. Moves are ordered by probable gain; if gains are
        equal, those that address the program's bottleneck come first."""
        best, compiled = required(situation.best, "no program has passed"), situation.planned.data
        if best.edit.options is None:  # the run was forked, and the compiler replaced a model
            return [], [f"candidate {best.number} is not the compiler's, which can only move what it printed"]
        tried = {a.edit.options.model_dump_json() for a in situation.attempts if a.edit.options is not None}
        facts, left = facts_of(situation, best, of_best, compiled), families_to_leave(situation)
        refused: list[str] = []
        found: list[tuple[float, bool, Move]] = []
        likely = trusted(situation)
        for move in moves(compiled.plan, best.edit.options, best.report, best.profile, best.edit.source):
            if move.options.model_dump_json() in tried:
                continue
            strategy = by_name(move.strategy)
            if strategy is None:
                refused.append(f"{move.strategy} is not in the catalogue")
                continue
            why_not = strategy.refuses(facts) or situation.orders.refuses(move.strategy)
            if why_not is None and family(move.strategy) in left:
                why_not = f"{move.strategy} is of a family that has yielded nothing lately"
            if why_not:
                refused.append(why_not)
            else:
                found.append((-likely(move), of_best.bottleneck not in strategy.answers, move))
        return [move for _, _, move in sorted(found, key=lambda entry: entry[:2])], refused

    @staticmethod
    def _diagnose(situation: Situation, attempt: Attempt) -> Diagnosis:
        plan = situation.planned
        return diagnose(attempt.verdict, attempt.profile, plan.data.ceilings, bytes_min=plan.bytes_min, flops=plan.flops, floor_ms=plan.floor_ms)


def taken(situation: Situation, attempt: Attempt) -> dict[str, float]:
    """Returns the milliseconds that a passing compiler program spends in the kernels of each group."""
    if not attempt.passed or attempt.edit.options is None:
        return {}
    return against_floor(situation.planned.data.plan, attempt.edit.options, attempt.verdict, attempt.profile, attempt.edit.source)


def against_floors(situation: Situation, groups: Mapping[str, float]) -> list[str]:
    """Returns the slowest groups, each compared with its floor and its expected time."""
    compiled: Compiled = situation.planned.data
    known = {group.id: group for group in compiled.plan.groups}
    said = []
    for name in sorted(groups, key=lambda name: -groups[name])[:SHOWN_GROUPS]:
        floor, expected = floor_of_group(compiled, known[name]).ms, expected_ms(known[name], compiled.figures, compiled.plan.precision)
        over = f", {groups[name] / floor:.1f} times its floor" if floor else ""
        said.append(f"{name} took {duration(groups[name])}{over} (expected {duration(expected)}).")
    return said


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def facts_of(situation: Situation, attempt: Attempt, found: Diagnosis, compiled: Compiled) -> Facts:
    report, profile, plan = attempt.verdict, attempt.profile, situation.planned
    program_us = report.timing.program_ms * 1e3 if report.timing else None
    share = None
    if plan.bytes_min and report.timing:
        share = compiled.figures.memory_ms(plan.bytes_min) / report.timing.program_ms
    return Facts(
        device=compiled.figures.kind,
        bottleneck=found.bottleneck,
        precision=situation.settings.precision,
        program_us=program_us,
        headroom=found.headroom,
        launches=profile.launches_per_iteration if profile else None,
        device_busy=profile.device_busy if profile else None,
        host_share=found.host_share,
        bandwidth_share=share,
        own_share=report.own_share,
        capability=compiled.figures.capability,
    )
