"""The time limit for finding each input's own domain."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from verifier.correctness import bearing
from verifier.correctness.bearing import LOST, borne_alone


class Reference:
    """A task with probabilities, for which a kernel fails an assertion, and a gain that may be any number."""

    limits = SimpleNamespace(correctness=20)

    def __init__(self, seconds: float):
        self.now, self.seconds = 0.0, seconds

    def clock(self) -> float:
        return self.now

    def inputs(self, seed: int) -> SimpleNamespace:
        return SimpleNamespace(nbytes=64, tensors=[torch.rand(4), torch.rand(4), torch.rand(4)])


def searched(monkeypatch: pytest.MonkeyPatch, seconds: float, bears) -> tuple[list, bool, int]:
    asked = []

    def probe(reference, expectations, index, domain, seed):
        asked.append(index)
        reference.now += reference.seconds
        return bears(index, domain)

    monkeypatch.setattr(bearing, "_bears", probe)
    found, anew = borne_alone(Reference(seconds), None, 1)
    return found, anew, len(asked)


def test_processes_that_assertions_end_do_not_use_up_the_time(monkeypatch):
    """Two inputs must stay within their range; each wider draw costs a process, which takes two seconds to replace."""
    found, anew, _ = searched(monkeypatch, 2, lambda index, domain: (index == 2 or domain.floats != "any", index < 2 and domain.floats == "any"))
    assert anew and [domain.floats for domain in found] == ["signs", "signs", "any"]


def test_their_number_is_limited(monkeypatch):
    found, anew, asked = searched(monkeypatch, 0, lambda index, domain: (False, True))
    assert anew and asked == min(LOST, 9) and found == [None] * 3


def test_a_slow_task_is_not_searched_for_long(monkeypatch):
    found, anew, asked = searched(monkeypatch, 4, lambda index, domain: (index == 2, False))
    assert not anew and asked == 2 and found == [None] * 3
