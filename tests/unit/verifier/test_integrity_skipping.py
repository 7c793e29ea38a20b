"""The functions that are made to do nothing, their order, and the resulting findings."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace

import pytest

from verifier.integrity import skipping as module
from verifier.integrity.skipping import Gone, Skipping
from verifier.timing.series import Form


class Patched(Skipping):
    """Tests a program that needs the functions in `needed`."""

    def __init__(self, needed: set[str], lost: set[str] = frozenset()):
        reference = SimpleNamespace(state=[], mutated=[], inputs=lambda seed: seed, reshaped=lambda values, name, domain, seed: values)
        trials = SimpleNamespace(reference=reference, constructions=SimpleNamespace(binding=SimpleNamespace(how="loaded")))
        super().__init__(trials, lambda: None, contextlib.nullcontext, random.Random(1), 1.0)
        self.needed, self.lost, self.asked = needed, lost, []

    def _same(self, names, values):
        self.asked.append(names)
        if self.lost & set(names):
            raise Gone
        return not self.needed & set(names)


def test_each_larger_function_is_asked_for_itself():
    skipping = Patched({"product"})
    assert skipping.look({"burn": 0.5, "product": 0.4, "tail": 0.01}) == ["burn", "tail"]
    assert skipping.asked.count(["product"]) == 1  # the first inputs already reveal it


def test_what_seems_needless_is_tried_with_other_inputs_too():
    skipping = Patched(set())
    assert skipping.look({"clamp": 0.5}) == ["clamp"]
    assert len(skipping.asked) == len(module.DISTRIBUTIONS)


def test_many_small_functions_are_taken_together_and_then_apart():
    skipping = Patched({"f3"})
    shares = {f"f{number}": 0.03 for number in range(16)}
    needless = set(skipping.look(shares))
    assert "f3" not in needless and len(needless) >= 14


def test_a_function_without_which_the_process_is_lost_is_needed():
    assert Patched(set(), lost={"constructor"}).look({"constructor": 0.6, "burn": 0.3}) == ["burn"]


def test_one_program_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TRIED", 3)
    skipping = Patched({f"f{number}" for number in range(20)})
    assert skipping.look({f"f{number}": 0.05 for number in range(20)}) == [] and skipping.tried == 3


@pytest.mark.parametrize("seeded", [False, True])
def test_calls_without_a_function_are_the_last_of_a_series(seeded):
    """A program may use its own kernels in single calls alone."""
    made = [Skipping._uses("inputs", rng, Form(2, 6, seeded)) for rng in range(6)]
    assert [len(uses) for uses in made] == [3, 4, 5, 6, 7, 8]
    assert all([use.counted for use in uses] == [False] * (len(uses) - 1) + [True] for uses in made)
    assert all(use.rng == (rng if seeded else None) for rng, uses in enumerate(made) for use in uses)


def test_for_the_largest_function_the_object_is_as_old_as_the_timed_one():
    made = []
    caller = SimpleNamespace(turn=lambda uses, in_series: made.append(len(uses)))
    skipping = Patched(set())
    skipping.form, skipping.turns = Form(2, 6), 5
    skipping._age(SimpleNamespace(caller=caller))
    assert made == [8] * 5
    skipping.form = None
    skipping._age(SimpleNamespace(caller=caller))
    assert len(made) == 5
