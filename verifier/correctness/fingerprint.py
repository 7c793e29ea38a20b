"""Detects changes to a multi-gigabyte tensor without keeping a copy, by means of two sums over all its bits."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from verifier.passes import native

CHUNK = 1 << 25  # number of int64 values processed at a time: a quarter of a GiB
_RANDOM = random.SystemRandom()
_KEYS = (_RANDOM.getrandbits(61) | 1, _RANDOM.getrandbits(61) | 1)  # secret to this process, so a program cannot know which changes go undetected


@dataclass(frozen=True)
class Fingerprint:
    shape: tuple[int, ...]
    dtype: torch.dtype
    sums: tuple[int, ...]  # one sum over all words and one over words with their positions, each multiplied by a secret number, modulo 2^64


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """Computes the fingerprint of any dense tensor. It needs about 0.5 GiB of extra memory, or a copy if the tensor is not contiguous."""
    words = _words(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
    if (found := native.fingerprint(words, _KEYS)) is not None:
        return Fingerprint(tuple(tensor.shape), tensor.dtype, found)
    sums = [0, 0]
    for begin in range(0, words.numel(), CHUNK):
        part = words[begin : begin + CHUNK].to(torch.int64)
        place = torch.arange(begin, begin + part.numel(), dtype=torch.int64, device=part.device)
        for at, key in enumerate(_KEYS):
            mixed = (part + 1) * (place * key + _KEYS[1 - at])
            sums[at] += int((mixed ^ (mixed >> 29)).sum())
    return Fingerprint(tuple(tensor.shape), tensor.dtype, tuple(total % 2**64 for total in sums))


def _words(tensor: torch.Tensor) -> torch.Tensor:
    raw = tensor.contiguous().view(-1).view(torch.uint8)
    return raw.view(torch.int32) if raw.numel() % 4 == 0 and raw.data_ptr() % 4 == 0 else raw
