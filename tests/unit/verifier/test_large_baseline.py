"""A baseline with gigabytes of outputs is compared with eager, as timed calls are: fp64's outputs are not kept."""

import threading
from types import SimpleNamespace

import pytest
import torch

from verifier.correctness.trials import Trials
from verifier.judge.session import Run, Values
from verifier.layout import Spec


@pytest.mark.parametrize(("error", "off"), [(0.0, False), (1e-6, False), (1e-2, True)])
def test_a_large_baseline(error, off):
    torch.manual_seed(0)
    right = torch.randn(50, 20)
    specs, tree, asked = [Spec.of(right)], {"t": 0}, []
    values = Values({"l": []}, [])

    def eager(given, rng):
        asked.append((given, rng))
        return Run(Values(tree, specs, [right]), [])

    reference = SimpleNamespace(
        take_state=lambda state: asked.append("state"), eager=eager, rollback=lambda: None, rest=lambda need: asked.append("rest"), state_tensors=[]
    )
    stage = Trials.__new__(Trials)
    stage.reference, stage.lock, stage.stochastic, stage._first = reference, threading.Lock(), False, values
    stage.expectations = SimpleNamespace(first=None, first_rng=7, timed_bounds=lambda: ([1e-5], [0.0]))
    call = SimpleNamespace(tree=tree, specs=specs, outputs=[right * (1 + error)])
    found = stage.baseline_off(SimpleNamespace(call=lambda given, rng, flush: call))
    assert bool(found) == off and asked == ["state", (values, 7), "rest"]
