"""The compiler's plan with the figures of the device that it was made for."""

from __future__ import annotations

from dataclasses import dataclass

from agents.diagnosis import Ceilings
from compiler import CompilerPlan, DeviceFigures, Group


@dataclass(frozen=True)
class Compiled:
    """What the built-in Coder and Verifier need of the plan."""

    plan: CompilerPlan
    figures: DeviceFigures

    @property
    def ceilings(self) -> Ceilings:
        f = self.figures
        return Ceilings(f.kind, f.bandwidth_gbs, f.fp32_gflops, f.launch_us, f.units, f.capability)

    @property
    def own_groups(self) -> list[Group]:
        return self.plan.own
