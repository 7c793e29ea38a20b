"""Tests the foundations of these tests: prepared data directories, and forked parties that are judged like confined ones."""

from __future__ import annotations

import pytest
from verifier_bench import PROGRAM

from tests.verifier_data import prepared

WRONG = PROGRAM.replace("dim=-1", "dim=0")
RAISES = PROGRAM.replace("return torch", "raise KeyError('here')\n        return torch")


def test_a_prepared_directory_has_what_a_judge_makes_first(tmp_path):
    first, second = prepared(tmp_path / "first"), prepared(tmp_path / "second")
    for pattern in ("shim/clock-*.so", "native/ceiling-*.json"):
        (one,), (other,) = first.glob(pattern), second.glob(pattern)
        assert one.read_bytes() == other.read_bytes()
    assert not (first / "headers").exists() and not (first / "builds").exists()


@pytest.mark.slow
def test_a_forked_party_and_a_confined_one_are_judged_alike(quick, bench):
    for program, status in ((WRONG, "wrong_result"), (RAISES, "crashed")):
        forked, confined = quick.verify_once(program), bench.verify_once(program)
        assert forked.status == confined.status == status
        assert [(trial.name, trial.ok) for trial in forked.trials] == [(trial.name, trial.ok) for trial in confined.trials]
        assert [stage.name for stage in forked.stages] == [stage.name for stage in confined.stages]
    assert forked.message == confined.message
