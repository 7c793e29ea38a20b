"""Flags times that are too good: below the roofline floor, or far better than the baselines reach.

A program is not refused because of a flag alone; it is measured again, and the report says so.
"""

from __future__ import annotations

from verifier.report import Timing

EAGER, BEST = 10.0, 2.0  # limits on the speedup over eager, and on the speedup over the best of several baselines
FLOOR = 0.95


def excess(timing: Timing, floor_ms: float | None) -> list[tuple[str, str]]:
    """Returns the rules that were broken, with sentences that explain them. A legitimate rewrite can beat a floor derived from the task's stated
    operations, or beat a slow baseline by a large factor."""
    found = []
    if floor_ms and timing.program_ms < FLOOR * floor_ms:
        found.append(("below-floor", f"{timing.program_ms:.4g} ms a call is below the physical floor of {floor_ms:.4g} ms"))
    eager = timing.comparisons[0].speedup
    if eager.ratio > EAGER:
        found.append(("fast", f"{eager.ratio:.1f}x eager"))
    if len(timing.comparisons) > 1:
        best = min(timing.comparisons, key=lambda comparison: comparison.speedup.ratio)
        if best.speedup.ratio > BEST:
            found.append(("beyond-baselines", f"{best.speedup.ratio:.1f}x the best baseline ({best.baseline})"))
    return found
