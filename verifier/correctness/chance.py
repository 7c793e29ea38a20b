"""Decides whether a task is stochastic, that is, whether another seed gives an output whose difference cannot be explained by the order of atomic
additions. For example, cuDNN's transposed convolutions add with atomics, so two calls of the same model with the same seed and inputs differ in their
last bits. A task that uses them is not deterministic but draws no random numbers, and its outputs are compared like those of any other task.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verifier.correctness.bounds import differing
from verifier.correctness.examining import equal
from verifier.correctness.fingerprint import Fingerprint
from verifier.float8 import continuous

NEAR = 1e-3  # ratio of the RMS of a difference to the RMS of the output: rounding stays far below this value, and random draws lie far above it
CHUNK = 1 << 24  # number of elements processed at a time, in fp64
NEAR_HALF = 3e-2  # for 16-bit outputs


def stochastic(one: Sequence[torch.Tensor | Fingerprint], two: Sequence[torch.Tensor | Fingerprint], drew: bool) -> bool:
    """Compares `one` and `two`, which are outputs for the same inputs under different seeds. `drew` indicates whether a call used a seeded generator.
    A model's private generators are detected by the size of the difference."""
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if not equal(a, b)]
    return bool(pairs) and (drew or not all(near(a, b) for a, b in pairs))


def near(one: torch.Tensor | Fingerprint, two: torch.Tensor | Fingerprint) -> bool:
    """Returns whether rounding alone could explain the difference between two tensors. Multi-gigabyte tensors have only fingerprints, which do not
    reveal how far apart they are, so such tensors are assumed to be near each other."""
    if isinstance(one, Fingerprint) or isinstance(two, Fingerprint):
        return True
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if one.is_complex():
        one, two = torch.view_as_real(one), torch.view_as_real(two)
    if not continuous(one):  # for indices among nearly equal values
        wrong = differing(one, two)
        return one.numel() > 0 and (wrong is None or float(torch.count_nonzero(wrong)) / one.numel() <= NEAR)
    apart = size = 0.0
    for a, b in zip(one.reshape(-1).split(CHUNK), two.reshape(-1).split(CHUNK), strict=True):
        same = (a == b) | (a.isnan() & b.isnan())  # the difference between two infinities is undefined
        apart += float(torch.where(same, 0.0, a.double() - b.double()).square().sum())
        size += float(a[a.isfinite()].double().square().sum())
    return apart <= (NEAR_HALF if one.element_size() < 4 else NEAR) ** 2 * size
