"""Describes measurements in words: how a program compares with eager, its parent and the floor; where its time goes; its kernels; and what failed to
improve it."""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.floor import elements_text, floor_of_step, floor_of_task, size, steps_text
from agents.roles.compiled import Compiled
from agents.roles.edits import folded
from agents.roles.host_cost import host_text
from agents.roles.kernel_floors import KernelFloor, bounds_text, kernel_floors, products_text, tensor_shares
from agents.roles.names import short_name
from agents.roles.of_kernels import MEMORY_STALL, NAMED_KERNELS
from agents.roles.prompts import fenced
from agents.roles.situation import Attempt, Situation
from agents.stopping import floor_ms
from compiler.planning.cost import duration
from verifier.jobs import Profile
from verifier.profiling.diagnosing.call_time import COPIES, call_time
from verifier.profiling.diagnosing.diagnosis import FLOOR_BEATEN
from verifier.profiling.diagnosing.task_facts import TaskFacts, task_facts
from verifier.report import ObservedKernel, Report

TIMED_KERNELS = 16  # number of kernels whose times are shown
SHOWN_LOSSES = 4  # maximum number of unsuccessful attempts that are shown
LOST_LINES = 120  # number of diff lines shown between the best program and the last one that was not better
WORTH_A_FLOOR = 0.02  # minimum share of the device's time at which a kernel's floor is shown
TOGETHER, WORTH_A_SUM = 2, 0.05  # minimum number of an operator's kernels, and minimum share of the device's time, at which their sum is shown
BEYOND = 1.5  # the traffic of the plan's groups is mentioned if it is at least this multiple of the task's own traffic
UNRELATED = 1.0  # a bound from here on allows outputs as large as their difference to the reference, so it is explained
MANY_STEPS = 4  # dependent steps of a launch from which on its stalls tell what their exchanges cost
AT_BOUND = 0.9  # minimum share of its bound at which an error is explained


def verdict_text(report: Report) -> str:
    if report.speedup is not None:
        return f"{report.speedup.ratio:.2f}x over eager [{report.speedup.low:.2f}, {report.speedup.high:.2f}]"
    return f"{report.status.replace('_', ' ')}: {report.message}"


def eager_text(situation: Situation) -> str:
    """Returns the time of eager PyTorch, with its noise, which is the basis of all comparisons here, or "" if it is unknown."""
    found = [c for a in situation.attempts if a.passed and (c := a.verdict.against("eager")) is not None]
    if not found:
        known = situation.admission.eager_ms if situation.admission is not None else None
        if known:
            return f"Eager PyTorch takes about {duration(known)} a call (a few calls at admission, the host's work included: an estimate)."
        return _profiled_eager(situation.reference)
    times = [c.baseline_ms for c in found]
    said = f"Eager PyTorch takes {duration(statistics.median(times))} a call"
    if len(times) > 1:
        said += f" (median over {len(times)} measurements, from {duration(min(times))} to {duration(max(times))}"
    else:
        blocks = [statistics.median(block) for block in found[0].baseline_samples_ms if block]
        spread = f", blocks from {duration(min(blocks))} to {duration(max(blocks))}" if len(blocks) > 1 else ""
        said += f" (one measurement{spread}"
    return f"{said}; each ratio is to eager in the same measurement)."


def eager_ms(situation: Situation) -> float | None:
    """Returns the time of eager PyTorch that `eager_text` gives, in milliseconds, or None if it was not timed."""
    found = [c.baseline_ms for a in situation.attempts if a.passed and (c := a.verdict.against("eager")) is not None]
    if found:
        return statistics.median(found)
    return situation.admission.eager_ms if situation.admission is not None else None


def _profiled_eager(reference: Profile | None) -> str:
    """Returns the bounds that a profile sets on the time of eager PyTorch, which was not timed, or "" if there is no profile."""
    if reference is None:
        return ""
    spent, slowed = call_time(None, reference), duration(reference.wall_us_per_iteration / 1e3)
    if spent is None:
        return f"Eager PyTorch has not been timed yet. Under a profiler, which slows the host, a call takes {slowed}."
    least = duration(spent.device_us / 1e3)
    return (
        f"Eager PyTorch has not been timed yet: a call takes between {least} (the device's work) and {slowed} "
        "(under a profiler, which slows the host)."
    )


