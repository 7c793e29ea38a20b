"""Decides whether a task is stochastic: another seed gives another output, and the order of atomic additions does not explain it.

cuDNN's transposed convolutions, among others, add with atomics: two calls of the same model with the same seed and the same inputs differ in their
last bits. Such a task is not deterministic, but it draws no random numbers, and its outputs are compared like any other's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from verifier.correctness.examining import equal
from verifier.correctness.fingerprint import Fingerprint

NEAR = 1e-3  # root mean square of a difference over that of the output: rounding stays far below it, random draws far above
CHUNK = 1 << 24  # elements at a time, in fp64
NEAR_HALF = 3e-2  # outputs of 16 bits


def stochastic(one: Sequence[torch.Tensor | Fingerprint], two: Sequence[torch.Tensor | Fingerprint], drew: bool) -> bool:
    """Compares `one` and `two`, outputs for the same inputs under different seeds. `drew`: a call used a seeded generator. A model's private
    generators are recognised by how far apart its outputs are."""
    pairs = [(a, b) for a, b in zip(one, two, strict=True) if not equal(a, b)]
    return bool(pairs) and (drew or not all(near(a, b) for a, b in pairs))


def near(one: torch.Tensor | Fingerprint, two: torch.Tensor | Fingerprint) -> bool:
    """Whether rounding alone may explain the difference of two tensors. Tensors of gigabytes have only fingerprints, which cannot refute it, so they
    count as near."""
    if isinstance(one, Fingerprint) or isinstance(two, Fingerprint):
        return True
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if one.is_complex():
        one, two = torch.view_as_real(one), torch.view_as_real(two)
    if not one.is_floating_point():
        return one.numel() > 0 and float(torch.count_nonzero(one != two)) / one.numel() <= NEAR  # an index among nearly equal values
    apart = size = 0.0
    for a, b in zip(one.reshape(-1).split(CHUNK), two.reshape(-1).split(CHUNK), strict=True):
        same = (a == b) | (a.isnan() & b.isnan())  # infinities have no difference
        apart += float(torch.where(same, 0.0, a.double() - b.double()).square().sum())
        size += float(a[a.isfinite()].double().square().sum())
    return apart <= (NEAR_HALF if one.element_size() < 4 else NEAR) ** 2 * size
