"""What is known, in the words and the length that a model can use: figures digested, never raw counters, evidence with its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from agents.diagnosis import Diagnosis, Evidence
from agents.floor import UNITS, fastest, floor_of_group, floor_of_task, size
from agents.ports import Passage
from agents.roles.compiled import Compiled
from agents.roles.edits import folded
from agents.roles.measured import TOP_KERNELS, eager_text, short_name, step_floor, time_text, verdict_text
from agents.roles.prompts import fenced
from agents.roles.situation import Advice, Attempt, Idea, Situation
from agents.settings import Settings
from agents.strategies import CATALOGUE, Facts, Strategy
from compiler import DeviceFigures
from verifier.build.raw import CUDA_FLAGS
from verifier.jobs import Profile
from verifier.profiling.diagnosing.call_time import call_time
from verifier.profiling.diagnosing.task_facts import task_facts
from verifier.task import TensorSpec

MOST_GROUPS = 24
MEASURED = ("time a call", "time over floor", "share of ")  # what stands beside a diagnosis already: said once, from one measurement
SHOWN_EVIDENCE = 4  # lines of a diagnosis: more figures make worse decisions (KernelPro)
LANGUAGES = {"cuda": "CUDA C++", "triton": "Triton", "cpp": "C++ with OpenMP, on the CPU"}
MODES = {
    "train": "train: the model as its constructor leaves it, in training mode; batch norm takes the batch's statistics, dropout drops",
    "eval": "eval: `model.eval()` was called; batch norm takes the running statistics, dropout drops nothing",
}
# Why a step's contract leaves a strategy out: words of the contract, and those whose how-to says the opposite.
CONTRADICTED: tuple[tuple[str, frozenset[str]], ...] = (
    (r"\b(?:no|without|never)\b[^.;]*\b(?:cuda )?graphs?\b", frozenset({"cuda-graph"})),
    (r"\b(?:no|without|never)\b[^.;]*\batomics?\b|\bbit(?:wise|[ -]by[ -]bit| for bit)|\bdeterministic", frozenset({"split-k", "privatise-atomics"})),
    (r"\bone kernel\b|\bsingle kernel\b|\bone launch\b|\bsingle launch\b", frozenset({"kernel-fission", "leave-to-library", "fuse-matmul-tail"})),
    (r"\bchannels[ -]first\b|\bNCHW\b|\bcontiguous\b", frozenset({"channels-last"})),
    (r"\b(?:no|without|never)\b[^.;]*\btensor cores?\b|\bfp32 units\b", frozenset({"split-product", "half-product", "reduced-precision"})),
    (r"\b(?:no|without|never)\b[^.;]*\b(?:workspace|scratch)\b", frozenset({"split-k", "parallel-split", "reuse-workspace"})),
    (r"\b(?:no|without|never)\b[^.;]*\bcooperative\b", frozenset({"cooperative-kernel", "persistent-recurrence"})),
)
OF_SPACES = {  # strategies whose how-to is of another space than the step's
    "own kernel": frozenset({"leave-to-library", "library-variant", "channels-last"}),
    "library": frozenset(
        {"register-blocking", "tile-reuse", "split-product", "half-product", "swizzle-blocks", "warp-roles", "tma-copies", "own-matvec"}
    ),
}


def language_of(settings: Settings) -> str:
    return settings.language or ("cuda" if settings.device.startswith("cuda") else "cpp")


def task_text(situation: Situation) -> str:
    settings = situation.settings
    lines = [
        f"Name: {situation.task_name}",
        f"Target language: {language_of(settings)} ({LANGUAGES[language_of(settings)]})",
        f"Device: {'cuda' if settings.device.startswith('cuda') else 'cpu'}",
        f"Precision policy: {settings.precision}",
        f"Mode: {MODES.get(settings.mode, settings.mode)}. Only forward is called, checked and timed; no gradients are asked for.",
    ]
    admission = situation.admission
    if admission is not None:
        shapes = [f"{i.dtype}[{', '.join(map(str, i.shape))}]" if isinstance(i, TensorSpec) else str(i) for i in admission.inputs]
        lines.append(f"Inputs: {', '.join(shapes)[:1000] or 'none'}")
        lines.append(f"Parameters: {admission.parameters or 0:,}")
        if admission.flags:
            lines.append(f"Flags: {', '.join(admission.flags)}")
    if settings.target is not None:
        lines.append(f"Target: {settings.target:g}x over eager PyTorch")
    if eager := eager_text(situation):
        lines.append(eager)
    return "\n".join(lines)


def device_text(figures: DeviceFigures) -> str:
    cpu = figures.kind == "cpu"
    capability = " of compute capability {}.{}".format(*figures.capability) if figures.capability else ""
    return "\n".join(
        [
            f"- {figures.name}, {figures.units} {'threads' if cpu else 'multiprocessors'}{capability}",
            f"- memory: {figures.bandwidth_gbs:.0f} GB/s, reads and writes together",
            f"- arithmetic: {figures.fp32_gflops:.0f} GFLOP/s on fp32 units{tensor_cores(figures)}",
            f"- cache shared by all: {size(figures.cache_bytes)}; {'L2 of a core' if cpu else 'shared memory of a multiprocessor'}: "
            f"{size(figures.unit_cache_bytes)}",
            f"- one {'parallel region' if cpu else 'kernel launch'}: about {figures.launch_us:g} us",
            *([] if cpu else [f"- device code is built by nvcc {' '.join(CUDA_FLAGS[:2])} -arch={arch_text(figures)}"]),
        ]
    )


def tensor_cores(figures: DeviceFigures) -> str:
    """Rates of products on tensor cores; empty where the device has none, or they are not known."""
    said = []
    if figures.tf32_gflops > figures.fp32_gflops:
        said.append(f"TF32 {figures.tf32_gflops:.0f} GFLOP/s, and so {figures.gflops('3xtf32'):.0f} where an fp32 product is three of TF32")
    if figures.half_gflops > figures.fp32_gflops:
        said.append(f"bf16 and fp16 {figures.half_gflops:.0f} GFLOP/s")
    return f"; products on tensor cores: {'; '.join(said)} (dense, as a large product reaches them)" if said else ""


def arch_text(figures: DeviceFigures) -> str:
    """What device code is made for, and what that leaves out."""
    if figures.capability is None:
        return "native, without fast-math; further flags are the third argument of `stitch_build`"
    major, minor = figures.capability
    plain = f"sm_{major}{minor}, without fast-math (`-use_fast_math` is off: `expf`, division and square root are the accurate ones)"
    if major < 9:
        return f"{plain}; further flags are the third argument of `stitch_build`"
    name = f"{major}{minor}a"
    return (
        f"{plain}. That is not `sm_{name}`: for instructions of `sm_{name}` alone (such as wgmma) pass "
        f'`["-gencode=arch=compute_{name},code=sm_{name}"]` as the third argument of `stitch_build`, and put them behind '
        f"`#if defined(__CUDA_ARCH_FEAT_SM{major}{minor}_ALL)`, since the code is compiled for plain compute_{major}{minor} as well"
    )


def reference_text(situation: Situation) -> str:
    return fenced(situation.task_source, "python")


def profile_text(profile: Profile | None) -> str:
    """The reference's time line: where it goes, how many launches, how busy the device is."""
    if profile is None:
        return "No profile of the reference could be taken."
    tool = {"nsys": "Nsight Systems", "cupti": "CUPTI", "torch-profiler": "torch.profiler"}[profile.tool]
    lines = [f"By {tool}, which slows the host: proportions count here, the time of a call is the one under Task."]
    if spent := time_text(None, profile):
        lines.append(spent)
    elif profile.launches_per_iteration is not None:
        lines.append(f"{profile.launches_per_iteration:.0f} {'operators' if profile.tool == 'torch-profiler' else 'launches'} a call.")
        lines[-1] += f" The device works {100 * profile.device_busy:.0f} % of the time." if profile.device_busy is not None else ""
    if profile.gap_us_p50 is not None:
        lines[-1] += f" Median gap between kernels: {profile.gap_us_p50:.1f} us."
    top = sorted(profile.kernels, key=lambda k: -k.share)
    of = "the device's time" if profile.host is not None else "the time in kernels"
    lines += [f"Shares are of {of}:"] if top else []
    for kernel in top[:TOP_KERNELS]:
        calls = kernel.calls / max(profile.iterations, 1)
        lines.append(f"- {100 * kernel.share:.0f} %: {short_name(kernel.name)}, {calls:.0f} a call, {kernel.mean_us:.1f} us each")
    if len(top) > TOP_KERNELS:
        lines.append(f"- {100 * sum(k.share for k in top[TOP_KERNELS:]):.0f} % in {len(top) - TOP_KERNELS} more")
    return "\n".join(lines)


