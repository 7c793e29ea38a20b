"""What was measured, in words: a program against eager, the program before it and the floor; where its time is; its kernels; what lost."""

from __future__ import annotations

import difflib
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.floor import floor_of_step, floor_of_task
from agents.roles.compiled import Compiled
from agents.roles.edits import folded
from agents.roles.prompts import fenced
from agents.roles.situation import Attempt, Situation
from agents.stopping import floor_ms
from compiler.planning.cost import duration
from verifier.jobs import KernelProfile, Profile
from verifier.profiling.diagnosing.call_time import call_time
from verifier.profiling.diagnosing.diagnosis import FLOOR_BEATEN
from verifier.profiling.nsight import counters
from verifier.profiling.own_kernels import base_name
from verifier.report import Report

TOP_KERNELS = 8
TIMED_KERNELS = 8  # whose times are shown
SHOWN_LOSSES = 4  # programs that came after the best and are not better
LOST_LINES = 120  # of the difference between the best program and the last that lost
LONGEST_NAME = 100
SHARES = {  # of a profile of hardware counters: what a person would read first, in per cent of the peak
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "memory throughput",
    counters.SM_SHARE: "arithmetic throughput",
}
ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|_GLOBAL__N_\w*::")


def short_name(name: str) -> str:
    """A kernel's name without anonymous namespaces, return type and arguments, and without the deepest of a long template's."""
    plain = ANONYMOUS.sub("", name)
    depth = 0
    for at, character in enumerate(plain):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and at and not plain.startswith("operator()", max(at - 8, 0)):
            plain = plain[:at]
            break
    plain = re.sub(r"^(?:void|static|__global__)\s+", "", plain.strip())
    while len(plain) > LONGEST_NAME and re.search(r"<[^<>]*>", plain):
        plain = re.sub(r"<[^<>]*>", "", plain)
    return plain[:LONGEST_NAME] or name[:LONGEST_NAME]


def verdict_text(report: Report) -> str:
    if report.speedup is not None:
        return f"{report.speedup.ratio:.2f}x over eager [{report.speedup.low:.2f}, {report.speedup.high:.2f}]"
    return f"{report.status.replace('_', ' ')}: {report.message}"


def eager_text(situation: Situation) -> str:
    """The one figure of eager PyTorch's time that everything here is held against, with its noise; empty where none is known."""
    found = [c for a in situation.attempts if a.passed and (c := a.verdict.against("eager")) is not None]
    if not found:
        known = situation.admission.eager_ms if situation.admission is not None else None
        return (
            f"Eager PyTorch takes about {duration(known)} a call (a few calls at admission, the host's work included: an estimate)." if known else ""
        )
    times = [c.baseline_ms for c in found]
    said = f"Eager PyTorch takes {duration(statistics.median(times))} a call"
    if len(times) > 1:
        said += f" (median over {len(times)} measurements, from {duration(min(times))} to {duration(max(times))}"
    else:
        blocks = [statistics.median(block) for block in found[0].baseline_samples_ms if block]
        spread = f", blocks from {duration(min(blocks))} to {duration(max(blocks))}" if len(blocks) > 1 else ""
        said += f" (one measurement{spread}"
    return f"{said}; each ratio is to eager in the same measurement)."


def measured_text(attempt: Attempt, situation: Situation) -> str:
    """What a program that passed brings, where its time is, how near its error is to the bound, and its kernels."""
    report = attempt.report
    if report is None or report.speedup is None or report.timing is None:
        return verdict_text(report) if report else "not measured"
    lines = [
        f"Candidate {attempt.number}: {verdict_text(report)}, {duration(report.timing.program_ms)} a call, cold caches, the host's work included."
    ]
    if attempt.gain is not None and attempt.base is not None:
        gain = attempt.gain
        lines.append(
            f"Timed in turn with candidate {attempt.base.number}, which it was made from: {gain.ratio:.3f}x [{gain.low:.3f}, {gain.high:.3f}]."
        )
    lines += [text for text in (over_floor(attempt, situation), time_text(report, attempt.profile), error_text(report)) if text]
    if report.program_class:
        share = f", {100 * report.own_share:.0f} % of its device time in own kernels" if report.own_share is not None else ""
        lines.append(f"Class: {report.program_class}{share}.")
    return "\n".join([*lines, *kernel_times(report, attempt.profile)])


