"""The verifier's diagnosis with the methods that the catalogue allows against it, in order."""

from __future__ import annotations

from agents.strategies.catalogue import CATALOGUE
from agents.strategies.strategy import Facts
from verifier.jobs import Profile
from verifier.profiling.diagnosing.cause import Cause, Ceilings, Evidence
from verifier.profiling.diagnosing.diagnosis import Bottleneck, Diagnosis, defect
from verifier.profiling.diagnosing.diagnosis import diagnose as diagnose_program
from verifier.profiling.diagnosing.task_facts import TaskFacts
from verifier.report import Report

__all__ = ["Bottleneck", "Cause", "Ceilings", "Diagnosis", "Evidence", "defect", "diagnose"]

SHOWN_METHODS = 12
HOSTS_WORK = ("cuda-graph", "lean-forward")  # what answers a large share of the host in a call


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
    """Diagnosis of one verified program. `bytes_min` and `flops` are those of the task, for one call."""
    found = diagnose_program(report, profile, ceilings, bytes_min=bytes_min, flops=flops, floor_ms=floor_ms, facts=facts)
    known = Facts(
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
        registers=_registers(profile),
        faults=tuple(cause.name for cause in found.faults),
    )
    return found.model_copy(update={"methods": allowed(known)})


def _registers(profile: Profile | None) -> int | None:
    """A thread's, in the own kernel that takes longest."""
    own = [kernel for kernel in profile.kernels if kernel.own and kernel.registers] if profile else []
    return max(own, key=lambda kernel: kernel.share).registers if own else None


def allowed(facts: Facts) -> list[str]:
    """Methods that undo a fault that was named, in the order of the faults; then those for the host's work where the device waits for it, whatever
    the class; then those that answer the class. None that the catalogue refuses."""
    curing = [strategy for fault in facts.faults for strategy in CATALOGUE if fault in strategy.cures and strategy.cures_when(facts)]
    answering = [strategy for strategy in CATALOGUE if facts.bottleneck in strategy.answers and not strategy.only_cures]
    answering.sort(key=lambda strategy: strategy.answers.index(facts.bottleneck))  # those that are for this class before all others
    leaner = [strategy for strategy in CATALOGUE if strategy.name in HOSTS_WORK] if facts.waits_for_host else []
    names = [strategy.name for strategy in (*curing, *leaner, *answering) if strategy.refuses(facts) is None]
    return list(dict.fromkeys(names))[:SHOWN_METHODS]
