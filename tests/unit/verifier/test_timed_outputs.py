"""Each program's timed calls are compared with those of its own eager process for the same input, whichever comes first."""

from types import SimpleNamespace

import pytest
import torch

from verifier.layout import Spec
from verifier.report import Trial
from verifier.timing.timed_outputs import KEPT, TimedOutputs

X = torch.rand(64)


@pytest.fixture
def outputs(monkeypatch):
    compared = []

    def trial(self, number, got, expected, whose=0):
        compared.append((number, got, expected))
        return Trial(name=f"timed call {number + 1}", seed=0, ok=not got.startswith("wrong"), detail="off" if got.startswith("wrong") else "")

    monkeypatch.setattr(TimedOutputs, "_trial", trial)
    return compared


def pair(rival=False):
    sides = [SimpleNamespace(name=name) for name in (None, "eager", "compile", *(["rival"] if rival else []))]
    return SimpleNamespace(program=sides[0], baselines=sides[1:])


def test_a_program_is_compared_with_its_own_eager_in_any_order(outputs):
    first, second = pair(), pair()
    timed = TimedOutputs(None, has_rival=False)
    check = timed.of([first, second])
    check(0, second.baselines[0], "eager b")
    check(0, first.program, "program a")
    check(0, first.baselines[1], "compiled: nobody's yardstick")
    check(0, first.baselines[0], "eager a")
    check(0, second.program, "program b")
    assert outputs == [(0, "program a", "eager a"), (0, "program b", "eager b")]
    assert len(timed.checked) == 2 and not timed.failed


def test_what_is_wrong_stays_and_not_all_that_is_right_is_kept(outputs):
    one = pair()
    timed = TimedOutputs(None, has_rival=False)
    check = timed.of([one])
    for number in range(KEPT + 3):
        check(number, one.program, "wrong" if number == 1 else "right")
        check(number, one.baselines[0], "eager")
    assert [trial.name for trial in timed.failed] == ["timed call 2"] and len(timed.checked) == KEPT


def test_a_wrong_rival_is_no_verdict_on_the_program(outputs):
    one = pair(rival=True)
    timed = TimedOutputs(None, has_rival=True)
    check = timed.of([one])
    check(0, one.program, "right")
    check(0, one.baselines[0], "eager")
    assert outputs == []  # until all three are available
    check(0, one.baselines[-1], "wrong rival")
    assert timed.rival_off == "timed call 1: off" and not timed.failed and len(timed.checked) == 1


def made(after, shared=("",)):
    return SimpleNamespace(tree={"t": 0}, specs=[Spec.of(X)], outputs=[X], inputs_intact=[not after], shared=list(shared), after=dict(after))


def timed_outputs():
    expectations = SimpleNamespace(timed_bounds=lambda appeal=False: ([1e-6], [0.0], [None]), decisions=[])
    return TimedOutputs(SimpleNamespace(expectations=expectations), has_rival=False)


def test_what_a_timed_call_writes_to_its_inputs_is_compared_with_what_eager_writes():
    theirs = made({0: X + 1})
    assert timed_outputs()._trial(0, made({0: X + 1 + 1e-7}), theirs).ok
    assert "input 0, which the task changes, is not changed in the same way" in timed_outputs()._trial(0, made({0: X + 1.01}), theirs).detail
    assert "leaves its input 0" in timed_outputs()._trial(0, made({}), theirs).detail
    whole = torch.arange(100_000)
    few = whole.clone()
    few[:5] += 1
    assert timed_outputs()._trial(0, made({0: few}), made({0: whole})).ok, "rounding decides a few whole numbers in many calls"
    assert not timed_outputs()._trial(0, made({0: whole + 1}), made({0: whole})).ok


def test_a_timed_output_owns_its_memory_unless_eagers_does_not():
    for words, said in (
        ("input 0", "out shares its memory with input 0"),
        ("itself", "elements of out share memory"),
        ("last", "with last"),
    ):
        assert said in timed_outputs()._trial(0, made({}, [words]), made({})).detail
        assert timed_outputs()._trial(0, made({}, [words]), made({}, [words])).ok
