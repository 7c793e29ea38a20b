"""Observes PyTorch's global settings that decide the types of results: the default type and device of new tensors, and autocast.

A part is exported on its own, under the settings at the beginning of forward. Statements that run under other settings stay in Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

DEVICES = ("cpu", "cuda")
OTHER = "forward changes the default type of new tensors or autocast around it, which a part cannot express"


def settings() -> tuple[Any, ...]:
    autocast = [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in DEVICES]
    return (torch.get_default_dtype(), str(torch.get_default_device()), *autocast)


@contextlib.contextmanager
def kept_settings() -> Iterator[None]:
    """Restores the settings on exit, even if forward left them changed. Raises `ValueError` if it did and raised nothing else."""
    before = settings()
    try:
        yield
        if settings() != before:
            raise ValueError("it leaves the default type of new tensors or autocast changed")
    finally:
        if settings() != before:
            torch.set_default_dtype(before[0])
            for device, (enabled, dtype) in zip(DEVICES, before[2:], strict=True):
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            torch.clear_autocast_cache()
