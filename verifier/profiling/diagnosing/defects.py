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
WIDENED = 2e-4  # a bound of a state entry above this one was widened, because rounding alone moves eager's value further
BARELY = 2.0  # largest ratio of an error to such a bound that amplified rounding explains
FEW = 0.05  # largest share of wrong elements that it explains
OVER = re.compile(rf"error ({NUMBER}), bound ({NUMBER})")  # as `verifier.correctness.moved_state` words it
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
    if off is None or not (off <= CHAOTIC or barely_over(report) is not None):
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


def barely_over(report: Report) -> float | None:
    """Returns the error of a state entry as a multiple of its bound if few of its elements are off, by little more than a bound that was widened for
    rounding. Returns null for any other result."""
    trial = next((t for t in report.trials if not t.ok), None)
    if trial is None or STATE not in trial.detail:
        return None
    error, bound, share = trial.error, trial.bound, 1.0
    if trial.wrong:
        worst = trial.wrong[0]
        error, bound, share = worst.error, worst.bound, worst.wrong / worst.elements
    elif (said := OVER.search(trial.detail)) and (count := COUNT.search(trial.detail)):
        error, bound = float(said[1]), float(said[2])
        share = int(count[1].replace(",", "")) / int(count[2].replace(",", ""))
    if error is None or bound is None or not bound > WIDENED or not error <= BARELY * bound or share > FEW:
        return None
    return error / bound


def _difference(detail: str) -> float | None:
    """Returns the relative difference of the two values in a message, or null if the message has none or they are not ordinary numbers."""
    found = SHOWN.search(detail)
    if found is None:
        return None
    got, expected = float(found[1]), float(found[2])
    return abs(got - expected) / abs(expected) if expected else None
