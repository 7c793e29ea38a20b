"""Makes the Markdown tables of a sweep and inserts them between two markers in a page.

The tables show one line per set, the ten tasks individually, failures with reasons, and flagged tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from typing import Any

from bench.sweep.rows import BESIDE
from bench.sweep.tasks import SETS, TEN, in_set, number
from verifier.report import STAND_INS

BEGIN, END = "<!-- kernelbench: made by `python -m bench.sweep tables` -->", "<!-- end of kernelbench -->"
SIZES = {"stitchcuda-ten": 10, "level1": 100, "level2": 100, "level3": 50, "level3-bf16": 50}
HEAD = ["set", "rows", "passed", "geometric mean vs eager", "vs the best baseline", "faster than the best baseline", "first faster program"]
BASELINES = ["set", "torch.compile", "max-autotune", "CUDA graph", "the best of them and eager"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """A set's figures. Means are geometric, over the rows without a flag. An unsolved row counts as 1.0 and as not faster."""

    rows: int
    flagged: int
    passed: int
    eager: float | None
    best: float | None
    faster: float | None  # fraction of rows whose ratio to the best baseline is above 1
    surely: float | None  # fraction of rows whose entire interval is above 1
    least: float | None  # the lowest ratio of a solved row to the best baseline
    seconds: float | None  # median time to the first program with generated kernels that beats eager in the quick tier, over the rows that have one
    without: int  # number of rows without such a program
    at_once: int  # number of rows whose only program was measured directly in the full tier, so the time until it was faster is unknown


def standing(rows: Sequence[Row]) -> Standing:
    plain = [row for row in rows if not row["flags"]]
    solved = [row for row in plain if row["solved"]]
    first = [row for row in plain if row.get("first_faster_s") is not None]
    seen = [row["first_faster_s"] for row in first if row.get("first_tier", "quick") == "quick"]
    many = len(plain)
    return Standing(
        rows=len(rows),
        flagged=len(rows) - many,
        passed=len(solved),
        eager=geometric_mean([row["vs_eager"]["ratio"] if row["solved"] else 1.0 for row in plain]) if plain else None,
        best=geometric_mean([row["best"]["ratio"] if row["solved"] else 1.0 for row in plain]) if plain else None,
        faster=sum(row["best"]["ratio"] > 1 for row in solved) / many if plain else None,
        surely=sum(row["best"]["low"] > 1 for row in solved) / many if plain else None,
        least=min((row["best"]["ratio"] for row in solved), default=None),
        seconds=median(seen) if seen else None,
        without=many - len(first),
        at_once=len(first) - len(seen),
    )


def page(content: dict[str, Any]) -> str:
    """Returns the whole section without its heading."""
    rows = content["rows"]
    present = [name for name in SETS if any(in_set(name, key) for key in rows)]
    said = [measured_on(content), "", table(HEAD, [of_set(name, chosen(rows, name)) for name in present]), ""]
    said += [
        "All rows were measured in the full tier. Passed: correct, and of class `custom` or `mixed`. A row that did not pass counts as 1.0 in the "
        "means and as not faster. Flagged tasks (trivial, stochastic) are excluded here. In brackets: tasks whose whole 95 % interval is above 1. "
        "The last column: median seconds from the task to the first program with kernels of its own whose interval against eager is above 1, and the "
        "number of tasks that never had one. Tasks whose only program was measured in the full tier immediately (`--budget-candidates 1`) do not "
        "show how soon a first faster program is found, and are counted separately.",
        "",
        "The speedups of the baselines themselves over eager on the same tasks (geometric mean; a baseline that failed counts as 1.0):",
        "",
        table(BASELINES, [of_baselines(name, chosen(rows, name)) for name in present]),
        "",
    ]
    ten = {key: rows[key] for key in rows if in_set("stitchcuda-ten", key)}
    if ten:
        ordered = sorted(ten, key=lambda key: TEN.index(number(key.partition("/")[2])))
        said += ["The ten, one by one:", "", table(DETAIL, [detail(key, ten[key]) for key in ordered]), ""]
    said += [*acceptance(content), *not_passed(rows), *flagged(rows)]
    return "\n".join(said).rstrip() + "\n"


DETAIL = ["task", "class", "vs eager", "best baseline", "vs it", "program ms", "floor reached", "first faster, s", "programs", "on the way"]


def detail(key: str, row: Row) -> list[str]:
    if not row.get("best"):
        return [name(key), row["status"], *["-"] * 5, number_of(row.get("first_faster_s"), 0), str(row["candidates"]), "-"]
    best, floor = row["best"], row.get("floor_fraction")
    reached = f"{100 * floor:.0f} %" if floor else "-"
    return [
        name(key), row["class"], ratio(row["vs_eager"]), best["baseline"], ratio(best), number_of(row["program_ms"], 3), reached,
        number_of(row.get("first_faster_s"), 0), str(row["candidates"]), ", ".join(row["moves"]) or "the first program",
    ]  # fmt: skip


