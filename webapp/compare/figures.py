"""The rows of the figures table and the settings that differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from webapp.compare.sides import Side
from webapp.runs.pages.evidence import BASELINES
from webapp.ui import figures


@dataclass
class FigureRow:
    """A row of the table. `cells` has one entry per side. `kind` is "text", "speedup", "status" or "run", as supported by the template. `best` lists
    the sides with the best figure."""

    title: str
    kind: str
    cells: list[Any]
    best: tuple[int, ...] = ()
    help: str = ""

    @property
    def marked(self) -> list[tuple[Any, bool]]:
        return [(cell, at in self.best) for at, cell in enumerate(self.cells)]


def figure_rows(sides: list[Side]) -> list[FigureRow]:
    """Returns only the rows in which at least one value is known. Speedups are ranked if all sides share a task. Times and memory are ranked if all
    sides also share a device."""
    one_task = len({side.run.task_id for side in sides}) == 1
    same = one_task and len({device_of(side) for side in sides} - {""}) == 1
    rows: list[FigureRow] = []

    def ranked(values: list[dict[str, Any] | None]) -> tuple[int, ...]:
        return clear_best(values) if one_task else ()

    def row(title: str, of: Callable[[Side], Any], kind: str = "text", best: tuple[int, ...] = (), help: str = "") -> None:
        cells = [of(side) for side in sides]
        if any(cell not in ("", None) for cell in cells):
            rows.append(FigureRow(title, kind, cells, best, help))

    row("Run", lambda side: side.run, "run")
    row("Verdict", lambda side: side.report.status if side.report else "", "status", help="of the verification that counts")
    eager = "the program's time and its 95 % interval, measured in alternation with PyTorch eager"
    row("Against eager", lambda side: side.against("eager"), "speedup", ranked([side.against("eager") for side in sides]), eager)
    best = ranked([side.best_baseline[1] if side.best_baseline else None for side in sides])
    row("Against the best baseline", baseline_of, "baseline", best, "measured only in the full tier")
    row(
        "Time of a call",
        lambda side: figures.ms(side.program_ms) if side.program_ms else "",
        best=least([s.program_ms for s in sides]) if same else (),
    )
    row("Share of the floor", floor_of, help="the floor is the least time that the bytes and operations need on this device")
    row("Class", lambda side: (side.report.program_class, side.report.own_share) if side.report and side.report.program_class else None, "class")
    peaks = [side.report.peak_bytes if side.report else None for side in sides]
    row(
        "Peak memory",
        lambda side: figures.bytes(side.report.peak_bytes) if side.report and side.report.peak_bytes else "",
        best=least([float(peak) if peak is not None else None for peak in peaks]) if same else (),
    )
    row("Device", device_of)
    row("Tier", lambda side: side.report.tier if side.report else "")
    row("Programs tried", lambda side: f"{len(side.tried)}, {sum(map(passed, side.tried))} passed" if side.tried else "")
    row("Cost", lambda side: dollars(spent(side, "dollars")), best=least([spent(side, "dollars") for side in sides]))
    row("Tokens", lambda side: figures.grouped(int(spent(side, "tokens") or 0)) if spent(side, "tokens") is not None else "")
    row("Time on a verifier", lambda side: figures.seconds(spent(side, "verifier_seconds")) if spent(side, "verifier_seconds") else "")
    row("Time of the run", lambda side: figures.duration(side.run))
    return rows


def device_of(side: Side) -> str:
    return side.report.environment.device_name if side.report else ""


def baseline_of(side: Side) -> tuple[dict[str, Any], str] | None:
    found = side.best_baseline
    return (found[1], BASELINES.get(found[0], found[0])) if found else None


def floor_of(side: Side) -> str:
    share = side.report.floor_fraction if side.report else None
    return "" if share is None else figures.percent(share)


def spent(side: Side, what: str) -> float | None:
    return (side.run.spent or {}).get(what)


def clear_best(values: list[dict[str, Any] | None]) -> tuple[int, ...]:
    """Returns the sides whose interval is not entirely below that of another side. Marking only one side would imply that it is the best."""
    known = [(at, value) for at, value in enumerate(values) if value]
    if len(known) < 2:
        return ()
    found = tuple(at for at, value in known if all(other["low"] <= value["high"] for _, other in known))
    return found if len(found) < len(known) else ()


def least(values: list[float | None]) -> tuple[int, ...]:
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(set(known)) == 1:
        return ()
    return tuple(at for at, value in enumerate(values) if value == min(known))


def dollars(value: float | None) -> str:
    return "" if value is None else f"${value:.2f}"


def passed(candidate: Any) -> bool:
    return candidate.verification is not None and candidate.verification.status == "passed"


def differing(sides: list[Side]) -> tuple[list[tuple[str, list[str]]], int]:
    """Returns the settings whose values differ, with one text per side, and the number of settings that are equal."""
    settings = [side.settings() for side in sides]
    names = list(dict.fromkeys(name for own in settings for name in own))
    texts = {name: [text_of(own.get(name)) for own in settings] for name in names}
    off = [(name.replace("_", " ").replace(".", ": "), values) for name, values in texts.items() if len(set(values)) > 1]
    return off, len(names) - len(off)


def text_of(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
