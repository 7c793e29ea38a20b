"""The outputs of a few early timed calls are kept until the end, so that a ring of buffers of any length is detected."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from verifier.judge.session import Values
from verifier.layout import Spec
from verifier.parties.owning import MOST_HELD, HeldOutputs
from verifier.timing import blocks
from verifier.timing.blocks import HELD_EARLY, Caller
from verifier.timing.series import Use

X = torch.rand(8)


class Program(Caller):
    """A program's party that returns each of its `buffers` in turn, or new memory if it has none."""

    def __init__(self, buffers: int, has_program: bool = True):
        super().__init__(SimpleNamespace(has_program=has_program), [Spec.of(X)], 1.0)
        self.ring, self.kept, self.asked, self.turns = [torch.zeros(8) for _ in range(buffers)], HeldOutputs(), [], 0

    def call(self, values, rng, flush=True, fresh_address=True, reread=False, hold=False):
        place = self.ring[self.turns % len(self.ring)] if self.ring else torch.zeros(8)
        self.turns += 1
        place.fill_(self.turns)
        if hold:
            self.kept.add([place], [])
        return SimpleNamespace(specs=[Spec.of(place)], outputs=[place.clone()])

    def held(self, number, specs):
        return self.kept.of(number)

    def times(self, count):
        for _ in range(count):
            self.turn([Use(Values({"l": []}, []), 0, True)], in_series=False)
        return self


def test_a_ring_longer_than_what_trials_hold_is_seen():
    assert Program(40).times(60).overwritten([False]) and not Program(40).times(30).overwritten([False])


def test_new_memory_and_what_the_task_itself_lends_may_be_held():
    assert not Program(0).times(60).overwritten([]) and not Program(40).times(60).overwritten([True])


def test_memory_that_is_reused_only_later_is_seen():
    class Late(Program):
        def call(self, values, rng, **kwargs):
            self.ring = [torch.zeros(8)] if self.turns < 50 else self.ring[:1]
            return super().call(values, rng, **kwargs)

    assert all(Late(1).times(200).overwritten([False]) for _ in range(5)), "each is missed once in 4,000 times"


def test_only_a_program_holds_and_only_a_few_outputs_of_some_size(monkeypatch):
    held = [len(Program(0).times(200).early) for _ in range(20)]
    assert all(HELD_EARLY <= count <= MOST_HELD for count in held) and max(held) > HELD_EARLY
    assert not Program(0, has_program=False).times(20).early
    monkeypatch.setattr(blocks, "HELD_LATER_BYTES", 1)
    assert len(Program(0).times(20).early) == HELD_EARLY
    monkeypatch.setattr(blocks, "HELD_EARLY_BYTES", 1)
    assert not Program(0).times(20).early


@pytest.mark.parametrize("gone", [[], None])
def test_what_is_not_held_any_more_says_nothing(gone):
    program = Program(40).times(60)
    program.held = lambda number, specs: gone
    assert not program.overwritten([False])