def over_floor(attempt: Attempt, situation: Situation) -> str:
    """How many times the floor a program takes, for the task and, where it is one, for the step."""
    plan, report = situation.plan, attempt.report
    known = floor_ms(situation, attempt)
    if not known or report is None or report.timing is None:
        return ""
    said = f"Floor of the whole task: {duration(known)}"
    if plan is not None and isinstance(plan.data, Compiled) and situation.capture is not None and plan.floor_ms:
        said = f"Floor of the whole task: {floor_of_task(plan.data, situation.capture).says()}"
    if report.timing.program_ms < FLOOR_BEATEN * known:
        return f"{said}. This program is below it: data that stay in a cache, or a device that does more than was measured. So it says nothing here."
    times = f"{said}. This program takes {report.timing.program_ms / known:.1f} times that"
    spent = call_time(report, attempt.profile)
    return f"{times}, its device time alone {spent.device_us / 1e3 / known:.1f} times." if spent is not None else f"{times}."


def step_floor(compiled: Compiled, step: dict[str, Any] | None) -> str:
    found = floor_of_step(compiled, step)
    return f"floor of this step, all of it fused: {found.says()}" if found is not None else ""


def time_text(report: Report | None, profile: Profile | None) -> str:
    found = call_time(report, profile)
    return found.says() if found is not None else ""


def error_text(report: Report) -> str:
    """The trial that came nearest to its bound."""
    known = [(t.error / t.bound, t) for t in report.trials if t.ok and t.error is not None and t.bound]
    if not known:
        return ""
    share, worst = max(known, key=lambda pair: pair[0])
    return f"Error: at most {worst.error:.3g} of a bound of {worst.bound:.3g} in {worst.name!r} ({100 * share:.0f} % of it), as {worst.norm}."


def kernel_times(report: Report, profile: Profile | None) -> Iterator[str]:
    """The kernels that take longest: microseconds and launches of one call, and what share of the device's time that is."""
    if report.kernels:
        rows = [(k.name, k.own, k.calls, k.ms * 1e3, k.share) for k in report.kernels]
    elif profile is not None:
        each = max(profile.iterations, 1)
        rows = [(k.name, k.own, k.calls / each, k.total_us / each, k.share) for k in profile.kernels]
    else:
        return
    one, several = ("launch", "launches") if report.environment.device.startswith("cuda") else ("run", "runs")
    for name, own, calls, us, share in sorted(rows, key=lambda row: -row[4])[:TIMED_KERNELS]:
        launches = f"{calls:.0f} {several}, {us / calls:.1f} us each" if calls >= 1.5 else f"one {one}"
        yield f"- {short_name(name)} ({'own' if own else 'library'}): {us:.1f} us a call in {launches}, {100 * share:.0f} % of the device's time"


def resources_text(attempt: Attempt) -> str:
    """What compiler and hardware say of each own kernel: registers, spills, shared memory, occupancy, time, and why a warp waits. Empty where nothing
    is known."""
    profile, report = attempt.profile, attempt.report
    rows = {base_name(str(row.get("kernel", ""))).rsplit("::", 1)[-1]: row for row in report.build.resources} if report and report.build else {}
    own = [kernel for kernel in sorted(profile.kernels, key=lambda k: -k.share) if kernel.own][:TOP_KERNELS] if profile else []
    timed = bool(report is not None and report.kernels)  # then their times stand with what was measured, and are not said twice
    lines = [
        kernel_line(kernel, rows.get(base_name(kernel.name).rsplit("::", 1)[-1], {}), None if timed or profile is None else profile.iterations)
        for kernel in own
    ]
    lines = [line for line in lines if not line.endswith(": ")]
    if not lines:
        lines = [f"- {name}: {'; '.join(compiled_figures(row))}" for name, row in list(rows.items())[:TOP_KERNELS]]
    return "\n".join(lines)


def kernel_line(kernel: KernelProfile, compiled: Mapping[str, int | float | str], iterations: int | None) -> str:
    """`iterations` that were profiled; null: without its times."""
    calls = kernel.calls / max(iterations or 1, 1)
    launches = f"{calls:.0f} launch{'es' if round(calls) != 1 else ''} a call"
    times = f"{kernel.mean_us:.1f} us a launch, {launches}, {100 * kernel.share:.0f} % of the device's time"
    said = [times] if iterations is not None else []
    if kernel.grid and kernel.block:
        said.append(f"grid {'x'.join(map(str, kernel.grid))}, block {'x'.join(map(str, kernel.block))}")
    known = {**compiled, **kernel.resources}
    if kernel.registers is not None:
        known["registers"] = kernel.registers
    if kernel.shared_bytes is not None:
        known["shared_bytes"] = kernel.shared_bytes
    if kernel.occupancy is not None or kernel.occupancy_possible is not None:
        known.pop("occupancy", None)
    said += compiled_figures(known)
    if kernel.occupancy is not None or kernel.occupancy_possible is not None:
        reached = f"{100 * kernel.occupancy:.0f} %" if kernel.occupancy is not None else "not measured"
        possible = f" of {100 * kernel.occupancy_possible:.0f} % possible" if kernel.occupancy_possible is not None else ""
        said.append(f"occupancy {reached}{possible}{f', limited by {kernel.occupancy_limit}' if kernel.occupancy_limit else ''}")
    said += [f"{words} {kernel.metrics[name]:.0f} % of its peak" for name, words in SHARES.items() if name in kernel.metrics]
    waits = [f"{name.replace('_', ' ')} {100 * share:.0f} %" for name, share in list(kernel.stalls.items())[:3] if name != "selected"]
    if waits:
        said.append(f"warps wait for {', '.join(waits[:2])}")
    return f"- {short_name(kernel.name)}: {'; '.join(said)}"


