"""Runs the judge's own arithmetic once on a few numbers while the reference is still loading the task, because a GPU loads each kernel at its first
use, and loading all of them takes longer than an evaluation's comparisons."""

from __future__ import annotations

import contextlib
import threading

import torch

from verifier.correctness.bounds import deviation, judge
from verifier.correctness.inputs import DISTRIBUTIONS, reshape_distribution
from verifier.devices.base import Device

ELEMENTS = 4096


def rehearse(device: Device) -> None:
    """On a GPU, starts the rehearsal in a separate thread, `device.rehearsal`."""
    if device.kind == "cuda":
        device.rehearsal = threading.Thread(target=_work, args=[device], daemon=True)
        device.rehearsal.start()


def _work(device: Device) -> None:
    with contextlib.suppress(RuntimeError):  # `Device.check` reports what is wrong with a GPU
        device.adopt_thread()
        generator = torch.Generator(device=device.torch_device).manual_seed(0)
        values = torch.randn(ELEMENTS, generator=generator, device=device.torch_device)
        exact = values.double()
        deviation(values, exact)
        judge(values, exact, 1.0)
        judge(values + 1, exact, 1e-9)
        judge(values, values.clone(), 1.0)
        judge(values > 0, values > 0, 1.0)
        torch.equal(values.view(torch.uint8), values.view(torch.uint8))
        values.min(), values.max(), values.abs().max(), values.isfinite().all()
        for name in DISTRIBUTIONS:
            reshape_distribution(name, values.clone(), generator)
        device.flush_caches()
        device.sync()