def floors_text(compiled: Compiled, situation: Situation) -> str:
    """What each group of operators costs at least, fused, and what it moves where every operator stands alone."""
    plan, capture = compiled.plan, situation.capture
    lines = []
    if capture is not None and (capture.bytes_min or capture.flops):
        lines.append(f"The whole task, fused into one pass: {floor_of_task(compiled, capture).says()}.")
        lines.append(
            "A floor is the longer of two times: bytes at the device's bandwidth, each value read and written once, and operations at the fastest "
            f"rate that the policy allows ({UNITS[fastest(compiled.figures, plan.precision)]}). What lies between "
            "groups travels through memory in the groups' floors and not in the whole task's, which is why theirs add up to more."
        )
    if not plan.groups:
        why = plan.reason or (capture.reason if capture else "") or "there is no graph"
        lines.append(f"No floors by operator: {why}.")
    for group in plan.groups[:MOST_GROUPS]:
        apart = f"; {size(group.eager_bytes)} move where each operator stands alone" if group.eager_bytes > 1.1 * group.bytes else ""
        where = f", line {group.line}" if group.line else ""
        floor = floor_of_group(compiled, group).says()
        lines.append(f"- {group.id}{where}: {', '.join(group.kinds[:12])}: {floor}{apart}. Natural space: {group.space}.")
    if len(plan.groups) > MOST_GROUPS:
        lines.append(f"- and {len(plan.groups) - MOST_GROUPS} more groups")
    return "\n".join(lines)


