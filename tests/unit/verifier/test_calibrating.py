"""A calibration, which is kept for all later verifications, is made with exclusive use of the device."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from verifier.limits import Limits
from verifier.timing import calibrate


def test_other_judges_of_the_device_stand_still_meanwhile(monkeypatch):
    held: list[bool] = []
    measured: list[list[bool]] = []

    @contextmanager
    def alone():
        held.append(True)
        yield
        held.clear()

    def measure(sides, draw, check, rng, first, blocks, form=None):
        measured.append(list(held))
        for side in sides:
            side.blocks += [list(np.array([1.0, 1.01]) + 0.001 * len(side.blocks))] * blocks
        return first + 2 * blocks

    run = SimpleNamespace(outputs=SimpleNamespace(specs=[]))
    reference = SimpleNamespace(
        load=lambda seed: None, eager=lambda values, rng: run, inputs=lambda seed: SimpleNamespace(nbytes=64), close=lambda: None
    )
    monkeypatch.setattr(calibrate, "ReferenceSession", lambda *_: reference)
    monkeypatch.setattr(calibrate, "measure", measure)
    monkeypatch.setattr(calibrate.Caller, "call", lambda *_: measured.append(list(held)) or SimpleNamespace(inner=1_000_000))
    party = SimpleNamespace(ask=print, rest=lambda anew: None)
    pool = SimpleNamespace(
        limits=Limits(), device=SimpleNamespace(leader=lambda: None), gate=SimpleNamespace(alone=alone),
        take_all=lambda wanted: [party for _ in wanted],
        at_once=lambda work: None, give_back=lambda party: None,
    )  # fmt: skip
    found = calibrate._task("one", "", pool, seconds=0.0)
    assert found.ms > 0 and measured and all(measured) and not held
