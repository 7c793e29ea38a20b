"""The verifier's diagnosis, followed by an ordered list of the methods that the catalogue allows for it."""

from __future__ import annotations

import re
from typing import Any

from agents.strategies.catalogue import CATALOGUE
from agents.strategies.strategy import Facts
from verifier.jobs import KernelProfile, Profile
from verifier.profiling.diagnosing.call_time import call_time
from verifier.profiling.diagnosing.cause import Cause, Ceilings, Evidence
from verifier.profiling.diagnosing.diagnosis import Bottleneck, Diagnosis, defect, uses_tensor_cores
from verifier.profiling.diagnosing.diagnosis import diagnose as diagnose_program
from verifier.profiling.diagnosing.residency import residency
from verifier.profiling.diagnosing.task_facts import TaskFacts
from verifier.profiling.nsight import counters
from verifier.report import Report

__all__ = ["Bottleneck", "Cause", "Ceilings", "Diagnosis", "Evidence", "defect", "diagnose"]

SHOWN_METHODS = 10
SHORT_US = 20.0  # below this duration, a kernel's launch and drain matter
TENTH, VISIBLE = 0.1, 0.01  # shares of the device's time
STREAMING = (30.0, 85.0)  # range of DRAM throughput, in per cent of the peak, within which more loads in flight help
LARGEST_ELEMENT = 4  # bytes
PRODUCT = re.compile(r"gemm|gemv|conv|cudnn|cutlass|winograd|fprop|RNN|attention|flash", re.IGNORECASE)  # in the names of library kernels
MOVED = re.compile(r"mem(?:cpy|set)|\[CUDA mem", re.IGNORECASE)
STRUCTURES = (
    *("fuse-block", "fuse-row-reduction", "fuse-matmul-tail", "atomic-sums", "gather-by-key", "grouped-product", "persistent-loop"),
    *("stream-through-softmax", "cooperative-kernel", "algebraic-rewrite", "own-order", "own-scan", "persistent-recurrence", "split-product"),
)
FOR_GROUPS = ("persistent-kernel",)  # structures in which the sizes of products depend on data, so that the grid is launched for the largest case
SELECTION = re.compile(r"topk|kthvalue|median|gatherKth|radixSelect", re.IGNORECASE)  # in the names of operators and library kernels
HOSTS_WORK = ("cuda-graph", "lean-forward")  # methods for calls in which the host takes a large share of the time


def diagnose(
    report: Report,
    profile: Profile | None,
    ceilings: Ceilings,
    *,
    bytes_min: int | None,
    flops: int | None,
    floor_ms: float | None,
    facts: TaskFacts | None = None,
) -> Diagnosis:
    """Diagnoses one verified program. `bytes_min` and `flops` are the task's figures per call."""
    found = diagnose_program(report, profile, ceilings, bytes_min=bytes_min, flops=flops, floor_ms=floor_ms, facts=facts)
    return found.model_copy(update={"methods": allowed(facts_of(report, profile, ceilings, found, flops, facts))})


def facts_of(
    report: Report, profile: Profile | None, ceilings: Ceilings, found: Diagnosis, flops: int | None, facts: TaskFacts | None = None
) -> Facts:
    """Returns the facts about a verified program and its diagnosis on which the catalogue's conditions depend."""
    return Facts(
        device=ceilings.kind,
        bottleneck=found.bottleneck,
        precision=report.precision,
        program_us=report.timing.program_ms * 1e3 if report.timing else None,
        headroom=found.headroom,
        launches=profile.launches_per_iteration if profile else None,
        device_busy=profile.device_busy if profile else None,
        host_share=found.host_share,
        own_share=report.own_share,
        reductions=facts.reductions if facts else None,
        products=bool(flops) if flops is not None else None,
        reuse=bool(flops) or facts.reductions if facts and flops is not None else None,
        capability=ceilings.capability,
        scores=facts.scores if facts else None,
        registers=_registers(profile),
        on_tensor_cores=on_tensor_cores(profile),
        registers_alone=_registers_alone(profile, ceilings),
        faults=tuple(cause.name for cause in found.faults),
        **task_structure(facts),
        units=ceilings.workers,
        cache_bytes=ceilings.cache_bytes,
        unit_cache_bytes=ceilings.unit_cache_bytes if ceilings.kind == "cuda" else 0,
        **_kernels(profile, ceilings),
        gap_share=_gap_share(report, profile),
        selection_share=sum(k.share for k in report.kernels if not k.own and SELECTION.search(k.via or k.name)) if report.kernels else None,
    )