def compiled_figures(row: Mapping[str, int | float | str]) -> list[str]:
    """Says what a row of `BuildInfo.resources` tells of a kernel: registers, spills, shared memory."""
    if "registers" not in row:
        return []
    spilled = [f"{row[name]} bytes {way}" for name, way in (("spill_load_bytes", "loaded"), ("spill_store_bytes", "stored")) if row.get(name)]
    said = [f"{row['registers']} registers a thread", f"spills: {' and '.join(spilled)} by a thread" if spilled else "no spills"]
    said.append(f"{row.get('shared_bytes', 0)} bytes of shared memory a block")
    if "occupancy" in row:
        said.append(f"occupancy of {100 * float(row['occupancy']):.0f} % possible, limited by {row.get('occupancy_limit', 'its registers')}")
    return said + [f"widest load {row['widest_load_bytes']} bytes"] if row.get("widest_load_bytes") else said


def lost_text(base: Attempt, situation: Situation) -> str:
    """What was tried on a program and is not better, why, and what the last of these changed in it."""
    lost = [a for a in situation.attempts if a.number > base.number and a.report is not None and a is not base]
    lines = [f"- candidate {a.number}{f' ({a.edit.strategy})' if a.edit.strategy else ''}: {why_lost(a)} It was to: {a.edit.changes}" for a in lost]
    if not lost:
        return ""
    return "\n".join(
        [*lines[-SHOWN_LOSSES:], "", f"What candidate {lost[-1].number} changed in candidate {base.number}:", "", difference(base, lost[-1])]
    )


def why_lost(attempt: Attempt) -> str:
    report = attempt.report
    assert report is not None
    if not attempt.passed:
        return f"{verdict_text(report)[:300]}."
    base, gain = attempt.base, attempt.gain
    if base is None or gain is None:
        return f"{verdict_text(report)}."
    said = f"{gain.ratio:.3f}x [{gain.low:.3f}, {gain.high:.3f}] of candidate {base.number}, timed in turn"
    said += ", within the noise" if gain.low < 1 < gain.high else ""
    slower = _slower_kernels(base, attempt)
    return f"{said}; {slower}." if slower else f"{said}."


def _slower_kernels(base: Attempt, attempt: Attempt) -> str:
    """Where the device's time went up or down most. Of a GPU, whose kernels take as long in any measurement; a CPU's operators do not."""
    if not attempt.verdict.environment.device.startswith("cuda"):
        return ""
    before, after = _by_name(base), _by_name(attempt)
    if not before or not after:
        return ""
    changes = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in dict.fromkeys([*before, *after])}
    total = sum(after.values()) - sum(before.values())
    most = sorted(changes, key=lambda name: -abs(changes[name]))[:2]
    return f"device time {total:+.1f} us ({', '.join(f'{name} {changes[name]:+.1f}' for name in most)})"


def _by_name(attempt: Attempt) -> dict[str, float]:
    found: dict[str, float] = {}
    for kernel in attempt.report.kernels if attempt.report else []:
        found[short_name(kernel.name)] = found.get(short_name(kernel.name), 0.0) + kernel.ms * 1e3
    return found


def difference(base: Attempt, other: Attempt) -> str:
    lines = difflib.unified_diff(
        folded(base.edit.source).splitlines(), folded(other.edit.source).splitlines(), f"candidate {base.number}", f"candidate {other.number}",
        lineterm="", n=2,
    )  # fmt: skip
    shown: Sequence[str] = list(lines)
    left = len(shown) - LOST_LINES
    return fenced("\n".join([*shown[:LOST_LINES], *([f"... {left} more lines"] if left > 0 else [])]), "diff")
