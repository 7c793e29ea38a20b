"""Sums over many plays. A race's table and explanation are derived from them, so a hundred thousand curves need not be kept."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.arena.race import NEAR_BEST, Play
from agents.arena.scoring import FinishedRun, Score, score


@dataclass
class Tally:
    """The sums for a single workflow. A curve is the sum of the regret after 0, 1, 2, ... calls or programs; a finished play keeps its last
    regret."""

    workflow: str
    calls: int  # length of the curves
    programs: int
    rows: list[FinishedRun] = field(default_factory=list)
    by_call: list[float] = field(default_factory=list)
    by_program: list[float] = field(default_factory=list)
    near_calls: list[int] = field(default_factory=list)  # number of calls that plays needed to get within 5 % of the best
    near_programs: list[int] = field(default_factory=list)
    final_regret: float = 0.0  # regret of the play's final program
    failed: int = 0
    repaired: int = 0
    gains: int = 0
    model_seconds: float = 0.0
    purposes: dict[str, int] = field(default_factory=dict)
    by_task: dict[str, list[float]] = field(default_factory=dict)  # final regret: sum, count

    def __post_init__(self) -> None:
        self.by_call, self.by_program = [0.0] * (self.calls + 1), [0.0] * (self.programs + 1)

    def add(self, play: Play) -> None:
        speedup = play.found if play.success else None
        self.rows.append(
            FinishedRun(
                play.landscape, play.workflow, play.seed, play.success, speedup, play.outcome, play.calls, play.tokens, play.dollars, play.programs,
                play.verifier_seconds, play.verifier_seconds + play.model_seconds,
            )
        )  # fmt: skip
        _add(self.by_call, play.regret_by_call)
        _add(self.by_program, play.regret_by_program)
        regret = max(0.0, 1 - play.found / play.best)
        self.final_regret += regret
        if play.calls_to_near_best is not None and play.programs_to_near_best is not None:
            self.near_calls.append(play.calls_to_near_best)
            self.near_programs.append(play.programs_to_near_best)
        self.failed, self.repaired, self.gains = self.failed + play.failed, self.repaired + play.repaired, self.gains + play.gains
        self.model_seconds += play.model_seconds
        for purpose, count in play.purposes.items():
            self.purposes[purpose] = self.purposes.get(purpose, 0) + count
        known = self.by_task.setdefault(play.landscape, [0.0, 0])
        known[0], known[1] = known[0] + regret, known[1] + 1

    @property
    def plays(self) -> int:
        return len(self.rows)

    def score(self) -> Score:
        return score(self.rows, self.workflow)

    def figures(self) -> dict[str, Any]:
        """Returns all figures that complement the table, as averages over plays."""
        plays, programs = self.plays, sum(row.programs for row in self.rows)
        worst = self.worst_seed()
        return {
            "plays": plays,
            "mean_regret_by_call": [round(value / plays, 4) for value in self.by_call],
            "mean_regret_by_program": [round(value / plays, 4) for value in self.by_program],
            "final_regret": round(self.final_regret / plays, 4),
            "worst_seed": worst,
            "near_best": {
                "share": round(len(self.near_calls) / plays, 4),
                "median_calls": _median_over(self.near_calls, plays),
                "median_programs": _median_over(self.near_programs, plays),
                "mean_calls_of_those": round(statistics.fmean(self.near_calls), 2) if self.near_calls else None,
            },
            "failed_programs": round(self.failed / max(programs, 1), 4),
            "repaired_of_failed": round(self.repaired / self.failed, 4) if self.failed else None,
            "gains_a_program": round(self.gains / max(programs, 1), 4),
            "gains_a_call": round(self.gains / max(sum(row.calls for row in self.rows), 1), 4) if self.purposes else None,
            "calls_by_purpose": {purpose: round(count / plays, 3) for purpose, count in sorted(self.purposes.items(), key=lambda p: -p[1])},
            "model_seconds": round(self.model_seconds / plays, 1),
            "final_regret_by_task": {task: round(total / count, 4) for task, (total, count) in sorted(self.by_task.items())},
        }

    def worst_seed(self) -> dict[str, Any]:
        """Returns the worst seed, ranked by success and then by the geometric mean over the tasks."""
        found = self.score()
        return {"seed": found.worst_seed, "geometric_mean": round(found.worst_geometric_mean, 4), "success": found.worst_success / found.worst_runs}


def tallied(plays: Iterable[Sequence[Play]], calls: int, programs: int) -> dict[str, Tally]:
    found: dict[str, Tally] = {}
    for batch in plays:
        for each in batch:
            if each.workflow not in found:
                found[each.workflow] = Tally(each.workflow, calls, programs)
            found[each.workflow].add(each)
    return found


def _add(total: list[float], curve: list[float]) -> None:
    for at in range(len(total)):
        total[at] += curve[at] if at < len(curve) else curve[-1]


def _median_over(values: list[int], plays: int) -> int | None:
    """Returns the median over all plays, counting plays that never reached the target as later than all others. Returns None if the median play never
    reached it."""
    ordered = sorted(values)
    middle = (plays - 1) // 2
    return ordered[middle] if middle < len(ordered) else None


def explanation(tallies: dict[str, Tally]) -> str:
    """Returns a paragraph that uses figures to explain why the winner wins: how it spent its calls, how often it failed, and how much a program
    gained on average."""
    found = {name: (tally, tally.figures()) for name, tally in tallies.items()}
    order = sorted(found, key=lambda name: found[name][1]["final_regret"])
    best, (tally, figures) = order[0], found[order[0]]
    said = [
        f"{best} ends {100 * figures['final_regret']:.1f} % short of the speed of the table's fastest program on average over {tally.plays:,} plays, "
        f"and gets within {100 * (1 - NEAR_BEST):.0f} % of it in {100 * figures['near_best']['share']:.0f} % of them."
    ]
    if len(order) > 1:
        second, (_, other) = order[1], found[order[1]]
        tasks = figures["final_regret_by_task"]
        wins = sum(regret < other["final_regret_by_task"].get(task, 1.0) for task, regret in tasks.items())
        said.append(f"The next, {second}, ends {100 * other['final_regret']:.1f} % short; {best} is ahead on {wins} of {len(tasks)} tasks.")
        said.append(_difference(best, figures, second, other))
    said += [_brief(name, *found[name]) for name in order]
    return " ".join(said)


def _difference(best: str, a: dict[str, Any], second: str, b: dict[str, Any]) -> str:
    """Returns the figures that differ between the two best workflows."""
    middle = len(a["mean_regret_by_program"]) // 2
    gained = f"{100 * a['gains_a_program']:.0f} % of the programs of {best} were the fastest so far, {100 * b['gains_a_program']:.0f} % of {second}'s"
    failed = f"{100 * a['failed_programs']:.0f} % against {100 * b['failed_programs']:.0f} % were not correct"
    halfway = [100 * side["mean_regret_by_program"][middle] for side in (a, b)]
    return f"{gained}; {failed}; after {middle} programs they were {halfway[0]:.1f} % and {halfway[1]:.1f} % short of the best."


def _brief(name: str, tally: Tally, figures: dict[str, Any]) -> str:
    programs = sum(row.programs for row in tally.rows) / tally.plays
    calls = sum(figures["calls_by_purpose"].values())
    if calls:
        top = ", ".join(f"{purpose} {100 * count / calls:.0f} %" for purpose, count in list(figures["calls_by_purpose"].items())[:3])
        spent = f"{calls:.1f} calls for {programs:.1f} programs ({top})"
    else:
        spent = f"no calls, {programs:.1f} programs"
    near = figures["near_best"]["share"]
    return f"{name}: {spent}, {100 * figures['failed_programs']:.0f} % not correct, within 5 % of the best in {100 * near:.0f} %."
