"""If rounding decides, the state after the timed calls can still be distinguished from the state after a skipped update."""

import random
import time
from types import SimpleNamespace

import pytest
import torch

from verifier.correctness import moved_state
from verifier.correctness.moved_state import Drift, drifts, judge_drifted, moved_late, state_limit, state_off
from verifier.judge.session import Run, StateEntry, Values
from verifier.layout import Spec
from verifier.parties.oracle import Rough, Wide, default_double

COLUMNS, UNDECIDED = 80, 4


class Voting(torch.nn.Module):
    """Keeps a running average of which of two sums is larger; in four columns, the sums are equal."""

    def __init__(self, backwards: bool = False):
        super().__init__()
        self.backwards = backwards
        self.register_buffer("average", torch.zeros(COLUMNS))
        self.register_buffer("noise", torch.zeros(COLUMNS))
        self.register_buffer("offset", torch.cat([torch.zeros(UNDECIDED), torch.ones(COLUMNS - UNDECIDED)]))

    def forward(self, x):
        halves = x.flip(0) if self.backwards else x
        apart = halves[:16].sum(0) + halves[16:].sum(0) - x.sum(0)
        self.noise.mul_(0.9).add_(0.1 * apart)
        self.average.mul_(0.9).add_(0.1 * (apart + self.offset > 0).to(x.dtype))
        return apart


class Session:
    clock = staticmethod(time.monotonic)
    precision, mutated = "fp32-strict", ["average", "noise"]

    def __init__(self):
        self.model, self.exact = Voting(), None

    def take_state(self, tensors):
        self.exact = None
        for name, tensor in zip(self.mutated, tensors, strict=True):
            self.model.state_dict()[name].copy_(tensor)

    def inputs(self, seed: int) -> Values:
        x = torch.rand(32, COLUMNS, generator=torch.Generator().manual_seed(seed))
        return Values({"l": [{"t": 0}]}, [Spec.of(x)], [x])

    def eager(self, values: Values, rng: int) -> Run:
        return self.answer(self.model(*values.tensors), self.model)

    def oracle(self, values: Values, rng: int, rough: int | None = None) -> Run:
        model = Voting()
        model.load_state_dict(self.model.state_dict())
        model.double()
        for name, value in zip(self.mutated, self.exact or [], strict=False):
            model.state_dict()[name].copy_(value)
        with default_double(), Wide() if rough is None else Rough(rough, torch.float32):
            return self.answer(model(*[tensor.double() for tensor in values.tensors]), model)

    def answer(self, output: torch.Tensor, model: torch.nn.Module) -> Run:
        return Run(Values({"t": 0}, [Spec.of(output)], [output]), [model.state_dict()[name].clone() for name in self.mutated])


@pytest.fixture
def stage():
    session = Session()
    original = [session.model.state_dict()[name].clone() for name in session.mutated]
    expectations, limits = SimpleNamespace(no_oracle=""), SimpleNamespace(oracle=60.0)
    return SimpleNamespace(reference=session, original=original, draws=random.Random(3), expectations=expectations, limits=limits)


def test_what_rounding_decides_is_no_update_left_out(stage):
    average, noise = drifts(stage)
    left = [stage.reference.model.average, stage.reference.model.noise]
    assert all(torch.equal(own, before) for own, before in zip(left, stage.original, strict=True))
    eager, program = Voting(), Voting(backwards=True)
    for seed in range(70):
        (x,) = stage.reference.inputs(seed).tensors
        eager(x), program(x)
    limit = state_limit(torch.float32)
    nothing = torch.zeros(COLUMNS)
    assert not judge_drifted(program.average, eager.average, limit, Drift(0.0, 0.0, 0.0), noise=False).ok  # rounding did decide
    assert judge_drifted(program.average, eager.average, limit, average, noise=False).ok
    assert not judge_drifted(nothing, eager.average, limit, average, noise=False).ok
    for sound in (program.noise, nothing):
        assert judge_drifted(sound, eager.noise, limit, noise, noise=True).ok and judge_drifted(sound, nothing, limit, noise, noise=True).ok
    assert not judge_drifted(nothing + 0.1, nothing, limit, noise, noise=True).ok


