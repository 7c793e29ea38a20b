"""The compiler's plan together with the figures of its target device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.diagnosis import Ceilings
from agents.floor import UNITS, faster, fastest
from compiler import CompilerPlan, DeviceFigures, Group


def ceilings_of(f: DeviceFigures, precision: str | None = None) -> Ceilings:
    """Returns the device's limits, with the throughput of matrix products under a precision policy if one is given."""
    found = Ceilings(f.kind, f.bandwidth_gbs, f.fp32_gflops, f.launch_us, f.units, f.capability)
    arithmetic = fastest(f, precision) if precision is not None else "fp32"
    units = f"{UNITS[arithmetic]}{faster(f, precision) if precision is not None else ''}"
    return replace(found, product_gflops=f.gflops(arithmetic), product_units=units, cache_bytes=f.cache_bytes, unit_cache_bytes=f.unit_cache_bytes)


@dataclass(frozen=True)
class Compiled:
    """The parts of the plan that the built-in Coder and Verifier need."""

    plan: CompilerPlan
    figures: DeviceFigures

    @property
    def ceilings(self) -> Ceilings:
        return ceilings_of(self.figures, self.plan.precision if self.plan is not None else None)

    @property
    def left(self) -> str:
        """Returns a sentence that says which part of the model is not compiled, and why, or "" if all of it is compiled."""
        if why := self.plan.why_none:
            return f"Nothing is compiled: {why}."
        return f"Left in Python, because it cannot be captured: {'; '.join(self.plan.left)}."[:1500] if self.plan.left else ""

    @property
    def own_groups(self) -> list[Group]:
        return self.plan.own
