"""The compiler's plan with the figures of the device that it was made for."""

from __future__ import annotations

from dataclasses import dataclass

from agents.diagnosis import Ceilings
from compiler import CompilerPlan, DeviceFigures, Group


def ceilings_of(f: DeviceFigures) -> Ceilings:
    return Ceilings(f.kind, f.bandwidth_gbs, f.fp32_gflops, f.launch_us, f.units, f.capability)


@dataclass(frozen=True)
class Compiled:
    """What the built-in Coder and Verifier need of the plan."""

    plan: CompilerPlan
    figures: DeviceFigures

    @property
    def ceilings(self) -> Ceilings:
        return ceilings_of(self.figures)

    @property
    def left(self) -> str:
        """What of the model is not compiled, and why, in a sentence; empty where all of it is."""
        if why := self.plan.why_none:
            return f"Nothing is compiled: {why}."
        return f"Left in Python, because it cannot be captured: {'; '.join(self.plan.left)}."[:1500] if self.plan.left else ""

    @property
    def own_groups(self) -> list[Group]:
        return self.plan.own
