"""What is known, in the words and the length that a model can use: figures digested, never raw counters, evidence with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from agents.diagnosis import Diagnosis, Evidence
from agents.ports import Passage
from agents.roles.compiled import Compiled
from agents.roles.edits import folded
from agents.roles.planner import duration, size
from agents.roles.prompts import fenced
from agents.roles.situation import Advice, Attempt, Idea, Situation
from agents.settings import Settings
from agents.strategies import CATALOGUE, Facts, Strategy
from compiler import DeviceFigures
from verifier.jobs import KernelProfile, Profile
from verifier.profiling.diagnosing.task_facts import task_facts
from verifier.profiling.nsight import counters
from verifier.report import Report

TOP_KERNELS = 8
MOST_GROUPS = 24
SHOWN_EVIDENCE = 4  # lines of a diagnosis: more figures make worse decisions (KernelPro)
LANGUAGES = {"cuda": "CUDA C++", "triton": "Triton", "cpp": "C++ with OpenMP, on the CPU"}
SHARES = {  # of a profile of hardware counters: what a person would read first, in per cent of the peak
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "memory throughput",
    counters.SM_SHARE: "arithmetic throughput",
}
RESOURCES = ("kernel", "registers", "spill_load_bytes", "spill_store_bytes", "shared_bytes", "occupancy", "occupancy_limit", "widest_load_bytes")


def language_of(settings: Settings) -> str:
    return settings.language or ("cuda" if settings.device.startswith("cuda") else "cpp")


def task_text(situation: Situation) -> str:
    settings = situation.settings
    lines = [
        f"Name: {situation.task_name}",
        f"Target language: {language_of(settings)} ({LANGUAGES[language_of(settings)]})",
        f"Device: {'cuda' if settings.device.startswith('cuda') else 'cpu'}",
        f"Precision policy: {settings.precision}",
        f"Mode: {settings.mode}",
    ]
    admission = situation.admission
    if admission is not None:
        shapes = [f"{i.dtype}[{', '.join(map(str, i.shape))}]" if hasattr(i, "shape") else str(i) for i in admission.inputs]
        lines.append(f"Inputs: {', '.join(shapes)[:1000] or 'none'}")
        lines.append(f"Parameters: {admission.parameters or 0:,}")
        if admission.flags:
            lines.append(f"Flags: {', '.join(admission.flags)}")
    if settings.target is not None:
        lines.append(f"Target: {settings.target:g}x over eager PyTorch")
    return "\n".join(lines)


def device_text(figures: DeviceFigures) -> str:
    cpu = figures.kind == "cpu"
    capability = " of compute capability {}.{}".format(*figures.capability) if figures.capability else ""
    return "\n".join(
        [
            f"- {figures.name}, {figures.units} {'threads' if cpu else 'multiprocessors'}{capability}",
            f"- memory: {figures.bandwidth_gbs:.0f} GB/s, reads and writes together",
            f"- arithmetic: {figures.fp32_gflops:.0f} GFLOP/s in fp32",
            f"- cache shared by all: {size(figures.cache_bytes)}; {'L2 of a core' if cpu else 'shared memory of a multiprocessor'}: "
            f"{size(figures.unit_cache_bytes)}",
            f"- one {'parallel region' if cpu else 'kernel launch'}: about {figures.launch_us:g} us",
        ]
    )


def reference_text(situation: Situation) -> str:
    return fenced(situation.task_source, "python")


def profile_text(profile: Profile | None) -> str:
    """The reference's time line: where it goes, how many launches, how busy the device is."""
    if profile is None:
        return "No profile of the reference could be taken."
    tool = {"nsys": "Nsight Systems", "cupti": "CUPTI", "torch-profiler": "torch.profiler"}[profile.tool]
    lines = [f"{profile.wall_us_per_iteration:.0f} us a call, by {tool}."]
    if profile.launches_per_iteration is not None:
        lines[0] += f" {profile.launches_per_iteration:.0f} launches a call."
    if profile.device_busy is not None:
        lines[0] += f" The device works {100 * profile.device_busy:.0f} % of the time."
    if profile.gap_us_p50 is not None:
        lines[0] += f" Median gap between kernels: {profile.gap_us_p50:.1f} us."
    top = sorted(profile.kernels, key=lambda k: -k.share)
    lines += [
        f"- {100 * k.share:.0f} %: {short_name(k.name)}, {k.calls / max(profile.iterations, 1):.0f} a call, {k.mean_us:.1f} us each"
        for k in top[:TOP_KERNELS]
    ]
    if len(top) > TOP_KERNELS:
        lines.append(f"- {100 * sum(k.share for k in top[TOP_KERNELS:]):.0f} % in {len(top) - TOP_KERNELS} more")
    return "\n".join(lines)


