"""The `calibrate` job: measures how much two processes that run the same code differ on this host, using fresh processes that run small known tasks.

The tasks cover both extremes: calls limited by launch overhead on the host, and calls that keep the device busy throughout.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from verifier.jobs import CalibrateJob, StageEvent
from verifier.judge.asking import Party
from verifier.judge.pool import Pool
from verifier.judge.session import ReferenceSession, Values
from verifier.layout import place
from verifier.timing.blocks import Caller, Side, measure
from verifier.timing.host_repeatability import keep
from verifier.timing.intervals import DEFAULTS, Repeatability, between_processes, bootstrapped, variations, without_turns
from verifier.timing.series import form

_TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[{layer} for _ in range({depth})])

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.rand({shape})]


def get_init_inputs():
    return []
"""
# (layer, depth, shape) by kind of device and task name
TASKS = {
    "cuda": {
        "launches": ("nn.Sequential(nn.GELU(), nn.LayerNorm(256))", 6, "64, 256"),
        "small layers": ("nn.Sequential(nn.Linear(512, 512), nn.ReLU())", 4, "128, 512"),
        "streaming": ("nn.Softmax(-1)", 1, "8192, 16384"),
        "arithmetic": ("nn.Linear(4096, 4096, bias=False)", 1, "4096, 4096"),
    },
    "cpu": {
        "launches": ("nn.Sequential(nn.GELU(), nn.LayerNorm(64))", 6, "16, 64"),
        "small layers": ("nn.Sequential(nn.Linear(256, 256), nn.ReLU())", 4, "64, 256"),
        "streaming": ("nn.Softmax(-1)", 1, "512, 4096"),
        "arithmetic": ("nn.Linear(768, 768, bias=False)", 1, "512, 768"),
    },
}
PROCESSES = 6
WARM_UP = 8
WEIGHT = 6  # weight of earlier findings about the host, expressed as a number of processes
LEAST = 0.0005  # lower limit of `least`, however well a host is known
VARIED = 0.01  # relative variation from call to call above which a task determines `noise`, and below which it determines `least`


class CalibratedTask(BaseModel):
    name: str
    ms: float
    processes: int
    variation: float  # relative variation between calls of a process, excluding the part that turns had in common (`intervals.without_turns`)
    spread: float  # relative variation between the processes' typical call times, minus the part that variation within processes explains
    medians_ms: list[float]


class Calibration(BaseModel):
    """The result of the job: the figures and the data behind them."""

    device_model: str
    repeatability: Repeatability
    tasks: list[CalibratedTask]
    seconds: float


def calibrate(job: CalibrateJob, pool: Pool, data_dir: Path, on_stage: Callable[[StageEvent], None]) -> Calibration:
    """Makes the measurement and stores the result in the data folder for all later verifications on this device model. Raises `PartyFailure`,
    `DeviceError`."""
    begin = time.monotonic()
    found = []
    for name, (layer, depth, shape) in TASKS[pool.device.kind].items():
        on_stage(StageEvent(stage="calibrate", status="progress", detail=f"{name}: {PROCESSES} processes"))
        found.append(_task(name, _TASK.format(layer=layer, depth=depth, shape=shape), pool, job.seconds))
    repeatability = fit(found, pool.device.kind)
    model = pool.device.environment().device_model
    keep(data_dir, model, repeatability)
    return Calibration(device_model=model, repeatability=repeatability, tasks=found, seconds=round(time.monotonic() - begin, 2))


def _task(name: str, source: str, pool: Pool, seconds: float) -> CalibratedTask:
    reference = ReferenceSession(pool, source, "fp32-strict", "train")
    parties: list[Party] = []
    try:
        reference.load(1)
        specs = reference.eager(reference.inputs(1), 1).outputs.specs
        parties = pool.take_all([("baseline", "fp32-strict", "train")] * PROCESSES)
        pool.at_once([partial(party.ask, "load", {"source": source, "seed": 1}, pool.limits.load) for party in parties])
        sides = [Side("eager", Caller(party, specs, pool.limits.call)) for party in parties]
        rng, draws = random.Random(7), random.Random(8)

        def draw(number: int) -> tuple[Values, int]:
            return reference.inputs(draws.getrandbits(32)), 1

        with pool.gate.alone():  # otherwise, interference from other judges would permanently count as a property of this host
            for party in parties:
                party.rest(anew=True)  # binds it to the processors used for timing programs
            warm, _ = draw(0)
            for _ in range(WARM_UP):
                last = [side.caller.call(warm, 1).inner / 1e6 for side in sides]
            exchanged = warm.nbytes + place(specs)[1]
            shape = form(exchanged, min(last), max(last), pool.device.total_bytes()) if pool.device.leader() is not None else None
            begin = time.monotonic()
            first = measure(sides, draw, lambda *_: None, rng, 0, 4, shape)
            while time.monotonic() - begin < seconds and len(sides[0].blocks) < 100:
                first = measure(sides, draw, lambda *_: None, rng, first, 4, shape)
    finally:
        reference.close()
        for party in parties:
            pool.give_back(party)
    return summary(name, [np.array(side.blocks) for side in sides])


def summary(name: str, samples: list[np.ndarray]) -> CalibratedTask:
    """Returns the figures of one task from each process's samples (blocks, calls of a block), in milliseconds."""
    middles, drawn = bootstrapped(samples, np.random.default_rng(1))
    return CalibratedTask(
        name=name,
        ms=float(np.exp(middles.mean())),
        processes=len(samples),
        variation=float(np.median(variations(without_turns(samples)))),
        spread=between_processes(middles, drawn),
        medians_ms=[round(float(np.exp(value)), 6) for value in middles],
    )


def fit(tasks: list[CalibratedTask], kind: str) -> Repeatability:
    """Fits `least` to the tasks whose calls hardly vary, and `noise` to the others."""
    steady = [task.spread for task in tasks if task.variation < VARIED]
    usual = DEFAULTS[kind]
    least = max(LEAST, math.sqrt((sum(s * s for s in steady) + usual.least**2) / (len(steady) + 1)))  # the default counts as one task
    ratios = [max(task.spread**2 - least**2, 0.0) / task.variation**2 for task in tasks if task.variation >= VARIED]
    noise = math.sqrt((sum(ratios) + 2 * usual.noise**2) / (len(ratios) + 2))  # here it counts as two, because a few tasks on a busy host say little
    return Repeatability(least=least, noise=noise, weight=WEIGHT, source=f"calibrated with {sum(task.processes for task in tasks)} processes")
