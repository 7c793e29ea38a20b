"""Cases in which a program counts as fast only because of things that never vary while it is timed."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from verifier.correctness.inputs import vary
from verifier.integrity import as_timed
from verifier.integrity.further_calls import FEW, Changed, Pace
from verifier.integrity.shortcuts import Shortcuts
from verifier.judge.endings import Ended
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import Values
from verifier.layout import Spec
from verifier.report import BUSY_HOST
from verifier.timing.series import Form, Use

MS = 1e6
WEIGHTS = Changed("other weights", "drop the test", lambda number: None, [torch.ones(1)])


class Tried(Shortcuts):
    """A program that was timed at 1 ms. `other` and `own`: the milliseconds of its turns with and without the change."""

    def __init__(self, other, own=(1.0,), eager=1.0, wrong="", blocks=10, calm=True):
        laps = SimpleNamespace(inner=[int(MS)] * 2 * blocks)
        side = SimpleNamespace(blocks=[[1.0, 1.0]] * blocks, caller=None, laps=laps)
        super().__init__(SimpleNamespace(side=side, caller=None), SimpleNamespace(input_bytes=8), None, random.Random(1))
        self.calm = calm
        self.turns, self.changed, self.eager, self.found, self.objects = {True: other, False: own}, False, eager, wrong, []

    def _construct(self, changed):
        self.changed = True
        self.objects.append("changed")

    def _own(self):
        self.changed = False
        self.objects.append("own")

    def _back(self):
        self.objects.append("back")

    def _pace(self, draw, turns, until):
        pace, known = Pace(calm=self.calm), self.turns[self.changed]
        while pace.turns < turns and (pace.turns < FEW or pace.quickest > until):
            pace.quickest = min(pace.quickest, MS * known[min(pace.turns, len(known) - 1)])
            pace.turns += 1
        return pace

    def _off(self, pace, changed):
        return self.found

    def _eager(self, changed):
        return self.eager

    def _distributions(self):
        return []

    def _as_now(self):
        return None

    def _parameters(self):
        pass

    def _weights(self):
        return WEIGHTS

    def _inputs(self):
        return None

    def after(self):
        self.look()
        return self.said


def test_calls_alike_need_no_further_object():
    tried = Tried([5.0, 1.1])
    assert tried.after() == "" and tried.objects.count("changed") == 1


def test_a_special_case_is_named():
    said = Tried([5.0, 4.0]).after()
    assert "with other weights a call takes 4.0 times as long" in said and "drop the test" in said


@pytest.mark.parametrize("eager", [3.0, 4.0])
def test_what_pytorch_takes_longer_is_left_out(eager):
    assert Tried([4.0], eager=eager).after() == ""


@pytest.mark.parametrize("other", [1.45, 1.0])
def test_small_differences_are_noise(other):
    assert Tried([other]).after() == ""


def test_a_young_object_gets_as_many_calls_as_it_needs():
    slowly = [3.0, 3.0, 3.0, 3.0, 1.0]
    assert Tried([*slowly], own=slowly).after() == "", "honest: quick once it is warm, whatever its weights"
    assert "with other weights" in Tried([3.0] * 5, own=slowly).after(), "quick only after some calls, and only with the constructor's weights"


def test_an_object_that_never_becomes_as_quick_again_was_not_timed_as_a_user_meets_it():
    assert "constructed again, a call takes 3.0 times as long" in Tried([3.0], own=[3.0]).after()


@pytest.mark.parametrize("own", [(1.0,), (3.0,)])
def test_a_busy_host_accuses_no_program(own):
    said = Tried([4.0], own=own, calm=False).after()
    assert any(phrase in said for phrase in BUSY_HOST) and "with other weights" not in said and "constructed again" not in said


def test_a_pace_is_calm_if_its_quickest_turn_has_a_call_of_its_own():
    def turn(pace, *calls):
        pace.add([Use(None, 1, counted=True, new=True) for _ in calls], [SimpleNamespace(inner=ms * MS, preempted=taken) for ms, taken in calls])

    pace = Pace()
    turn(pace, (9.0, True), (8.0, True))
    assert not pace.calm
    turn(pace, (3.0, False), (8.0, True))
    assert pace.calm and pace.quickest == 3.0 * MS
    turn(pace, (5.0, True), (6.0, True))
    assert pace.calm and pace.quickest == 3.0 * MS


def test_wrong_outputs_under_the_change_are_wrong():
    tried = Tried([1.0], wrong="out[0]: off")
    assert tried.after() == "" and tried.wrong == "out[0]: off"
    assert tried.objects[-1] == "back"


@pytest.mark.parametrize(
    ("failure", "ended"),
    [
        (PartyFailure("raised", "no weights like these", error_class="ValueError", whose="program"), True),
        (PartyFailure("raised", "so it says", error_class="OutOfMemoryError", whose="program"), True),
        (PartyFailure("crashed", "it ended", whose="program"), True),
        (PartyFailure("raised", "the device is full", error_class="OutOfMemoryError", request="memory", whose="program"), False),
        (PartyFailure("crashed", "it ended", whose="reference"), False),
        (PartyFailure("wanted", "a build", whose="program"), False),
    ],
)
def test_to_fail_is_no_way_around(failure, ended):
    tried = Tried([1.0])

    def fails(*_):
        raise failure

    tried._pace = fails
    with pytest.raises(Ended if ended else PartyFailure) as raised:
        tried.look()
    assert not ended or raised.value.status == "wrong_result" and failure.message in raised.value.message


def test_what_the_task_itself_does_not_bear_says_nothing():
    tried = Tried([1.0])

    def fails(*_):
        raise PartyFailure("raised", "no", error_class="ValueError", whose="reference")

    tried._off = fails
    assert tried.after() == "" and tried.objects[-1] == "back"


def use(counted):
    return Use(Values({"l": []}, []), None, counted)


def test_the_calls_of_the_quickest_turn_are_kept_and_all_uses_in_order():
    pace, call = Pace(), partial(SimpleNamespace, preempted=False)
    first, second = [use(False), use(True)], [use(True), use(True)]
    pace.add(first, [call(inner=5)])
    pace.add(second, [call(inner=2), call(inner=4)])
    pace.add([use(True)], [call(inner=9)])
    assert pace.quickest == 3 and pace.turns == 3 and [made is not None for _, made in pace.made] == [False, False, True, True, False]


class Inputs(Shortcuts):
    """Inputs that the task rejects if `refuses` is true for them."""

    def __init__(self, tensors, refuses=lambda tensors: False, logs=False):
        def eager(values, rng):
            if refuses(values.tensors):
                raise PartyFailure("raised", "no", error_class="ValueError")
            return SimpleNamespace(outputs=SimpleNamespace(tensors=[values.tensors[0].double().log() if logs else values.tensors[0]]))

        def reshaped(values, name, domain, seed):
            return values if vary(name, values.tensors, domain, torch.Generator().manual_seed(seed)) else None

        def drawn(seed):
            copies = [tensor.clone() for tensor in tensors]
            return Values({"l": []}, [Spec.of(tensor) for tensor in copies], copies)

        reference = SimpleNamespace(inputs=drawn, reshaped=reshaped, eager=eager, rollback=lambda: None, outlive=lambda: False)
        super().__init__(None, SimpleNamespace(reference=reference), Form(0, 1), random.Random(1))


def test_only_inputs_of_equal_elements_change():
    x = torch.rand(64)
    changed = Inputs([x, torch.ones(64, dtype=torch.bool), torch.zeros(64)])._inputs()
    values, _ = changed.draw(0)
    assert torch.equal(values.tensors[0], x) and not values.tensors[1].all() and values.tensors[2].any()
    assert "input 1, 2" in changed.what and changed.weights is None
    assert Inputs([x])._inputs() is None


def test_a_domain_that_the_task_refuses_is_left_out():
    refuses = lambda tensors: bool((tensors[0] < 0).any())  # noqa: E731
    values, _ = Inputs([torch.ones(64)], refuses)._inputs().draw(0) if Inputs([torch.ones(64)], refuses)._inputs() else (None, 0)
    assert values is None or not (values.tensors[0] < 0).any()
    assert Inputs([torch.ones(64)], lambda tensors: True)._inputs() is None
    changed = Inputs([torch.ones(64)], logs=True)._inputs()
    assert changed is None or (changed.draw(0)[0].tensors[0] > 0).all(), "nor may its outputs lose their numbers"


def test_the_timed_object_is_tried_with_other_distributions_before_another_is_made():
    tried = Tried([1.0], wrong="out[0]: off")
    tried._distributions = lambda: [("negative", None), ("large", None)]
    assert tried.after() == "" and tried.wrong == "out[0]: off" and "changed" not in tried.objects


def test_parameters_are_those_that_were_loaded(monkeypatch):
    entry = SimpleNamespace(name="weight", parameter=True, spec=SimpleNamespace(nbytes=8))
    reference = SimpleNamespace(state=[entry], mutated=[])
    binding = SimpleNamespace(how="loaded", of=lambda names: names)

    def wrong(after, how="loaded", mutated=()):
        def ask(what, message, limit):
            held = kept[0]
            specs = [Spec.of(held[name]).model_dump(exclude_none=True) for name in message["names"]] if held.keys() >= {*message["names"]} else None
            return SimpleNamespace(message={"specs": specs, "missing": next((name for name in message["names"] if name not in held), None)})

        kept = [{} if after is None else {"weight": after}, {"weight": torch.ones(2, 3)}]
        tried = Tried([1.0])
        tried._own = lambda: kept.pop(0)
        reference.mutated, binding.how = list(mutated), how
        tried.trials = SimpleNamespace(
            reference=reference, constructions=SimpleNamespace(binding=binding), limits=SimpleNamespace(call=1.0), input_bytes=8
        )
        tried.timed.caller = SimpleNamespace(party=SimpleNamespace(ask=ask))
        monkeypatch.setattr(as_timed, "fetch", lambda *_: list(kept[0].values()))
        Shortcuts._parameters(tried)
        return tried.wrong

    assert "changes its parameter weight" in wrong(torch.full((2, 3), 2.0))
    assert "changes" in wrong(torch.ones(3, 2)) and "changes" in wrong(None) and "changes" in wrong(torch.ones(2, 3).half())
    assert wrong(torch.ones(3, 2).t()) == "" and wrong(torch.zeros(2, 3), "seeded") == "" and wrong(torch.zeros(2, 3), mutated=["weight"]) == ""


def test_other_distributions_start_from_the_state_that_the_calls_have_made(monkeypatch):
    state = [SimpleNamespace(name=name) for name in ("weight", "average")]
    reference = SimpleNamespace(state=state, mutated=["average"])
    tried = Tried([1.0])
    binding = SimpleNamespace(of=lambda names: [f"own.{name}" for name in names])
    tried.trials = SimpleNamespace(reference=reference, original=[torch.ones(2), torch.zeros(2)], constructions=SimpleNamespace(binding=binding))
    monkeypatch.setattr(tried, "_stored", lambda names: {name: torch.full((2,), 5.0) for name in names})
    now = Shortcuts._as_now(tried)
    assert now is not None and [tensor.tolist() for tensor in now] == [[1.0, 1.0], [5.0, 5.0]]
    reference.mutated = []
    assert Shortcuts._as_now(tried) is None