def short_name(name: str) -> str:
    """A kernel's name without its arguments and the deepest of its template's."""
    plain = re.sub(r"\(.*$", "", name)
    while len(plain) > 100 and re.search(r"<[^<>]*>", plain):
        plain = re.sub(r"<[^<>]*>", "", plain)
    return plain[:100]


def floors_text(compiled: Compiled, situation: Situation) -> str:
    """What each group of operators costs at least, fused, and what it moves where every operator stands alone."""
    plan, capture = compiled.plan, situation.capture
    lines = []
    if plan.floor_ms and capture is not None:
        what = [f"{size(capture.bytes_min)} to move" if capture.bytes_min else "", f"{capture.flops / 1e9:.3g} GFLOP" if capture.flops else ""]
        lines.append(f"The whole task: {duration(plan.floor_ms)} at least ({', '.join(filter(None, what))}).")
    if not plan.groups:
        why = plan.reason or (capture.reason if capture else "") or "there is no graph"
        lines.append(f"No floors by operator: {why}.")
        if situation.admission is not None and situation.admission.eager_ms is not None:
            lines.append(f"Eager PyTorch takes about {situation.admission.eager_ms:.3g} ms a call.")
    for group in plan.groups[:MOST_GROUPS]:
        apart = f"; {size(group.eager_bytes)} one operator at a time" if group.eager_bytes > 1.1 * group.bytes else ""
        where = f", line {group.line}" if group.line else ""
        flops = f", {group.flops / 1e9:.3g} GFLOP" if group.flops > 1e6 else ""
        lines.append(
            f"- {group.id}{where}: {', '.join(group.kinds[:12])}: {duration(group.floor_ms)} at least ({size(group.bytes)}{flops}){apart}. "
            f"Natural space: {group.space}."
        )
    if len(plan.groups) > MOST_GROUPS:
        lines.append(f"- and {len(plan.groups) - MOST_GROUPS} more groups")
    return "\n".join(lines)


def catalogue_for(facts: Facts, language: str) -> list[Strategy]:
    """Strategies that may be planned: those of the device and language that nothing forbids. Cures wait for the fault that they undo."""
    return [s for s in CATALOGUE if not s.only_cures and getattr(s, language) and s.refuses(facts) is None]


def catalogue_text(strategies: Iterable[Strategy]) -> str:
    return "\n".join(f"- `{s.name}`: {s.title}. When: {s.applies}. Brings: {s.expectation}. Not for: {s.forbidden}." for s in strategies)


def how_to_text(strategies: Iterable[Strategy], language: str) -> str:
    return "\n".join(f"- {s.name}: {how}." for s in strategies if (how := str(getattr(s, language)).rstrip(".")))


def plan_text(payload: dict[str, Any]) -> str:
    lines = [str(payload.get("summary", ""))]
    for step in payload.get("steps") or []:
        lines.append(f"- {step.get('id')} ({step.get('space')}): {step.get('title')}")
    if payload.get("more"):
        lines.append(f"- and {payload['more']} more")
    return "\n".join(lines)


def step_text(step: dict[str, Any] | None) -> str:
    if not step:
        return ""
    names = ("id", "title", "operators", "space", "strategies", "contract", "expected", "risk", "reason")
    shown = [(name, ", ".join(map(str, step[name])) if isinstance(step.get(name), list) else str(step.get(name) or "")) for name in names]
    return "\n".join(f"{name}: {value}" for name, value in shown if value)


def program_text(source: str) -> str:
    return fenced(folded(source), "python")


def measured_text(attempt: Attempt, others: Sequence[Attempt] = ()) -> str:
    """What a program that passed brings, with the three kernels that take most of its time; then what came after it."""
    report = attempt.report
    if report is None or report.speedup is None or report.timing is None:
        return verdict_text(report) if report else "not measured"
    lines = [f"Candidate {attempt.number}: {verdict_text(report)}, {duration(report.timing.program_ms)} a call."]
    if report.floor_fraction is not None:
        lines.append(f"{100 * report.floor_fraction:.0f} % of the floor.")
    if report.program_class:
        share = f", {100 * report.own_share:.0f} % of the time in own kernels" if report.own_share is not None else ""
        lines.append(f"Class: {report.program_class}{share}.")
    for kernel in sorted(report.kernels, key=lambda k: -k.share)[:3]:
        lines.append(f"- {100 * kernel.share:.0f} % in {short_name(kernel.name)} ({'own' if kernel.own else 'library'}), {duration(kernel.ms)}")
    for other in others:
        if other.number > attempt.number and other.report is not None:
            tried = f" ({other.edit.strategy})" if other.edit.strategy else ""
            lines.append(f"Tried after it without gain: candidate {other.number}{tried}: {verdict_text(other.report)[:200]}")
    return "\n".join(lines)


def verdict_text(report: Report) -> str:
    if report.speedup is not None:
        return f"{report.speedup.ratio:.2f}x over eager [{report.speedup.low:.2f}, {report.speedup.high:.2f}]"
    return f"{report.status.replace('_', ' ')}: {report.message}"


