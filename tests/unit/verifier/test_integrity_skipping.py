"""The functions that are made to do nothing, their order, and the resulting findings."""

from __future__ import annotations

import contextlib
import random
from types import SimpleNamespace

import pytest
import torch

from verifier.integrity import skipping as module
from verifier.integrity.skipping import Gone, Skipping
from verifier.judge.session import Values
from verifier.layout import Spec
from verifier.timing.call import Call
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


class Fake:
    """A program's process. `needs(number, in_series)` says whether call `number` of a turn uses the function that `patched` empties."""

    def __init__(self, needs):
        self.needs, self.patched, self.made = needs, False, []
        self.caller, self.alive = self, True
        self.runner = SimpleNamespace(gate=SimpleNamespace(alone=contextlib.nullcontext), device=SimpleNamespace(timed_on=[3, 5]), alive=True)

    def turn(self, uses, in_series):
        self.made.append((len(uses), in_series, self.processor))
        found = []
        for number, use in enumerate(uses):
            with use.applied() as (x,):
                output = x + 1 if not (self.patched and self.needs(number, in_series)) else torch.zeros_like(x)
            found.append(Call(1, 1, 0, 0, None, [], [output.clone()], None, [True], in_series=in_series, use=use))
        return [call for call, use in zip(found, uses, strict=True) if use.counted]

    @contextlib.contextmanager
    def patch(self, names):
        self.patched = True
        yield self
        self.patched = False


def searched(needs, form, monkeypatch):
    def inputs(seed):
        x = torch.rand(8, generator=torch.Generator().manual_seed(seed % 1000))
        return Values({"l": [{"t": 0}]}, [Spec.of(x)], [x])

    reference = SimpleNamespace(state=[], mutated=[], inputs=inputs, reshaped=lambda values, name, domain, seed: values)
    trials = SimpleNamespace(
        reference=reference,
        constructions=SimpleNamespace(binding=SimpleNamespace(how="loaded")),
        reconstruct=lambda *args, **kwargs: None,
        first_calls=SimpleNamespace(compiles=False),
        limits=SimpleNamespace(call=10.0),
    )
    monkeypatch.setattr(Skipping, "_equal", lambda self, one, other: torch.equal(one.outputs[0], other.outputs[0]))
    fake = Fake(needs)
    return Skipping(trials, lambda: fake, fake.patch, random.Random(1), 1.0, form).look({"product": 0.9}), fake


def test_calls_without_a_function_have_the_timed_form(monkeypatch: pytest.MonkeyPatch):
    """A program that uses its own kernel only in single calls does not need it in the timed ones."""
    form = Form(2, 6)
    needless, fake = searched(lambda number, in_series: not in_series, form, monkeypatch)
    assert needless == ["product"] and set(fake.made) == {(8, True, 0)}
    assert searched(lambda number, in_series: in_series, form, monkeypatch)[0] == []
    needless, fake = searched(lambda number, in_series: True, None, monkeypatch)
    assert needless == [] and set(fake.made) == {(1, False, 0)}


def test_a_function_that_only_few_calls_of_a_series_need_counts_for_nothing(monkeypatch: pytest.MonkeyPatch):
    assert searched(lambda number, in_series: number in (3, 5), Form(2, 6), monkeypatch)[0] == ["product"]
    assert searched(lambda number, in_series: number % 2 == 0, Form(2, 6), monkeypatch)[0] == []
