"""Finds the kernels that each of several programs launches per call, from one torch.profiler recording. A diagnosis uses the result."""

from __future__ import annotations

import json
import re
import tempfile
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from verifier.jobs import KernelProfile, Profile
from verifier.profiling.digest import ITERATION, digest
from verifier.profiling.kineto import import_kineto

CALLS = 2
_NAMESPACE = re.compile(r"\bprogram_\d+::")
_PASS = re.compile(r"_(kernel|pass\d+)$")  # suffix that turns a launcher's name into that of its kernels


@dataclass
class Seen:
    profile: Profile
    per_call: list[KernelProfile]  # there are `calls` calls per program


def seen(models: list[torch.nn.Module], inputs: list[Any], launchers: list[frozenset[str]]) -> list[Seen | None]:
    """Returns one entry per program, or None for a program that does not appear in the recording. Each program is given with the names of its
    launchers. Every call ends with a sync, so everything that ran within a call's range belongs to that call."""
    if not models:
        return []
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(2):  # the first call under a profiler is slow
            models[0](*inputs)
            torch.cuda.synchronize()
        for number, model in enumerate(models):
            with record_function(f"program:{number}"):
                for _ in range(CALLS):
                    with record_function(ITERATION):
                        model(*inputs)
                        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        document = json.loads(path.read_text())
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    ranges = {
        int(event["name"].partition(":")[2]): (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("program:")
    }
    mine = sorted_out(events, ranges)
    properties = document.get("deviceProperties", [])
    return [_of(properties, mine[number], launchers[number]) if number in ranges else None for number in range(len(models))]


def sorted_out(events: list[dict], ranges: dict[int, tuple[float, float]]) -> dict[int, list[dict]]:
    """Groups events by program according to the time at which they began. Kernels are given the names that they have in their own program."""
    order = sorted(ranges, key=ranges.__getitem__)
    begins = [ranges[number][0] for number in order]
    found: dict[int, list[dict]] = {number: [] for number in ranges}
    for event in events:
        at = bisect_right(begins, float(event["ts"])) - 1
        if at < 0 or float(event["ts"]) > ranges[order[at]][1] or str(event["name"]).startswith("program:"):
            continue
        known = {**event, "name": _NAMESPACE.sub("", str(event["name"]))} if event.get("cat") == "kernel" else event
        found[order[at]].append(known)
    return found


def _of(properties: list, events: list[dict], launchers: frozenset[str]) -> Seen | None:
    timeline = import_kineto(json.dumps({"traceEvents": events, "deviceProperties": properties}))
    found = digest(timeline, lambda name: _PASS.sub("", name.partition("(")[0]) in launchers, True)
    if not found.kernels:
        return None
    whole = Profile(
        task="", program=None, tool="cupti", iterations=found.iterations, wall_us_per_iteration=found.wall_us_per_iteration,
        device_busy=found.device_busy, launches_per_iteration=found.launches_per_iteration, gap_us_p50=found.gap_us_p50, kernels=found.kernels,
    )  # fmt: skip
    per_call = [kernel.model_copy(update={"calls": max(1, round(kernel.calls / found.iterations))}) for kernel in found.kernels]
    return Seen(whole, per_call)
