"""A task that needs more memory than is available is refused with the figures, and is not counted as a crash."""

from types import SimpleNamespace

import pytest
import torch

from verifier.devices.base import DeviceError, NoRoom
from verifier.jobs import AdmitJob
from verifier.judge import admission
from verifier.judge.memory import GIB, Ledger, too_little
from verifier.judge.party_failure import PartyFailure
from verifier.timing.blocks import Caller

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(4)]


def get_init_inputs():
    return []
"""


def device(free: float, total: float = 140):
    return SimpleNamespace(name="cuda:0", free_bytes=lambda: int(free * GIB), total_bytes=lambda: int(total * GIB))


def shortage(monkeypatch, error, others: bool):
    """Runs an admission in which `error` is raised."""

    def examine(*_):
        raise error

    session = SimpleNamespace(party=SimpleNamespace(give_time=lambda seconds: None), close=lambda: None)
    monkeypatch.setattr(admission, "ReferenceSession", lambda *_, **__: session)
    monkeypatch.setattr(admission, "_examine", examine)
    pool = SimpleNamespace(device=device(3), limits=SimpleNamespace(admission=1), gate=SimpleNamespace(others=lambda: others))
    return admission.admit(AdmitJob(task_source=TASK), pool, 1)


SHORTAGES = [
    (NoRoom("28.0 GiB of GPU memory are needed, and 9.0 of 140.0 GiB are free"), "9.0 of 140.0"),
    (torch.OutOfMemoryError("x"), "3.0 of 140.0"),
    (PartyFailure("raised", "CUDA out of memory, 9.0 of 140.0", line=6, error_class="OutOfMemoryError", request="run"), "9.0 of 140.0"),
]


@pytest.mark.parametrize(("error", "words"), SHORTAGES)
def test_admission_says_what_there_is(monkeypatch, error, words):
    found = shortage(monkeypatch, error, others=False)
    assert not found.ok and words in found.problems[0].message and found.problems[0].line == 6 and "smaller" in found.problems[0].hint


@pytest.mark.parametrize(("error", "words"), SHORTAGES)
def test_what_others_hold_is_no_fault_of_the_task(monkeypatch, error, words):
    with pytest.raises(DeviceError, match=f"{words}.*other verifications use cuda:0.*try again"):
        shortage(monkeypatch, error, others=True)


@pytest.mark.parametrize(("need", "others", "refused"), [(80, False, True), (80, True, False), (150, True, True)])
def test_a_task_is_refused_that_the_whole_device_cannot_hold(need, others, refused):
    pool = SimpleNamespace(device=device(70), gate=SimpleNamespace(others=lambda: others))
    if refused:
        assert admission._too_large(pool, TASK, "a verification needs much", need * GIB).line == 6
    else:
        with pytest.raises(DeviceError, match="needs much; other verifications"):
            admission._too_large(pool, TASK, "a verification needs much", need * GIB)


@pytest.mark.parametrize(("has_program", "free", "blamed"), [(True, 60, True), (True, 20, False), (False, 60, False)])
def test_whose_fault_a_shortage_is(monkeypatch, has_program, free, blamed):
    monkeypatch.setattr("verifier.timing.blocks.GIVEN_BACK_SECONDS", 0)
    ended = []
    party = SimpleNamespace(device=device(free), has_program=has_program, end=lambda: ended.append(1))
    failure = PartyFailure("raised", "tried to allocate 8.00 GiB", error_class="OutOfMemoryError", request="call")
    Caller(party, [], 1.0, need=40 * GIB)._short(failure)
    assert bool(ended) == has_program and (failure.request == "call") == blamed
    assert blamed or (f"{free}.0 of 140.0 GiB" in failure.message and "needs 40.0 GiB" in failure.message)


def test_the_peak_of_a_large_task_on_an_h200():
    """KernelBench's L1 norm takes 8 GiB in and 8 GiB out and needs, besides the inputs, one temporary or the output; in fp64 it needs twice that,
    plus a copy of the inputs."""
    ledger = Ledger(8 * GIB, 8 * GIB, 0, eager=8 * GIB, precise=32 * GIB, process=700 << 20)
    assert 70 * GIB < ledger.peak() < 80 * GIB and ledger.program() < 35 * GIB
    assert "too little" in too_little(SimpleNamespace(name="cpu", free_bytes=lambda: None, total_bytes=lambda: None), "for it")