def test_without_fp64_nothing_is_granted(stage):
    stage.expectations.no_oracle = "no fp64"
    assert drifts(stage) == []


class Eager:
    """Eager's process, after calls that have changed one buffer more than the first call did."""

    def __init__(self, monkeypatch, state):
        self.held, self.state = [], state
        monkeypatch.setattr(moved_state, "fetch", lambda party, *_: party.held)

    def ask(self, what, message, limit=None):
        if any(name not in self.state for name in message["names"]):
            return SimpleNamespace(message={"specs": None, "missing": next(name for name in message["names"] if name not in self.state)})
        self.held = [self.state[name] for name in message["names"]]
        return SimpleNamespace(message={"specs": [Spec.of(tensor).model_dump(exclude_none=True) for tensor in self.held]})


def late_trials():
    names = ("weight", "calls", "slow", "table")
    state = [StateEntry(name, Spec.of(torch.zeros(2)), name == "weight", None) for name in names]
    reference = SimpleNamespace(state=state, mutated=["calls"])
    binding = SimpleNamespace(of=lambda names: [f"own.{name}" for name in names])
    expectations = SimpleNamespace(noisy_state=set(), no_oracle="none")
    return SimpleNamespace(
        reference=reference,
        original=[torch.zeros(2)] * 4,
        constructions=SimpleNamespace(binding=binding),
        limits=SimpleNamespace(call=1.0),
        expectations=expectations,
    )


def test_a_buffer_that_only_later_calls_change_is_compared_too(monkeypatch):
    now = {"weight": torch.ones(2), "calls": torch.full((2,), 9.0), "slow": torch.ones(2), "table": torch.zeros(2)}
    eager, trials = Eager(monkeypatch, now), late_trials()
    assert moved_late(eager, trials) == ["slow"]
    right = {f"own.{name}": tensor for name, tensor in now.items()}
    assert state_off(Eager(monkeypatch, right), eager, trials).detail == ""
    off = state_off(Eager(monkeypatch, {**right, "own.slow": torch.zeros(2)}), eager, trials)
    assert "slow was not updated" in off.detail
    assert [(part.name, part.wrong, part.elements) for part in off.wrong] == [("slow", 2, 2)]
    without = {name: tensor for name, tensor in right.items() if name != "own.slow"}
    assert "no parameter or buffer 'slow'" in state_off(Eager(monkeypatch, without), eager, trials).detail


def test_a_state_that_is_right_gives_the_entry_nearest_to_its_bound(monkeypatch):
    now = {"calls": torch.full((2,), 9.0), "slow": torch.ones(2), "weight": torch.ones(2), "table": torch.zeros(2)}
    eager, trials = Eager(monkeypatch, now), late_trials()
    near = {f"own.{name}": tensor * (1 + 2e-5 * (name == "slow")) for name, tensor in now.items()}
    off = state_off(Eager(monkeypatch, near), eager, trials)
    name, error, bound = off.nearest
    assert (name, bound) == ("slow", 1e-4) and error == pytest.approx(1e-5, rel=0.02) and not off.detail and not off.wrong


@pytest.mark.parametrize(("apart", "rounding", "ok"), [(9e-5, 1e-7, False), (9e-5, 2e-5, True), (2e-5, 1e-7, True), (9e-5, None, True)])
def test_an_average_that_hardly_moves_is_compared_with_what_moves_it(monkeypatch, apart, rounding, ok):
    """Each of 100 calls moves it by a millionth, far less than the bound of a comparison with its value."""
    now = {"calls": torch.full((2,), 1 - 1e-4)}
    eager, trials = Eager(monkeypatch, now), late_trials()
    trials.original = [torch.ones(2)] * 4
    monkeypatch.setattr(moved_state, "moved_late", lambda eager, trials: [])
    monkeypatch.setattr(moved_state, "drifts", lambda trials: [Drift(0.0, 0.0, rounding)] if rounding is not None else [])
    off = state_off(Eager(monkeypatch, {"own.calls": now["calls"] + apart}), eager, trials)
    assert (off.detail == "") is ok and (ok or "the calls move it by 0.0001, and it is off by 9" in off.detail)