def measured_text(attempt: Attempt, situation: Situation) -> str:
    """Returns a passing program's speedup, where its time goes, how close its error is to the error bound, and its kernels."""
    report = attempt.report
    if report is None or report.speedup is None or report.timing is None:
        return verdict_text(report) if report else "not measured"
    lines = [
        f"Candidate {attempt.number}: {verdict_text(report)}, {duration(report.timing.program_ms)} a call, cold caches, the host's work included."
    ]
    if attempt.gain is not None and attempt.base is not None:
        gain = attempt.gain
        lines.append(f"Timed in alternation with its parent, candidate {attempt.base.number}: {gain.ratio:.3f}x [{gain.low:.3f}, {gain.high:.3f}].")
    spent = call_time(report, attempt.profile)
    times = " ".join(filter(None, (time_text(report, attempt.profile), host_text(report, spent))))
    lines += [text for text in (over_floor(attempt, situation), times, error_text(report)) if text]
    if report.program_class:
        share = f", {100 * report.own_share:.0f} % of its device time in own kernels" if report.own_share is not None else ""
        lines.append(f"Program class: {report.program_class}{share}.")
    floors = kernel_floors(attempt, situation)
    products = filter(None, [bounds_text(attempt, floors), products_text(attempt, situation, floors)])
    return "\n".join([*lines, *kernel_times(report, attempt.profile, floors), *products, *_other_recording(report, attempt.profile)])


def _other_recording(report: Report, profile: Profile | None) -> Iterator[str]:
    """Yields the reason why the sum of the kernels' times differs from the device time above, if the difference is noticeable."""
    spent, total_us = call_time(report, profile), 1e3 * sum(kernel.ms for kernel in report.kernels)
    if spent is not None and total_us and abs(total_us / spent.device_us - 1) >= 0.01:
        yield f"These times add up to {duration(total_us / 1e3)}: they come from a different recording than the device time above."


def over_floor(attempt: Attempt, situation: Situation) -> str:
    """Returns the program's time as a multiple of the floor, for the task and, if the program implements a step, for that step."""
    plan, report = situation.plan, attempt.report
    known = floor_ms(situation, attempt)
    if not known or report is None or report.timing is None:
        return ""
    said = f"Floor of the whole task: {duration(known)}"
    if plan is not None and isinstance(plan.data, Compiled) and situation.capture is not None and plan.floor_ms:
        said = f"Floor of the whole task: {floor_of_task(plan.data, situation.capture).says()}"
    if situation.capture is not None and situation.capture.graph is not None and situation.capture.graph.left:
        said = f"{said}. That is the floor of the captured part only: what is left in Python, including its weights and products, is not counted"
    if report.timing.program_ms < FLOOR_BEATEN * known:
        return (
            f"{said}. This program is below it: data stay in a cache, or the device does more than was measured. "
            "So the floor is not informative here."
        )
    facts = task_facts(situation.capture) if situation.capture is not None else TaskFacts()
    steps = facts.dependent_steps
    figures = plan.data.figures if plan is not None and isinstance(plan.data, Compiled) else None
    spent = call_time(report, attempt.profile)
    waits = exchange_share(attempt.profile, spent.device_us / steps) if steps and spent is not None else ""
    launches = attempt.profile.launches_per_iteration if attempt.profile is not None else None
    inside = launches is not None and launches < steps / MANY_STEPS  # the steps follow each other within kernels, which wait for exchanges
    left_out = steps_text(steps, facts.exchanges, figures, facts.step_rows, inside and bool(waits))
    said = f"{said}. {left_out}{elements_text(facts.arithmetic, figures, known)}"
    said = f"{said}{_in_groups(situation)}".removesuffix(".")
    times = f"{said}. This program takes {report.timing.program_ms / known:.1f} times that floor{_over_split(situation, report.timing.program_ms)}"
    if spent is None:
        return f"{times}."
    each = f" Its device time is {spent.device_us / steps:.3g} us a dependent step{waits}." if steps else ""
    return f"{times}, its device time alone {spent.device_us / 1e3 / known:.1f} times.{each}"


