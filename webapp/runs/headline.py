"""The headline of a run, list row or candidate: its outcome, how certain it is, and the speedup over the best measured baseline.

static/js/run/headline.js computes the same for a run that is being watched. tests/unit/webapp/runs/test_headline.py keeps the two in agreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from webapp.runs.models import Run, Verification

EAGER = "eager"
NAMES = {
    EAGER: "eager",
    "compile": "torch.compile",
    "compile-max-autotune": "torch.compile max-autotune",
    "compile-reduce-overhead": "torch.compile reduce-overhead",
    "cuda-graph": "a CUDA graph of eager",
}
# Outcome: (tone, sign, words).
OUTCOMES = {
    "faster": ("ok", "▲", "Faster (confirmed)"),
    "promising": ("info", "△", "Faster so far (provisional)"),
    "none": ("idle", "=", "No reliable speedup: keep your model"),
    "wrong": ("bad", "✕", "Not correct"),
    "noisy": ("warn", "~", "Host too noisy to tell"),
    "unmeasured": ("warn", "!", "Not measured: host error"),
    "cancelled": ("idle", "–", "Cancelled before a result"),
}
USEFUL = ("faster", "promising")  # outcomes with a program worth using
UNMEASURED = {"inconclusive": "noisy", "infrastructure_error": "unmeasured"}


@dataclass(frozen=True)
class Figure:
    """A speedup with its 95 % interval. The bounds are None if only the ratio is known."""

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Headline:
    """The outcome of a run with its speedups.

    `outcome` is a key of OUTCOMES, or "" while nothing is known. `first` is the speedup over `against`. `eager` is the second figure, or None if
    `first` is already over eager. `provisional` means that the program was measured against eager alone, so a compiler may be just as fast.
    """

    outcome: str = ""
    first: Figure | None = None
    against: str = ""
    eager: Figure | None = None
    provisional: bool = False

    @property
    def useful(self) -> bool:
        """Return whether there is a program worth using."""
        return self.outcome in USEFUL

    @property
    def chip(self) -> dict[str, str]:
        tone, sign, word = OUTCOMES[self.outcome]
        return {"tone": tone, "sign": sign, "word": word}


def of_verification(row: Verification | None) -> Headline:
    if row is None or not row.status:
        return Headline()
    if row.status != "passed":
        return Headline(UNMEASURED.get(row.status, "wrong"))
    if row.speedup is None:
        return Headline()
    eager = Figure(row.speedup, row.speedup_low, row.speedup_high)
    confirmed = row.tier == "full"
    if row.best_baseline in ("", EAGER) or row.best_baseline_speedup is None:
        alone = (row.baselines or 1) < 2
        return Headline(_outcome(eager, confirmed and not alone), eager, NAMES[EAGER], provisional=alone)
    first = best_of(row)
    return Headline(_outcome(first, confirmed), first, NAMES.get(row.best_baseline, row.best_baseline), eager)


def of_run(run: Run, best: Verification | None, latest: str = "") -> Headline:
    """Return a run's headline.

    `best` is the decisive verification of the run's best candidate, and `latest` is the status of the run's last verification.
    """
    found = of_verification(best)
    if found.outcome or run.state != "finished":
        return found
    if run.outcome == "inconclusive" or run.outcome == "cancelled":
        return Headline("noisy" if run.outcome == "inconclusive" else "cancelled")
    if run.outcome == "out_of_budget" and latest in UNMEASURED:  # the run ended because nothing could be measured, so the model has not been judged
        return Headline(UNMEASURED[latest])
    if not run.searches and latest and latest != "passed":
        return Headline(UNMEASURED.get(latest, "wrong"))
    if run.speedup:  # from an imported trace that contains a result but no report
        only = Figure(run.speedup["ratio"], run.speedup.get("low"), run.speedup.get("high"))
        return Headline(_outcome(only, confirmed=False), only, NAMES[EAGER], provisional=True)
    return Headline("none")


def best_of(row: Verification) -> Figure:
    """Return the speedup over the best baseline.

    Older rows have no stored bounds for it. They use the bounds over eager, because the scatter comes from the same calls of the program.
    """
    ratio, low, high = row.best_baseline_speedup, row.best_baseline_low, row.best_baseline_high
    assert ratio is not None  # guaranteed by the caller
    if low is None and row.speedup and row.speedup_low is not None and row.speedup_high is not None:
        low, high = ratio * row.speedup_low / row.speedup, ratio * row.speedup_high / row.speedup
    return Figure(ratio, low, high)


def best_verification(run: Run) -> Verification | None:
    """Return the verification of the run's best candidate, preferring a full one to a quick one."""
    if run.best_candidate is None:
        return None
    rows = run.verifications.filter(kind="verify", status="passed", candidate_number=run.best_candidate)
    return rows.order_by("tier", "-queued_at").first()


def headline_of(run: Run) -> Headline:
    latest = run.verifications.filter(kind="verify").exclude(status="").order_by("-queued_at").values_list("status", flat=True).first()
    return of_run(run, best_verification(run), latest or "")


def keep(run: Run) -> None:
    """Set the columns of a finished run that lists sort and filter by. The caller saves the run."""
    found = headline_of(run)
    run.headline, run.gain = found.outcome, found.first.ratio if found.first else None


def of_row(run: Any) -> Headline:
    """Return the headline of a run. This needs no query for a run from `listing.with_best` and two queries for any other run."""
    if not hasattr(run, "latest_status"):
        return headline_of(run)
    return of_run(run, Verification(**run.best) if run.best else None, run.latest_status or "")


def to_go_on(run: Run) -> str:
    """Return what a run that ended early needs in order to continue, or "" for any other run."""
    if run.state != "finished" or not run.searches:
        return ""
    if run.outcome == "out_of_budget":
        return "To continue, raise the budget."
    early = "stopped early" in run.reason
    return "To continue, fork the run with another workflow, a language model or more strategies." if early else ""


def _outcome(figure: Figure, confirmed: bool) -> str:
    if figure.low is None or figure.low <= 1:
        return "none"
    return "faster" if confirmed else "promising"