def diagnosis_text(found: Diagnosis, advice: Advice | None = None) -> str:
    lines = [f"Class: {found.bottleneck} (known from {found.grade}). {found.text}".strip()]
    lines += [f"- {evidence_line(evidence)}" for evidence in found.evidence[:SHOWN_EVIDENCE]]
    if advice is not None and advice.reason:
        lines.append(f"Verifier: {advice.reason}")
    return "\n".join(lines)


def evidence_line(evidence: Evidence) -> str:
    value = f"{evidence.value:g}" if isinstance(evidence.value, int | float) else evidence.value
    unit = f" {evidence.unit}" if evidence.unit else ""
    return f"{evidence.figure}: {value}{unit}" + (f" ({evidence.means})" if evidence.means else "")


def resources_text(attempt: Attempt) -> str:
    """What compiler and hardware say of each own kernel: registers, spills, shared memory, occupancy, time, and why a warp waits."""
    profile, report = attempt.profile, attempt.report
    lines = [kernel_line(kernel) for kernel in sorted(profile.kernels, key=lambda k: -k.share) if kernel.own][:TOP_KERNELS] if profile else []
    if not lines and report is not None and report.build is not None:
        lines = [json.dumps({k: v for k, v in row.items() if k in RESOURCES}) for row in report.build.resources[:TOP_KERNELS]]
        lines = [f"- {line}" for line in lines]
    if not lines and report is not None:
        lines = [f"- {short_name(k.name)}: {duration(k.ms)} a call, {100 * k.share:.0f} % of the time" for k in report.kernels if k.own][:TOP_KERNELS]
    return "\n".join(lines) or "No figures of own kernels are known."


def kernel_line(kernel: KernelProfile) -> str:
    said = [f"{kernel.mean_us:.1f} us each, {100 * kernel.share:.0f} % of the time"]
    if kernel.grid and kernel.block:
        said.append(f"grid {'x'.join(map(str, kernel.grid))}, block {'x'.join(map(str, kernel.block))}")
    if kernel.registers is not None:
        said.append(f"{kernel.registers} registers a thread")
    said += [f"{name.replace('_', ' ')} {value}" for name, value in kernel.resources.items() if "spill" in name and value]
    if kernel.shared_bytes:
        said.append(f"{kernel.shared_bytes} bytes of shared memory")
    if kernel.occupancy is not None or kernel.occupancy_possible is not None:
        reached = f"{100 * kernel.occupancy:.0f} %" if kernel.occupancy is not None else "not measured"
        possible = f" of {100 * kernel.occupancy_possible:.0f} % possible" if kernel.occupancy_possible is not None else ""
        said.append(f"occupancy {reached}{possible}{f', limited by {kernel.occupancy_limit}' if kernel.occupancy_limit else ''}")
    said += [f"{words} {kernel.metrics[name]:.0f} % of its peak" for name, words in SHARES.items() if name in kernel.metrics]
    waits = [f"{name.replace('_', ' ')} {100 * share:.0f} %" for name, share in list(kernel.stalls.items())[:3] if name != "selected"]
    if waits:
        said.append(f"warps wait for {', '.join(waits[:2])}")
    return f"- {short_name(kernel.name)}: {'; '.join(said)}"


def idea_text(idea: Idea, attempt: Attempt | None = None) -> str:
    lines = [f"{idea.title}", idea.text]
    if idea.strategies:
        lines.append(f"Strategies: {', '.join(idea.strategies)}")
    if idea.expected is not None:
        lines.append(f"Expected: {idea.expected:g}x over eager")
    if attempt is not None and attempt.report is not None:
        lines.append(f"Measured: {verdict_text(attempt.report)[:300]}")
    return "\n".join(lines)


def documents_text(passages: Sequence[Passage]) -> str:
    return "\n\n".join(f"[{p.id}] {p.title}\n{p.text.strip()}" for p in passages)


def facts_of_reference(compiled: Compiled, situation: Situation) -> Facts:
    """What the reference's profile says before any program is there."""
    profile = situation.reference
    time_us = profile.wall_us_per_iteration if profile else None
    busy, launches = (profile.device_busy, profile.launches_per_iteration) if profile else (None, None)
    floor_us = compiled.plan.floor_ms * 1e3
    waiting = busy is not None and busy < 0.5
    return Facts(
        device=compiled.figures.kind,
        bottleneck="launch" if waiting else "memory",
        precision=situation.settings.precision,
        program_us=time_us,
        headroom=time_us / floor_us if time_us and floor_us else None,
        launches=launches,
        device_busy=busy,
        reductions=task_facts(situation.capture).reductions if situation.capture is not None and situation.capture.graph is not None else None,
        products=bool(situation.capture.flops) if situation.capture is not None and situation.capture.flops is not None else None,
        capability=compiled.figures.capability,
    )