def _kernels(profile: Profile | None, ceilings: Ceilings) -> dict[str, Any]:
    """Returns the part of `Facts` that concerns a program's kernels, or an empty dict if they are unknown."""
    if profile is None or ceilings.kind != "cuda":
        return {}
    kernels = runs(profile)
    slowest = _slowest(profile)
    held = residency(slowest, ceilings.workers, ceilings.capability) if slowest is not None else None
    dram = [share for kernel, _ in kernels if kernel.share >= TENTH and (share := counters.read(kernel, counters.DRAM_SHARE)) is not None]
    return {
        "kernels": sum(calls for _, calls in kernels),
        "own_kernels": sum(calls for kernel, calls in kernels if kernel.own),
        "short_kernels": sum(calls for kernel, calls in kernels if kernel.mean_us < SHORT_US),
        "library_products": any(PRODUCT.search(kernel.name) and kernel.share >= VISIBLE for kernel, _ in kernels if not kernel.own),
        "slowest_blocks": held.grid if held is not None else None,
        "slowest_waves": held.filled if held is not None else None,
        "quiet_memory": max(dram) < STREAMING[0] if dram else None,
        "streams": any(STREAMING[0] <= share <= STREAMING[1] for share in dram) if dram else None,
        "waits": profile.host.waits if profile.host is not None else None,
    }


def _gap_share(report: Report, profile: Profile | None) -> float | None:
    spent = call_time(report, profile)
    return spent.gaps_us / spent.call_us if spent is not None and spent.gaps_us is not None else None


def task_structure(facts: TaskFacts | None) -> dict[str, Any]:
    """Returns the part of `Facts` that concerns the task, or an empty dict if its graph is unknown."""
    if facts is None or facts.structure is None:
        return {}
    return {
        "structure": facts.structure,
        "functions": facts.functions,
        "largest_bytes": LARGEST_ELEMENT * facts.structure.largest_made,
        "dependent_steps": facts.dependent_steps,
    }


def runs(profile: Profile) -> list[tuple[KernelProfile, float]]:
    """Returns the kernels of a call, each with the number of times it runs. Copies and fills do not count as kernels."""
    return [(kernel, kernel.calls / max(profile.iterations, 1)) for kernel in profile.kernels if not MOVED.match(kernel.name)]


def _slowest(profile: Profile | None) -> KernelProfile | None:
    own = [kernel for kernel in profile.kernels if kernel.own and kernel.registers] if profile else []
    return max(own, key=lambda kernel: kernel.share, default=None)


def _registers(profile: Profile | None) -> int | None:
    """Returns the registers per thread of the slowest of the program's own kernels."""
    slowest = _slowest(profile)
    return slowest.registers if slowest is not None else None


def on_tensor_cores(profile: Profile | None) -> bool | None:
    """Returns whether the slowest of the program's own kernels uses tensor cores, or None if that is unknown."""
    slowest = _slowest(profile)
    return uses_tensor_cores(slowest) if slowest is not None else None


def _registers_alone(profile: Profile | None, ceilings: Ceilings) -> bool | None:
    """Returns whether registers alone limit the occupancy of the slowest of the program's own kernels, or None if that is unknown."""
    slowest = _slowest(profile)
    held = residency(slowest, ceilings.workers, ceilings.capability) if slowest is not None else None
    return held.scarcest == ("registers",) and not held.by_grid if held is not None else None


def allowed(facts: Facts) -> list[str]:
    """Return the methods that the catalogue allows, in this order: methods that fix a named fault, in the order of the faults; methods that reduce
    host work, if the device waits for the host (regardless of the class); and methods that address the bottleneck class. If the device
    rarely waits for the host, methods that reduce host work come last, but are never left out."""
    operators = facts.structure.operators if facts.structure is not None else None
    fitting = [strategy for strategy in CATALOGUE if strategy.refuses(facts) is None and strategy.meets(operators)]
    curing = [strategy for fault in facts.faults for strategy in fitting if fault in strategy.cures and strategy.cures_when(facts)]
    answering = [strategy for strategy in fitting if facts.bottleneck in strategy.answers and not strategy.only_cures]
    answering.sort(key=lambda strategy: strategy.answers.index(facts.bottleneck))  # methods specific to this class first
    leaner = [strategy for strategy in fitting if strategy.name in HOSTS_WORK and facts.has_host_gaps]
    first = leaner if facts.waits_for_host else []
    names = list(dict.fromkeys(strategy.name for strategy in (*curing, *first, *answering)))
    last = [strategy.name for strategy in leaner if strategy.name not in names[: SHOWN_METHODS - len(leaner)]]
    return [*[name for name in names if name not in last][: SHOWN_METHODS - len(last)], *last]


def structures(facts: Facts) -> list[str]:
    """Returns the alternative program structures that a model may write regardless of the diagnosis, because no fault or class indicates a missing
    kernel."""
    grouped = facts.structure is not None and facts.structure.groups
    names = (*STRUCTURES, *(FOR_GROUPS if grouped else ()))
    return [strategy.name for strategy in CATALOGUE if strategy.name in names and strategy.refuses(facts) is None]
