"""A baseline that is compiled ahead while another judge wants the device: nothing waits forever."""

import random
import threading
import time
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from verifier.judge.ahead import Ahead
from verifier.judge.gate import Gate
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Coming
from verifier.limits import Limits
from verifier.timing.tournament import Tournament

DEVICE = SimpleNamespace(adopt_thread=lambda: None, name="a GPU", free_bytes=lambda: None, total_bytes=lambda: None)


class Pool:
    """A pool that sets `ended` when the party has been killed."""

    def __init__(self, gate: Gate):
        self.device, self.gate, self.ended = DEVICE, gate, threading.Event()

    def begin(self, terms):
        return Coming(SimpleNamespace(become=self.become), terms)

    def become(self, *terms):
        """Does nothing, which counts as success."""

    def dismiss(self, party):
        self.ended.set()


@pytest.fixture
def judges(tmp_path):
    with ExitStack() as ends:
        made = []
        for _ in range(2):
            gate = Gate("cuda:0", tmp_path)
            gate.begin(list)
            ends.callback(gate.end)
            made.append(gate)
        while not all(gate._floor.held for gate in made):
            time.sleep(0.01)
        yield made


def test_it_is_ended_while_another_judge_waits_for_the_device(judges):
    """To end, the compiling thread must resume work, which it may do only after the other judge has measured; the other judge must therefore not wait
    for the thread that ends it."""
    own, other = judges
    pool = Pool(own)

    def compile(party):
        with own.idle():
            assert pool.ended.wait(20)
            time.sleep(0.2)  # by now, the other judge has requested it
        return party

    ahead = Ahead(pool, ("baseline", "fp32-strict", "train"), compile, True)
    measured = threading.Event()

    def measure():
        with other.alone():
            measured.set()

    with own.working():
        asking = threading.Thread(target=measure, daemon=True)
        asking.start()
        time.sleep(0.1)
        assert not measured.is_set(), "this judge is at work"
        ahead.end()
    asking.join(20)
    assert measured.is_set() and not asking.is_alive()


@pytest.mark.parametrize("error", [PartyFailure("raised", "no compiler today"), ValueError("unheard of")])
def test_what_goes_wrong_is_met_where_its_side_is_wanted(tmp_path, error):
    def compile(party):
        raise error

    ahead = Ahead(Pool(Gate("cuda:0", tmp_path)), ("baseline", "bf16", "eval"), compile, True)
    ahead.wait()
    with pytest.raises(type(error), match=str(error.args[0])):
        ahead.side()


def test_one_that_does_not_even_take_its_role_has_failed(tmp_path, monkeypatch):
    def dies(self, *terms):
        raise PartyFailure("crashed", "it was killed", request="role")

    monkeypatch.setattr(Pool, "become", dies)
    ahead = Ahead(Pool(Gate("cuda:0", tmp_path)), ("baseline", "bf16", "eval"), lambda party: party, True)
    ahead.wait()
    with pytest.raises(PartyFailure, match="it was killed"):
        ahead.side()
    ahead.end()


def test_where_the_judge_has_no_memory_the_baseline_has_failed(tmp_path):
    def compile(party):
        raise torch.OutOfMemoryError("CUDA out of memory")

    ahead = Ahead(Pool(Gate("cuda:0", tmp_path)), ("baseline", "bf16", "eval"), compile, True)
    ahead.wait()
    with pytest.raises(PartyFailure, match="too little memory"):
        ahead.side()


@pytest.mark.parametrize(
    ("shared", "autotune", "free", "expected"),
    [
        (False, 180, None, {"compile": True, "compile-max-autotune": False}),
        (True, 180, None, {"compile": True, "compile-max-autotune": True}),
        (False, 0, None, {"compile": True, "compile-reduce-overhead": True}),
        (True, 180, 50, {"compile": False, "compile-max-autotune": False}),
    ],
)
def test_who_begins_ahead(monkeypatch, shared, autotune, free, expected):
    """A baseline that searches by timing is started ahead only if the device is shared anyway. If the device's memory cannot hold everything
    together, no first call is made and no role is taken: the three processes of the first round only import torch."""
    monkeypatch.setattr("verifier.timing.processes.Ahead", lambda pool, terms, bring_up, calls: (terms, bring_up.func.__name__, calls))
    device = SimpleNamespace(kind="cuda", begins_ahead=True, process_bytes=10, leader=lambda: None, free_bytes=lambda: free)
    trials = SimpleNamespace(
        limits=Limits(autotune=autotune), keeps_inputs=True, input_bytes=0, expected_specs=[], peak_bytes=lambda: None,
        ledger=lambda: SimpleNamespace(state=0, eager=0),
    )  # fmt: skip
    job = SimpleNamespace(tier="full", precision="bf16", mode="train")
    trials.draws = random.Random(1)
    begun: dict[str, Any] = {}
    pool = SimpleNamespace(
        device=device, host_goes_on=shared, anticipate=partial(begun.__setitem__, "roles"), stock=partial(begun.__setitem__, "stock")
    )
    of = Tournament(pool, trials, job, 1, None, None)
    of.begin_ahead()
    how = {True: "_first_call", False: "_importing"}
    assert of.ahead == {name: (("baseline", "bf16", "train"), how[calls], calls) for name, calls in expected.items()}
    if free is None:
        assert sorted(role for role, *_ in begun["roles"]) == ["baseline"] * 4 + ["runner"] * 3, "three of eager and a CUDA graph"
        assert {tuple(rest) for _, *rest in begun["roles"]} == {("bf16", "train")} and "stock" not in begun
    else:
        assert begun == {"stock": 2}, "program and eager; the compiled baseline of the first round has begun"
