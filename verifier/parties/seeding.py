"""Handles the random number generators that a call may use: seeds them before the call and compares them after it."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % 2**32)


def generators() -> list[Any]:
    """Returns the states of the generators that `seed_everything` seeds. If they differ after a call, the call drew random numbers."""
    states: list[Any] = [torch.get_rng_state().tolist(), random.getstate()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state().tolist())
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states.append((name, keys.tolist(), rest))
    return states