def full_table(content: dict[str, Any]) -> str:
    """Returns the contents of a separate file with all rows, sorted by their ratio to the best baseline, slowest first."""
    said = ["# KernelBench, task by task", "", measured_on(content), ""]
    for each in SETS:
        rows = chosen(content["rows"], each)
        if rows and each != "stitchcuda-ten":
            ordered = sorted(rows, key=lambda key: rows[key]["best"]["ratio"] if rows[key].get("best") else 0.0)
            said += [f"## {each}", "", table(DETAIL, [detail(key, rows[key]) for key in ordered]), ""]
    said += ["## Own kernels against their floors", "", FLOORS, "", table(REACHED, of_floors(content["rows"])), ""]
    return "\n".join(said)


REACHED = ["kernels that begin with", "groups", "median", "quartiles", "the same in bf16"]
FLOORS = (
    "How much of its floor (its bytes, or its products in the arithmetic that it uses, at the measured ceilings) a group's kernels reach, over all "
    "groups of the winning programs with a floor of 20 us or more, where three or more begin with the same operator."
)
LEAST_FLOOR_MS, LEAST_GROUPS = 0.02, 3


def of_floors(rows: dict[str, Row]) -> list[list[str]]:
    """Returns one line for each kind of kernel (by its first operator) that occurs in at least three groups, furthest from its floor first."""
    found: dict[str, dict[str, list[float]]] = {}
    for key, row in rows.items():
        for group in row["groups"] if row["solved"] else ():
            floor, realised = group.get("floor_ms") or 0.0, group.get("realised_ms")
            if group["space"] == "own kernel" and realised and floor >= LEAST_FLOOR_MS:
                kind = group["title"].partition(",")[0]
                found.setdefault(kind, {}).setdefault(key.rsplit(" ", 1)[1], []).append(floor / realised)
    lines = []
    for kind, of in found.items():
        exact = of.get("fp32-strict", [])
        if len(exact) >= LEAST_GROUPS:
            low, middle, high = (f"{100 * part:.0f}" for part in quantiles(exact, n=4, method="inclusive"))
            narrow = of.get("bf16", [])
            half = f"{100 * median(narrow):.0f} % ({len(narrow)})" if len(narrow) >= LEAST_GROUPS else "-"
            lines.append((median(exact), [kind, str(len(exact)), f"{middle} %", f"{low} to {high} %", half]))
    return [line for _, line in sorted(lines)]


def chosen(rows: dict[str, Row], each: str) -> dict[str, Row]:
    return {key: row for key, row in rows.items() if in_set(each, key)}


def of_set(each: str, rows: dict[str, Row]) -> list[str]:
    found = standing(list(rows.values()))
    plain = found.rows - found.flagged
    whole = SIZES.get(each, found.rows)
    missing = f", {whole - found.rows} not run" if whole > found.rows else ""
    apart = f" ({found.flagged} flagged apart{missing})" if found.flagged else f" ({missing[2:]})" if missing else ""
    faster = f"{100 * found.faster:.0f} % ({100 * found.surely:.0f} %)" if found.faster is not None else "-"
    least = f", least {found.least:.2f}" if found.least is not None else ""
    told = [f"{found.seconds:.0f} s"] if found.seconds is not None else []
    told += [f"{found.at_once} in tier full at once"] * bool(found.at_once)
    told += [f"{found.without} without"] * bool(found.without and told)
    return [
        each, f"{found.rows}{apart}", f"{found.passed} of {plain}", number_of(found.eager, 2), f"{number_of(found.best, 2)}{least}", faster,
        ", ".join(told) or "-",
    ]  # fmt: skip


def of_baselines(each: str, rows: dict[str, Row]) -> list[str]:
    measured = [row for row in rows.values() if row.get("baselines") and not row["flags"]]
    found = [each]
    for baseline in BESIDE:
        had = [baseline if baseline in row["baselines"] else STAND_INS.get(baseline, baseline) for row in measured]
        over = [over_eager(row, name) for row, name in zip(measured, had, strict=True) if name in row["baselines"]]
        stood_in, lost = sum(name != baseline for name in had), len(measured) - len(over)
        notes = ", ".join([f"{stood_in - lost} reduce-overhead"] * (stood_in > lost) + [f"{lost} failed"] * bool(lost))
        found.append(f"{geometric_mean([*over, *[1.0] * lost]):.2f}{f' ({notes})' if notes else ''}" if over else "-")
    found.append(f"{geometric_mean([over_eager(row, row['best']['baseline']) for row in measured]):.2f}" if measured else "-")
    return found


def over_eager(row: Row, baseline: str) -> float:
    return row["vs_eager"]["ratio"] / row["baselines"][baseline]["ratio"]


