"""A result's headline: the best measured baseline, the speedup over it with its interval and, second, the speedup over eager."""

from __future__ import annotations

from webapp.leaderboard.models import Provenance, Result
from webapp.review.standing import UNRANKED
from webapp.runs.headline import EAGER, NAMES, Figure, Headline


def of_result(result: Result) -> Headline:
    """Return the headline. A run without a confirmed program has no reliable speedup. The names of the baselines come from `result.provenance`."""
    if not result.confirmed or result.eager is None:
        return Headline("none")
    told: Provenance | None = getattr(result, "provenance", None)
    baseline = told.best_baseline if told else ""
    eager = Figure(result.eager, result.eager_low, result.eager_high)
    if baseline in ("", EAGER) or result.best is None:
        alone = told is None or len(told.comparisons) < 2
        return Headline(_outcome(eager, alone), eager, NAMES[EAGER], provisional=alone)
    best = Figure(result.best, result.best_low, result.best_high)
    return Headline(_outcome(best, provisional=False), best, NAMES.get(baseline, baseline), eager)


def _outcome(figure: Figure, provisional: bool) -> str:
    if figure.low is None or figure.low <= 1:
        return "none"
    return "promising" if provisional else "faster"


def left_out(result: Result) -> bool:
    """Return whether a verdict excluded the result from the ranking, which makes its figures invalid."""
    return result.verdict in UNRANKED
