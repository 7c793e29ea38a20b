"""Collects hardware counters for a profile by running Nsight Compute around a fresh party, or reports why there are none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from verifier.jobs import Profile, ProfileJob, Section, StageEvent
from verifier.profiling.digest import ITERATION
from verifier.profiling.nsight import ncu_import
from verifier.profiling.nsight.metrics import requested
from verifier.profiling.nsight.ncu import LOG, find_ncu
from verifier.profiling.own_kernels import is_own, own_kernel_names
from verifier.profiling.subject import Ran, Subject
from verifier.profiling.timeline import KINDS, Timeline

COUNTED_KERNELS = 8  # the longest kernels, with the program's own first
COUNTED_LAUNCHES = 24  # maximum number of counted launches, because each is replayed about forty times
SAMPLES = 2  # sufficient number of launches per kernel
COUNTING = 90.0  # time limit of the counted call in seconds, including replays
PLAIN: list[Section] = ["speed-of-light", "occupancy", "launch"]  # sections that every GPU since Volta supports
OnStage = Callable[[StageEvent], None]


def count(profile: Profile, subject: Subject, on_stage: OnStage, timeline: Timeline | None = None) -> None:
    """Adds Nsight Compute's measurements to the profile's kernels, or reports why there are none. `timeline` is the timeline of the same calls, if
    there is one."""
    if subject.pool.device.kind == "cpu":
        profile.counters_reason = "Nsight Compute counts on GPUs; this is the CPU"
        return
    ncu, why = find_ncu()
    if ncu is None:
        profile.counters_reason = why
        return
    assert isinstance(subject.job, ProfileJob)
    own = own_kernel_names(subject.job.program_source) if subject.job.program_source else frozenset()
    wanted = _wanted(profile)  # empty if a CUDA graph was recorded as a whole, in which case every kernel counts
    if not profile.kernels and not profile.launches_per_iteration:
        profile.counters_reason = "no kernel ran within the watched calls"
        return
    on_stage(StageEvent(stage="profile", status="progress", detail=f"counters of {len(wanted) or 'all'} kernels"))
    profile.counters_version = ncu.version
    metrics, launches = requested(subject.job.sections), COUNTED_LAUNCHES if timeline is None else enough_launches(timeline, wanted)
    for _ in range(3):

        def script(folder: str, wrapped: bool, metrics: list[str] = metrics, launches: int = launches) -> str:
            return ncu.script(folder, metrics, wanted, launches)

        with subject.under(script, ncu.binds(), "ncu", 1, COUNTING, load=subject.pool.limits.load * 2) as ran:
            log = ran.read(LOG)
            replayed = ncu_import.read_launches(log)
            if not profile.kernels and replayed:
                profile.kernels = ncu_import.kernels_of(replayed, partial(is_own, own=own))
                profile.warnings.append("kernels within CUDA graphs: their times are those of replayed launches")
            measured = ncu_import.attach(profile.kernels, replayed)
            if any(kernel.metrics for kernel in measured):
                profile.counters_tool, profile.kernels = "ncu", measured
                profile.counters_reason = _not_counted(profile, wanted)
                profile.warnings += ncu_import.warnings(log)
                return
            profile.counters_reason = _why_not(ran, log)
            unknown = ncu_import.unknown_metrics(log, metrics)
            if unknown:
                metrics = [name for name in metrics if name not in unknown]
                profile.warnings.append(f"this GPU or this version of Nsight Compute does not know {', '.join(unknown)[:300]}")
            elif ran.failure is not None and ran.failure.kind == "timed_out" and launches > 4:
                launches = 4
            elif ncu_import.refused_metrics(log) and len(metrics) > len(requested(PLAIN)):
                metrics = requested(PLAIN)
            else:
                break
    on_stage(StageEvent(stage="profile", status="progress", detail=f"no counters: {profile.counters_reason}"[:300]))


def enough_launches(timeline: Timeline, wanted: list[str]) -> int:
    """Returns how many of a call's launches, in order, must be counted to include each wanted kernel (in each of its shapes) `SAMPLES` times, or as
    often as it runs.

    Returns the maximum if a graph hides launches, or if the timeline does not delimit calls.
    """
    columns = timeline.columns
    ranges = columns["kind"] == KINDS.index("nvtx")
    begins = np.sort(columns["start"][ranges & np.isin(columns["name"], [i for i, text in enumerate(timeline.names) if text == ITERATION])])
    if not wanted or not len(begins) or (columns["kind"] == KINDS.index("graph")).any():
        return COUNTED_LAUNCHES
    end = begins[1] if len(begins) > 1 else np.inf
    chosen = [index for index, text in enumerate(timeline.names) if ncu_import.short(text) in wanted]
    inside = (
        (columns["start"] >= begins[0]) & (columns["start"] < end) & (columns["kind"] == KINDS.index("kernel")) & np.isin(columns["name"], chosen)
    )
    launched = np.flatnonzero(inside)
    launched = launched[np.argsort(columns["start"][launched], kind="stable")]
    seen: Counter[tuple[int, str]] = Counter()
    needed = 0
    for position, index in enumerate(launched.tolist(), start=1):
        described = int(columns["detail"][index])
        detail = timeline.details[described - 1] if described else {}  # each node of a graph has its own
        kernel = (int(columns["name"][index]), str((detail.get("grid"), detail.get("block"))))
        seen[kernel] += 1
        if seen[kernel] <= SAMPLES:
            needed = position
    return min(needed, COUNTED_LAUNCHES) or COUNTED_LAUNCHES


def _wanted(profile: Profile) -> list[str]:
    """Returns the unqualified names of the kernels to count: the longest, with the program's own first."""
    names = [ncu_import.short(kernel.name) for kernel in sorted(profile.kernels, key=lambda kernel: (not kernel.own, -kernel.total_us))]
    return list(dict.fromkeys(name for name in names if re.fullmatch(r"\w{1,200}", name)))[:COUNTED_KERNELS]


def _not_counted(profile: Profile, wanted: list[str]) -> str:
    missed = [name for name in wanted if not any(kernel.metrics and ncu_import.short(kernel.name) == name for kernel in profile.kernels)]
    return f"of {COUNTED_LAUNCHES} launches at most; none of {', '.join(missed)[:300]} was among them" if missed else ""


def _why_not(ran: Ran, log: str) -> str:
    reason = ncu_import.problem(log, ran.printed)
    if ran.failure is not None and ran.failure.kind == "timed_out":
        return f"it did not finish within {COUNTING:g} s: {reason}"
    return reason
