"""Compares a call's outputs with the expected outputs and creates a `Trial` from the result."""

from __future__ import annotations

import math
import random

import torch

from verifier.correctness.bounds import NORM, Judgement, judge, same_form
from verifier.correctness.spread import beyond, rows_of, spread
from verifier.correctness.wrong_parts import wrong_part
from verifier.float8 import continuous
from verifier.judge.session import Values
from verifier.layout import describe, leaf_names
from verifier.report import MOST_WRONG, Trial, WrongTensor
from verifier.timing.call import Call

_DRAWS = random.SystemRandom()
TIMED_ROWS = 128  # for outputs of timed calls, because there are many of them


def compare_outputs(
    name: str,
    seed: int,
    call: Call,
    form: Values,
    references: list[torch.Tensor],
    alternatives: list[torch.Tensor],
    bounds: list[float],
    shares: list[float] | None = None,
    quantiles: list[tuple[float, ...] | None] | None = None,
) -> Trial:
    """Finds the output with the largest error in a call. `quantiles` contains the error quantiles, if known. Shapes, dtypes and structure are
    compared first; a list of outputs and a tuple of outputs count as the same structure."""
    names = leaf_names(form.tree)
    shares = shares or [0.0] * len(bounds)
    if describe(call.tree) != describe(form.tree):
        return Trial(name=name, seed=seed, ok=False, detail=f"the output is {describe(call.tree)[:200]} instead of {describe(form.tree)[:200]}")
    for leaf, got, want in zip(names, call.specs, form.specs, strict=False):
        difference = same_form(got, want, leaf)
        if difference:
            return Trial(name=name, seed=seed, ok=False, output=leaf, detail=difference)
    if len(call.outputs) != len(references):
        return Trial(name=name, seed=seed, ok=False, detail="the outputs were not delivered")
    worst = Trial(name=name, seed=seed, ok=True, error=0.0, bound=0.0, norm=NORM)
    margin = -1.0
    for leaf, value, reference, alternative, limit, share in zip(names, call.outputs, references, alternatives, bounds, shares, strict=True):
        judgement: Judgement = judge(value, reference, limit, share)
        if not judgement.ok and (value.is_complex() or not continuous(value)):
            judgement = judge(value, alternative, limit, share)  # a tie that fp64 breaks differently from eager
        if not judgement.ok:
            error, wrong = finite(judgement.error), wrong_outputs(names, call.outputs, references, alternatives, bounds, shares)
            found = {"error": error, "bound": limit, "norm": NORM, "compared": len(references), "wrong": wrong[:MOST_WRONG]}
            return Trial(name=name, seed=seed, ok=False, output=leaf, detail=f"{leaf}: {judgement.detail}", **found)
        if judgement.error is not None and judgement.error / (limit or 1.0) > margin:
            margin = judgement.error / (limit or 1.0)
            worst = worst.model_copy(
                update={"output": leaf, "error": judgement.error, "bound": judgement.bound, "decided": judgement.decided, "allowed": share}
            )
    for leaf, value, reference, most in zip(names, call.outputs, references, quantiles or [], strict=False):
        rows = rows_of(value, _DRAWS, TIMED_ROWS) if most is not None else None
        said = beyond(spread(value, reference, rows), most) if rows is not None and most is not None else ""
        if said:
            return worst.model_copy(update={"ok": False, "output": leaf, "detail": f"{leaf}: {said}"})
    return worst


def wrong_outputs(
    names: list[str],
    values: list[torch.Tensor],
    references: list[torch.Tensor],
    alternatives: list[torch.Tensor],
    bounds: list[float],
    shares: list[float],
) -> list[WrongTensor]:
    """Describes every output that is off, in order. An output that need not be in fp64's order passes if it agrees with either reference."""
    found = []
    for name, value, reference, alternative, limit, share in zip(names, values, references, alternatives, bounds, shares, strict=False):
        part = wrong_part(name, value, reference, limit, share)
        if part is not None and (value.is_complex() or not continuous(value)):
            part = wrong_part(name, value, alternative, limit, share)
        found += [part] if part is not None else []
    return found


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
