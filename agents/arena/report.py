"""Writes the arena's output files: `arena.json` with all data, and `arena.md` for human readers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents.arena.landscape import Table
from agents.arena.model import Quality
from agents.arena.runs import Contest
from agents.arena.scoring import HEAD, INTERVAL, FinishedRun, cells, plain, scores
from agents.arena.tally import Tally, explanation
from agents.choices.workflows import played_by_the_compiler
from agents.show import markdown

JSON, MARKDOWN = "arena.json", "arena.md"
PLAYED_HEAD = ["workflow", "regret at the end", "within 5 % of the best", "programs up to then", "calls up to then", "not correct", "gains a program"]


def write(out: Path, content: Mapping[str, Any], text: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, data in ((JSON, json.dumps(content, indent=1, allow_nan=False) + "\n"), (MARKDOWN, text)):
        scratch = out / f".{name}.new"
        scratch.write_text(data)
        scratch.replace(out / name)


def of_runs(
    contest: Contest, rows: Sequence[FinishedRun], waiting: Sequence[str], environment: Mapping[str, Any], seconds: float
) -> tuple[dict[str, Any], str]:
    """Returns the JSON content and the text for a contest on real tasks."""
    found = scores(rows) if rows else []
    total = len(contest.tasks) * len(contest.workflows) * len(contest.seeds)
    content = {
        "kind": "runs",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "contest": contest.plain(),
        "environment": dict(environment),
        "runs": total,
        "ended": len(rows),
        "waiting": list(waiting),
        "interval": INTERVAL,
        "scores": plain(found),
        "rows": [asdict(row) for row in rows],
        "seconds": round(seconds, 1),
    }
    count = f"{len(contest.tasks)} task{'s' if len(contest.tasks) != 1 else ''}"
    where = f"{environment.get('device_name') or contest.device}, {contest.precision}"
    under = f"{limits(contest)} a run"
    lines = [
        f"# Arena: {', '.join(contest.workflows)}",
        "",
        f"{count}, seeds {listed(contest.seeds)}, model `{contest.llm}`, {under}, on {where}. {len(rows)} of {total} runs have ended.",
        "",
        markdown(HEAD, cells(found)),
        "",
        "Success: a confirmed program that is correct and faster than eager. Geometric mean of the confirmed speedups against eager, 1.0 if there "
        f"is none; in brackets, its {INTERVAL}. The worst seed is the one with the lowest geometric mean. Spending is the mean per run.",
    ]
    lines += ["", "Not ended:", "", *(f"- {line}" for line in waiting)] if waiting else []
    if len(contest.tasks) > 1 and found:
        lines += ["", "## Task by task", "", by_task(rows, [s.workflow for s in found])]
    return content, "\n".join(lines) + "\n"


def of_plays(
    table: Table, file: str, tallies: dict[str, Tally], quality: Quality, budget: Mapping[str, Any], seeds: Sequence[int], seconds: float
) -> tuple[dict[str, Any], str]:
    """Returns the JSON content and the text for a race on landscapes."""
    found = sorted((tally.score() for tally in tallies.values()), key=lambda s: tallies[s.workflow].final_regret / tallies[s.workflow].plays)
    figures = {s.workflow: tallies[s.workflow].figures() for s in found}
    tasks = sorted({landscape.name for landscape in table.landscapes})
    programs = sum(landscape.measured for landscape in table.landscapes)
    said = explanation(tallies)
    content = {
        "kind": f"plays on a {table.kind} table",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "table": {"file": file, "kind": table.kind, "device": table.device, "tasks": tasks, "programs": programs},
        "quality": asdict(quality),
        "budget": dict(budget),
        "seeds": len(seeds),
        "interval": INTERVAL,
        "scores": plain(found),
        "figures": figures,
        "why": said,
        "seconds": round(seconds, 1),
    }
    warning = "" if table.kind == "measured" else "**The table is synthetic, not measured. Nothing here is a result.**\n\n"
    measured = f"{len(tasks)} tasks with {programs:,} programs, {table.kind} on {table.device.get('device_name', '?')}"
    under = ", ".join(f"{value:g} {unit}" for unit, value in budget.items() if value is not None)
    lines = [
        f"# Arena on landscapes: {', '.join(s.workflow for s in found)}",
        "",
        f"{warning}{measured}; {len(seeds):,} seeds; a simulated model of quality `{quality.name}`; budget {under} a run. "
        "The engine and the workflows are real; the model, the programs and the times are simulated from the table.",
        "",
        markdown(PLAYED_HEAD, [played_cells(name, values) for name, values in figures.items()]),
        "",
        "Regret: how far a run's final program falls short of the speed of the table's fastest program. Programs and calls up to that point: the "
        'median over all plays; "-" where most plays never get within 5 %.',
        "",
        markdown(HEAD, cells(found)),
        "",
        f"Geometric mean of the speedup over eager, according to the table; in brackets, its {INTERVAL}. Tokens, dollars and seconds are drawn "
        "from the stated distributions; wall seconds cover the model and the verifier together.",
        "",
        "## Why",
        "",
        said,
        "",
        "## Regret by number of programs",
        "",
        markdown(*regret_table(figures)),
        "",
        "## The simulated model",
        "",
        described(quality),
    ]
    return content, "\n".join(lines) + "\n"


def played_cells(workflow: str, figures: Mapping[str, Any]) -> list[str]:
    near = figures["near_best"]
    return [
        workflow,
        f"{100 * figures['final_regret']:.1f} %",
        f"{100 * near['share']:.0f} %",
        dash(near["median_programs"]),
        dash(near["median_calls"]) if figures["calls_by_purpose"] else "no calls",
        f"{100 * figures['failed_programs']:.0f} %",
        f"{figures['gains_a_program']:.2f}",
    ]


def dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def regret_table(figures: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    length = max(len(values["mean_regret_by_program"]) for values in figures.values())
    at = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48) if n < length]
    rows = [[name, *(f"{100 * values['mean_regret_by_program'][n]:.1f} %" for n in at)] for name, values in figures.items()]
    return ["workflow", *map(str, at)], rows


def by_task(rows: Sequence[FinishedRun], workflows: Sequence[str]) -> str:
    tasks = list(dict.fromkeys(row.task for row in rows))
    table = []
    for task in tasks:
        line = [task]
        for workflow in workflows:
            mine = [row for row in rows if row.task == task and row.workflow == workflow]
            values = sorted(row.value for row in mine)
            passed = sum(row.success for row in mine)
            line.append(f"{values[len(values) // 2]:.2f} ({passed}/{len(mine)})" if mine else "-")
        table.append(line)
    return markdown(["task", *workflows], table) + "\n\nThe median over seeds, and how many succeeded."


def described(quality: Quality) -> str:
    q = quality
    return (
        f"Each choice of its first program differs from the compiler's with probability {q.perturbed:g}. A change addresses the diagnosed "
        f"bottleneck with probability {q.insight:g}, and with probability {q.foresight:g} it is the better of two that were considered. "
        f"Faults are correlated: with probability {q.family_fault:g} it is mistaken about a choice, and every program that makes this choice "
        f"fails until a repair based on the report succeeds (probability {q.repair:g} each time); in addition, a program fails for its own "
        f"reasons with probability {q.program_fault:g}. A call reads a median of {q.tokens_in:g} tokens and writes a median of "
        f"{q.tokens_out:g} (lognormal, with standard deviations of the logarithm of {q.tokens_in_log:g} and {q.tokens_out_log:g}), at "
        f"{1e6 * q.dollars_in:g} and {1e6 * q.dollars_out:g} dollars per million, and takes {q.seconds_first:g} s plus one second for every "
        f"{q.tokens_a_second:g} tokens written. Where a workflow has no model ({played_by_the_compiler()}) the compiler's rules take its place, "
        "without cost or faults."
    )


def limits(contest: Contest) -> str:
    said = [f"{value:g} {unit.replace('_', ' ')}" for unit, value in contest.budget.model_dump().items() if value is not None]
    return ", ".join(said) or "no limit"


def listed(seeds: Sequence[int]) -> str:
    whole = list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))) and len(seeds) > 2
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))
