"""Distinguishes results with small errors, which rounding may explain, from results that only a different computation explains."""

from __future__ import annotations

import re

from verifier.report import Report

CHAOTIC = 1e-2  # as in `verifier.correctness.bounds`, which imports torch; a diagnosis is also made where there is none
BY_LITTLE = "A result lies outside its error bound, by little"
DIFFERENT = "The program computes something different from the model"
NUMBER = r"-?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)"
SHOWN = re.compile(rf": ({NUMBER}) instead of ({NUMBER})")  # the first wrong element, as `judge` words it
STATE = "was not updated as the task does"  # as `verifier.correctness.moved_state` words it
COUNT = re.compile(r"([\d,]+) of ([\d,]+) elements? (?:is|are) off")


def wrong_result_text(report: Report) -> str:
    """Describes what a wrong result looks like. If an error is no larger than what rounding can become through a decision or a cancellation, the
    result is not attributed to a different computation, because the evidence does not show one."""
    trial = next((t for t in report.trials if not t.ok), None)
    detail = trial.detail if trial is not None and trial.detail else report.message
    off = _difference(detail)
    if trial is not None and trial.error is not None:
        off = trial.error
    measure = "of its value"
    if trial is not None and trial.wrong and (worst := trial.wrong[0]).error is not None and worst.bound is not None:
        off, measure = worst.error, f"where the bound is {worst.bound:.1e}, by the measure of errors"
    if off is None or not off <= CHAOTIC:
        return DIFFERENT
    wrong = f", in {found[1]} of {found[2]} elements" if (found := COUNT.search(detail)) else ""
    first = "check the order and the width of the sums that lead to it first"
    if STATE in detail:  # outputs are held against fp64, but the state after many calls against eager's
        first = (
            "it is compared with eager PyTorch's, so more precise sums need not be closer: compute what leads to it as eager does, by its operators "
            "if in doubt"
        )
    return (
        f"{BY_LITTLE}: {off:.1e} {measure}{wrong}. Rounding that cancellation or a short sum magnifies looks like that (a variance of two nearly "
        f"equal numbers, for example), and so does a small defect; {first}"
    )


def _difference(detail: str) -> float | None:
    """Returns the relative difference of the two values in a message, or null if the message has none or they are not ordinary numbers."""
    found = SHOWN.search(detail)
    if found is None:
        return None
    got, expected = float(found[1]), float(found[2])
    return abs(got - expected) / abs(expected) if expected else None