def acceptance(content: dict[str, Any]) -> list[str]:
    """Returns KernelBench's own verdicts on the rows' programs. Verdicts on earlier programs do not count."""
    programs = {key: row.get("program") for key, row in content["rows"].items()}
    verdicts = {key: verdict for key, verdict in (content.get("acceptance") or {}).items() if verdict.get("program") == programs.get(key)}
    if not verdicts:
        return []
    groups: dict[str, dict[str, Any]] = {"right": {}, "exact": {}, "twice": {}, "once": {}}
    for key, verdict in verdicts.items():
        groups[outcome(verdict)][key] = verdict
    right, exact, twice, once = groups.values()
    asked = "KernelBench's own evaluation, unmodified, was run on the programs for these ten tasks and on others drawn with a fixed seed"
    if not exact and not twice:
        return [f"{asked}: {len(right)} of {len(verdicts)} accepted.", "", *refusals(once)]
    said = (
        f"{asked}. It accepts {len(right)} of {len(verdicts)} with its default settings, and {len(right) + len(exact)} of "
        f"{len(verdicts) - len(once)} without TF32 (`NVIDIA_TF32_OVERRIDE=0`). Its tolerance is 1e-4. Its reference is PyTorch with default "
        "settings, which computes convolutions and recurrences in TF32. If these are off by more than the tolerance, a "
        "program with fp32 accuracy is refused."
    )
    found = [said, ""]
    found += [f"Accepted only without TF32: {', '.join(map(name, exact))}.", ""] if exact else []
    found += ["Refused either way:", "", *refusals(twice)] if twice else []
    found += ["Refused with default settings, not yet tried without TF32:", "", *refusals(once)] if once else []
    return found


def outcome(verdict: dict[str, Any]) -> str:
    """Returns how KernelBench judged a program: accepted unchanged (right), accepted without TF32 (exact), rejected twice, or rejected once and not
    yet retried."""
    if verdict.get("correct"):
        return "right"
    if "exact" not in verdict:
        return "once"
    return "exact" if verdict["exact"].get("correct") else "twice"


def refusals(verdicts: dict[str, Any]) -> list[str]:
    said = [f"- {name(key)}: {verdict.get('exact', verdict).get('said') or 'not correct'}{difference(verdict)}" for key, verdict in verdicts.items()]
    return [*said, ""] if said else []


def difference(verdict: dict[str, Any]) -> str:
    """Returns the largest difference as text, because KernelBench reports one number per rejected trial."""
    given = re.findall(r"[\d.]+", verdict.get("exact", verdict).get("max_difference", ""))
    return f", at most {max(map(float, given)):g} off" if given else ""


def not_passed(rows: dict[str, Row]) -> list[str]:
    lost = {key: row for key, row in rows.items() if not row["solved"] and not row["flags"]}
    if not lost:
        return []
    return ["Not passed:", "", *[f"- {name(key)}: {' '.join(row.get('why', row['status']).split())[:240]}" for key, row in lost.items()], ""]


def flagged(rows: dict[str, Row]) -> list[str]:
    apart = {key: row for key, row in rows.items() if row["flags"]}
    if not apart:
        return []
    said = [f"{name(key)} ({', '.join(row['flags'])}{', ' + ratio(row['vs_eager']) if row['solved'] else ''})" for key, row in apart.items()]
    types = [f"- {name(key)}: {row['why']}" for key, row in apart.items() if any(flag.startswith("not under ") for flag in row["flags"])]
    return [f"Flagged, and excluded from all means: {'; '.join(said)}.", "", *types, *([""] if types else [])]


def measured_on(content: dict[str, Any]) -> str:
    device = content.get("device") or {}
    figures = device.get("figures") or {}
    measured = [f"{figures[key]:,.0f} {unit}" for key, unit in (("bandwidth_gbs", "GB/s"), ("fp32_gflops", "GFLOP/s")) if figures.get(key)]
    parts = [
        device.get("device_name") or "an unknown device", *measured, f"torch {device.get('torch')}", device.get("compiler"),
        f"driver {device['driver']}" if device.get("driver") else None,
    ]  # fmt: skip
    return f"{', '.join(part for part in parts if part)}; {content.get('command', '')}; {content.get('made', '')[:10]}."


def name(key: str) -> str:
    task, precision = key.rsplit(" ", 1)
    return task if precision == "fp32-strict" else f"{task} ({precision})"


def ratio(value: Row | None) -> str:
    return f"{value['ratio']:.2f} [{value['low']:.2f}, {value['high']:.2f}]" if value else "-"


def number_of(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in [head, ["---"] * len(head), *rows])


def rewrite(path: Path, text: str) -> None:
    """Replaces the section between its markers, or appends it if the page has no markers."""
    before, mark, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2] if mark else "\n"
    path.write_text(f"{before.rstrip()}\n\n{BEGIN}\n\n{text}\n{END}{after}")