def exchange_share(profile: Profile | None, step_us: float) -> str:
    """States how much of a dependent step's `step_us` microseconds the program's slowest own kernel spends waiting for an exchange of the state.
    Returns "" if the kernel's stalls were not measured."""
    own = [kernel for kernel in profile.kernels if kernel.own and kernel.stalls] if profile is not None else []
    slowest = max(own, key=lambda kernel: kernel.share, default=None)
    if slowest is None:
        return ""
    memory, barriers = slowest.stalls.get(MEMORY_STALL, 0.0), slowest.stalls.get("barrier", 0.0)
    return (
        f"; warps of {short_name(slowest.name)} wait {100 * memory:.0f} % of that for memory and {100 * barriers:.0f} % at barriers, "
        f"{(memory + barriers) * step_us:.2g} us, exchanges of the state included"
    )


def _over_split(situation: Situation, program_ms: float) -> str:
    """Returns the program's time as a multiple of the floor in which each product is computed as three fp16 products, or "" if products do not bound
    the floor."""
    compiled = situation.plan.data if situation.plan is not None else None
    if not isinstance(compiled, Compiled) or situation.capture is None:
        return ""
    floor = floor_of_task(compiled, situation.capture)
    if not floor.split_ms or floor.bound != "compute":
        return ""
    least = max(floor.split_ms, floor.memory_ms)
    by_bytes = f", {duration(least)} by its bytes" if floor.memory_ms > floor.split_ms else ""
    return f" ({program_ms / least:.1f} times the floor with three of fp16{by_bytes})"


def _in_groups(situation: Situation) -> str:
    """Returns the traffic of the plan's groups, each fused separately, if it clearly exceeds that of the whole task, and "" otherwise."""
    compiled = situation.plan.data if situation.plan is not None else None
    least = situation.capture.bytes_min if situation.capture is not None else None
    if not isinstance(compiled, Compiled) or not least:
        return ""
    moved = sum(group.bytes for group in compiled.plan.groups)
    payload = situation.plan.payload if situation.plan is not None else {}
    if 0 < len(payload.get("steps") or []) + int(payload.get("more") or 0) < len(compiled.plan.groups):
        return ""  # the plan's steps are larger than the compiler's groups
    if len(compiled.plan.groups) < 2 or moved < BEYOND * least:
        return ""
    apart = duration(compiled.figures.memory_ms(moved))
    return f" With each of the plan's {len(compiled.plan.groups)} groups fused by itself, {size(moved)} move in {apart}."


def step_floor(compiled: Compiled, step: dict[str, Any] | None) -> str:
    found = floor_of_step(compiled, step)
    return f"floor of this step, all of it fused, with what crosses its border: {found.says()}" if found is not None else ""


def time_text(report: Report | None, profile: Profile | None) -> str:
    found = call_time(report, profile)
    return found.says() if found is not None else ""


def error_text(report: Report) -> str:
    """Describes the trial that came closest to its error bound and, if it is near the bound, explains what that means."""
    known = [(t.error / t.bound, t) for t in report.trials if t.ok and t.error is not None and t.bound]
    if not known:
        return ""
    share, worst = max(known, key=lambda pair: pair[0])
    own = f", PyTorch's own {worst.eager_error:.3g}" if worst.eager_error is not None else ""
    said = f"Error: at most {worst.error:.3g} of a bound of {worst.bound:.3g} in {worst.name!r} ({100 * share:.0f} % of it{own}), as {worst.norm}."
    if worst.allowed:
        said += f" {100 * worst.decided:.3g} % of the elements were decided differently than by PyTorch, of {100 * worst.allowed:.3g} % allowed."
    said += " Rounding alone moves outputs so far in this task, which is why the bound is that wide." if (worst.bound or 0.0) >= UNRELATED else ""
    others = [portion for portion, trial in known if trial is not worst]
    if share < AT_BOUND:
        return said
    rest = f". In each of the other trials, the error is at most {100 * max(others):.0f} % of that trial's own bound" if others else ""
    missing = " Not recorded: how many were decided differently, and PyTorch's own error." if worst.eager_error is None else ""
    return (
        f"{said} Elements that a decision changed, as many as are allowed, are left out of this figure. What follows from a decision has errors of "
        f"every size, so the largest of the rest may lie at the bound{rest}.{missing}"
    )


