"""State and parameters that a load hook renames."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from verifier.correctness import weights as module
from verifier.correctness.weights import Constructions

TASK = ["norm.weight", "norm.running_mean", "norm.running_var"]


class Runner:
    def __init__(self, names: list[str]):
        self.names, self.asked = names, []

    def ask(self, kind: str, message: dict[str, object], limit: float) -> SimpleNamespace:
        self.asked.append(kind)
        return SimpleNamespace(message={"names": self.names})


class Made(Constructions):
    def __init__(self) -> None:
        entries = [SimpleNamespace(name=name, alias=None) for name in TASK]
        super().__init__(SimpleNamespace(limits=SimpleNamespace(load=1.0), state=entries), 7)
        self.given: list[list[torch.Tensor]] = []

    def construct(self, runner, state, seed=None, vary=None) -> str:
        self.given.append(state)
        return ""


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    values = [torch.randn(4) for _ in TASK]
    monkeypatch.setattr(module, "other_weights", lambda reference, original, seed: values)
    return values


def own(monkeypatch: pytest.MonkeyPatch, entries: dict[str, torch.Tensor]) -> None:
    monkeypatch.setattr(module, "own_entries", lambda runner, limit, held: (list(entries), list(entries.values())))


def test_names_that_the_program_has_are_not_searched():
    made, runner = Made(), Runner(TASK)
    assert not made.renamed(runner, [torch.zeros(4)] * 3, TASK)
    assert runner.asked == ["names"] and made.given == [] and made.binding.of(TASK) == TASK


def test_renamed_entries_are_recognised_by_other_weights(monkeypatch, drawn):
    own(monkeypatch, {"gain": drawn[0].clone(), "variance": drawn[2].clone(), "mean": drawn[1].clone()})
    made = Made()
    assert made.renamed(Runner(["gain", "variance", "mean"]), [torch.zeros(4)] * 3, TASK)
    assert made.given == [drawn] and made.binding.how == "loaded"
    assert made.binding.of(TASK) == ["gain", "mean", "variance"] and made.binding.missing(TASK) == []


def test_an_entry_that_the_program_merges_keeps_the_tasks_name(monkeypatch, drawn):
    own(monkeypatch, {"norm.weight": drawn[0].clone(), "both": torch.stack(drawn[1:])})
    made = Made()
    assert made.renamed(Runner(["norm.weight", "both"]), [torch.zeros(4)] * 3, TASK)
    assert made.binding.of(TASK) == TASK