def catalogue_for(facts: Facts, language: str, operators: Collection[str] | None = None) -> list[Strategy]:
    """Strategies that may be planned: those of the device, the language and the task's `operators` that nothing forbids. Cures wait for the fault
    that they undo."""
    fitting = [s for s in CATALOGUE if not s.only_cures and getattr(s, language) and s.refuses(facts) is None]
    return [s for s in fitting if s.meets(operators)]


def catalogue_text(strategies: Iterable[Strategy]) -> str:
    return "\n".join(f"- `{s.name}`: {s.title}. When: {s.applies}. Brings: {s.expectation}. Not for: {s.forbidden}." for s in strategies)


def how_to_text(strategies: Iterable[Strategy], language: str, step: dict[str, Any] | None = None) -> str:
    """How to carry them out, without those that contradict the step's contract or space."""
    fitting = [s for s in strategies if not contradicts(s, step)]
    return "\n".join(f"- {s.name}: {how}." for s in fitting if (how := str(getattr(s, language)).rstrip(".")))


def contradicts(strategy: Strategy, step: dict[str, Any] | None) -> bool:
    """Whether a strategy's how-to says the opposite of what the step's contract or space asks for."""
    if not step:
        return False
    contract = f"{step.get('contract') or ''} {step.get('title') or ''}"
    refused = {name for pattern, names in CONTRADICTED if re.search(pattern, contract, re.IGNORECASE) for name in names}
    return strategy.name in refused | OF_SPACES.get(str(step.get("space") or ""), frozenset())


def plan_text(payload: dict[str, Any]) -> str:
    lines = [str(payload.get("summary", ""))]
    for step in payload.get("steps") or []:
        lines.append(f"- {step.get('id')} ({step.get('space')}): {step.get('title')}")
    if payload.get("more"):
        lines.append(f"- and {payload['more']} more")
    return "\n".join(lines)


def step_text(step: dict[str, Any] | None, compiled: Compiled | None = None) -> str:
    """With its floor, where its operators say what it covers."""
    if not step:
        return ""
    names = ("id", "title", "operators", "space", "strategies", "contract", "expected", "risk", "reason")
    shown = [(name, "; ".join(map(str, step[name])) if isinstance(step.get(name), list) else str(step.get(name) or "")) for name in names]
    lines = [f"{name}: {value}" for name, value in shown if value]
    floor = step_floor(compiled, step) if compiled is not None else ""
    return "\n".join([*lines, *([floor] if floor else [])])


def program_text(source: str) -> str:
    return fenced(folded(source), "python")


def diagnosis_text(found: Diagnosis, advice: Advice | None = None) -> str:
    lines = [f"Class: {found.bottleneck} (known from {found.grade}). {found.text}".strip()]
    telling = [evidence for evidence in found.evidence if not evidence.figure.startswith(MEASURED)]
    lines += [f"- {evidence_line(evidence)}" for evidence in telling[:SHOWN_EVIDENCE]]
    if advice is not None and advice.reason:
        lines.append(f"Verifier: {advice.reason}")
    return "\n".join(lines)


def evidence_line(evidence: Evidence) -> str:
    value = f"{evidence.value:g}" if isinstance(evidence.value, int | float) else evidence.value
    unit = f" {evidence.unit}" if evidence.unit else ""
    return f"{evidence.figure}: {value}{unit}" + (f" ({evidence.means})" if evidence.means else "")


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
    floor_us = (situation.plan.floor_ms if situation.plan is not None else None) or compiled.plan.floor_ms
    floor_us = floor_us * 1e3
    spent = call_time(None, profile)
    waiting = busy is not None and busy < 0.5
    return Facts(
        device=compiled.figures.kind,
        bottleneck="launch" if waiting else "memory",
        precision=situation.settings.precision,
        program_us=time_us,
        headroom=time_us / floor_us if time_us and floor_us else None,
        launches=launches,
        device_busy=busy,
        host_share=spent.host_share if spent is not None else None,
        reductions=task_facts(situation.capture).reductions if situation.capture is not None and situation.capture.graph is not None else None,
        products=bool(situation.capture.flops) if situation.capture is not None and situation.capture.flops is not None else None,
        capability=compiled.figures.capability,
    )
