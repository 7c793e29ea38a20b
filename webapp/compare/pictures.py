"""Data for the charts of the comparison page."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from webapp.compare.sides import Side
from webapp.runs.models import Candidate


def intervals(sides: list[Side]) -> list[dict[str, Any]]:
    """Returns speedups with their intervals, with one entry for each side that has a speedup."""
    found = []
    for side in sides:
        best = side.best_baseline
        if eager := side.against("eager"):
            found.append({"letter": side.letter, "name": side.name, "href": side.href, "eager": eager, "best": best[1] if best else None})
    return found


def roofline(sides: list[Side]) -> dict[str, Any]:
    """Returns a roofline plot: operations per second against operations per byte, with the ceilings of all the devices involved. Operations and bytes
    are those of the task, counted once, so a program that moves more data is plotted lower rather than further left."""
    points, roofs = [], {}
    for side in sides:
        floor, ms = side.profile.roofline if side.profile else None, side.program_ms
        if floor is None or not floor.bytes or not floor.flops or not ms:
            continue
        device = side.report.environment.device_name if side.report else ""
        if floor.memory_ms and floor.compute_ms:
            roofs[device] = {"gbs": floor.bytes / floor.memory_ms / 1e6, "gflops": floor.flops / floor.compute_ms / 1e6, "from": floor.ceilings}
        place = {"intensity": floor.flops / floor.bytes, "gflops": floor.flops / ms / 1e6}
        points.append({"letter": side.letter, "name": side.name, "href": side.href, "device": device, **place})
    return {"points": points, "roofs": [{"device": name, **roof} for name, roof in roofs.items()]}


def attempts(sides: list[Side]) -> list[dict[str, Any]]:
    """Lists all the programs of each run on these sides that tried more than one, in order. Each run is listed only once. `speedup` is null for a
    program that did not pass; the verdict explains why."""
    found: dict[Any, dict[str, Any]] = {}
    for side in sides:
        if side.run.pk in found or len(side.tried) < 2:
            continue
        found[side.run.pk] = {"letter": side.letter, "name": side.run.title, "points": [_attempt(side, one) for one in side.tried]}
    return list(found.values())


def _attempt(side: Side, one: Candidate) -> dict[str, Any]:
    v = one.verification
    measured = v if v is not None and v.status == "passed" and v.speedup is not None else None
    return {
        "number": one.number,
        "status": (v.status or v.state) if v else "not verified",
        "speedup": (m := measured) and {"ratio": m.speedup, "low": m.speedup_low or m.speedup, "high": m.speedup_high or m.speedup},
        "href": reverse("runs:candidate", args=[side.run.pk, one.number]),
    }
