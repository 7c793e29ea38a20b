"""Tests whether a task checks anything at all. Guesses that require no work must not be accepted as its outputs."""

from __future__ import annotations

import torch

from verifier.correctness.bounds import distance, judge
from verifier.float8 import wide
from verifier.judge.session import Values

PASSES = 1e-4  # relative error; if a guess comes this close, the outputs hardly depend on the inputs, whatever the bound


def trivial_guess(inputs: Values, outputs: Values, other_inputs: Values, other_outputs: Values, limits: list[float] | None = None) -> str:
    """Returns the guess that is accepted as the outputs of a second call, or "" if none is. The guesses are constants, the first call's outputs
    (under another seed), a copy of an input, and an input's mean. If the outputs' bounds are given as `limits`, another guess is the outputs cast to
    fp16 and back, unless the cast changes nothing."""
    found = ""
    for index, (one, two) in enumerate(zip(outputs.tensors, other_outputs.tensors, strict=True)):
        if not one.numel() and not two.numel():
            continue
        guess = _passing(wide(one), wide(two), [wide(tensor) for tensor in other_inputs.tensors], limits[index] if limits else None)
        if not guess:
            return ""
        found = found or guess
    return found


def _passing(one: torch.Tensor, two: torch.Tensor, inputs: list[torch.Tensor], limit: float | None) -> str:
    if not two.is_floating_point():
        return "the outputs for other inputs" if torch.equal(one, two) else ""

    def near(guess: torch.Tensor) -> bool:
        return guess.shape == two.shape and guess.is_floating_point() and distance(guess, two) < max(PASSES, limit or 0.0)

    if near(torch.zeros_like(two)):
        return "zeros"
    if near(torch.ones_like(two)):
        return "ones"
    if torch.equal(one, two) or near(one):
        return "the outputs for other inputs"
    if near(torch.full_like(two, float(one.mean(dtype=torch.float64)))):
        return "their mean"
    for index, tensor in enumerate(inputs):
        if tensor.is_floating_point() and (near(tensor) or (tensor.dim() and tensor.numel() and near(tensor.mean(dim=-1)))):
            return f"input {index}, or its mean"
    if limit is not None and two.dtype in (torch.float32, torch.float64):
        cast = two.half().to(two.dtype)
        if not torch.equal(cast, two) and judge(cast, two, limit).ok:
            return "the outputs cast to fp16"
    return ""