def kernel_times(report: Report, profile: Profile | None, floors: Mapping[str, KernelFloor] | None = None) -> Iterator[str]:
    """Yields the slowest kernels with microseconds and launches per call, the share of device time, and their floors, which are keyed by short
    name."""
    if report.kernels:
        rows = [(k.name, k.own, k.calls, k.ms * 1e3, k.share) for k in report.kernels]
    elif profile is not None:
        each = max(profile.iterations, 1)
        rows = [(k.name, k.own, k.calls / each, k.total_us / each, k.share) for k in profile.kernels]
    else:
        return
    busy = tensor_shares(profile)
    one, several = ("launch", "launches") if report.environment.device.startswith("cuda") else ("run", "runs")
    together: dict[tuple[str, bool], list[tuple[float, float, float]]] = {}
    for name, own, calls, us, share in rows:
        together.setdefault((short_name(name), own), []).append((calls, us, share))
    found = sorted(together.items(), key=lambda entry: -sum(share for _, _, share in entry[1]))
    for (name, own), parts in found[:TIMED_KERNELS]:
        calls, us, share = (sum(column) for column in zip(*parts, strict=True))
        single, plural = ("fill", "fills") if "emset" in name else ("copy", "copies")
        single, plural = (single, plural) if name.startswith(COPIES) else (one, several)
        launches = f"{_count(calls)} {plural}, {us / calls:.1f} us each" if calls >= 1.5 else f"one {single}"
        launches += f" ({len(parts)} kernels of this name)" if len(parts) > 1 and not name.startswith(COPIES) else ""
        floor = (floors or {}).get(name) if own and share >= WORTH_A_FLOOR else None
        least = f"; {floor.says(us, busy.get(name))}" if floor is not None else ""
        yield f"- {name} ({'own' if own else 'library'}): {us:.1f} us a call in {launches}, {100 * share:.0f} % of the device's time{least}"
    if rest := found[TIMED_KERNELS:]:
        us, share = (sum(part[at] for _, parts in rest for part in parts) for at in (1, 2))
        mine = [name for (name, its), _ in rest if its]
        names = f" (own: {', '.join(mine[:NAMED_KERNELS])}{', ...' if len(mine) > NAMED_KERNELS else ''})" if mine else ""
        yield f"- {len(rest)} more{names}: {us:.1f} us a call, {100 * share:.0f} % of the device's time"
    if sums := "; ".join(_by_operator(report)):
        yield f"Added up by the operator that launched them: {sums}."


def _count(calls: float) -> str:
    """Formats a mean number of calls, with a decimal only if it is not a whole number."""
    return f"{calls:.0f}" if abs(calls - round(calls)) < 0.05 else f"{calls:.1f}"


def _by_operator(report: Report) -> Iterator[str]:
    """Yields, for each PyTorch operator whose several kernels take a noticeable share of the device's time, the sum over these kernels."""
    together: dict[str, list[ObservedKernel]] = {}
    for kernel in report.kernels:
        if kernel.via and not kernel.own:
            together.setdefault(kernel.via, []).append(kernel)
    for via, kernels in sorted(together.items(), key=lambda entry: -sum(kernel.share for kernel in entry[1])):
        share = sum(kernel.share for kernel in kernels)
        if len({kernel.name for kernel in kernels}) >= TOGETHER and share >= WORTH_A_SUM:
            us, calls = 1e3 * sum(kernel.ms for kernel in kernels), sum(kernel.calls for kernel in kernels)
            yield f"{via} {us:.1f} us in {_count(calls)} launches of {len(kernels)} kernels, {100 * share:.0f} % of the device's time"


def lost_text(base: Attempt, situation: Situation) -> str:
    """Describes the attempts that did not improve a program, why they failed, and what the last one changed."""
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
    said = f"{gain.ratio:.3f}x [{gain.low:.3f}, {gain.high:.3f}] of candidate {base.number}, timed in alternation"
    said += ", within the noise" if gain.low < 1 < gain.high else ""
    slower = _slower_kernels(base, attempt)
    return f"{said}; {slower}." if slower else f"{said}."


def _slower_kernels(base: Attempt, attempt: Attempt) -> str:
    """Returns the largest changes in device time. This works only on a GPU, where a kernel takes the same time in every measurement, unlike an
    operator on a CPU."""
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
