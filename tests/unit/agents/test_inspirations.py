from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from agents.events import Event
from agents.journal import line_of
from agents.memory.inspirations import FolderInspirations, Inspiration, Split, ranked, recall
from agents.roles.situation import Situation
from agents.settings import Settings
from agents.strategies.ledger import entries, score
from verifier.graph import Capture, Graph, Node
from verifier.source import sha256
from verifier.task import TensorSpec

TASK = "a task"


def trace(*, finished: bool = True, outcome: str = "improved", task: str = "f" * 64, strategy: str = "row-cache", ratio: float = 2.0) -> list[Event]:
    speedup = {"ratio": ratio, "low": ratio, "high": ratio}
    said = [
        ("run.started", "", {"task": {"sha": task, "name": "t"}, "device": "cuda:0", "precision": "fp32-strict"}),
        ("plan.proposed", "plan", {"steps": [{"id": "g1", "operators": ["softmax"]}]}),
        ("candidate.proposed", "s", {"candidate": 1, "parent": None, "strategy": strategy, "step": "g1", "changes": "kept the row"}),
        ("verification.finished", "s", {"key": "s#1", "job": "verify", "candidate": 1, "status": "passed", "tier": "quick", "speedup": speedup,
                                        "result": {"sha": "r" * 64}}),
        ("verification.finished", "c", {"key": "c#1", "job": "verify", "candidate": 1, "status": "passed", "tier": "full",
                                        "speedup": {**speedup, "ratio": 9.0}}),
    ]  # fmt: skip
    if finished:
        said.append(("run.finished", "", {"outcome": outcome, "best": 1, "speedup": speedup if outcome == "improved" else None}))
    at = "2026-01-01T00:00:00.000000+00:00"
    return [Event(run="r", seq=n, at=at, span=span, kind=kind, payload=payload) for n, (kind, span, payload) in enumerate(said, 1)]


def keep(folder, events: list[Event]) -> None:
    (folder / "artefacts").mkdir(parents=True)
    (folder / "artefacts" / ("r" * 64)).write_text(json.dumps({"report": {"environment": {"device_model": "h200"}}}))
    (folder / "trace.jsonl").write_bytes(b"".join(map(line_of, events)))


def find(folder, operators=("softmax",), device="cuda", exclude=None):
    return asyncio.run(FolderInspirations(folder).find(operators, device, exclude or Split()))


def test_a_folder_of_finished_runs_inspires(tmp_path):
    keep(tmp_path / "one", trace())
    keep(tmp_path / "two" / "deeper", trace(strategy="vectorise", ratio=1.2))
    keep(tmp_path / "running", trace(strategy="cuda-graph", finished=False))
    keep(tmp_path / "failed", trace(strategy="split-k", outcome="failed"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "trace.jsonl").write_text("not json\n")
    found = find(tmp_path)
    assert [(one.strategy, one.gain, one.device_model) for one in found] == [("row-cache", 2.0, "h200"), ("vectorise", 1.2, "h200")]
    assert found[0].line == "- row-cache on softmax (h200): 2.00x over the program before it: kept the row"
    assert find(tmp_path, ["convolution"]) == [] and find(tmp_path, device="cpu") == []
    assert find(tmp_path, exclude=Split(tasks=frozenset(["f" * 64]))) == []


def test_a_run_that_finishes_meanwhile_is_seen(tmp_path):
    port = FolderInspirations(tmp_path)
    assert asyncio.run(port.find(["softmax"], "cuda", Split())) == []
    keep(tmp_path / "late", trace())
    assert len(asyncio.run(port.find(["softmax"], "cuda", Split()))) == 1


def test_a_run_that_is_taken_away_meanwhile_stops_nobody(tmp_path, monkeypatch):
    keep(tmp_path / "kept", trace())
    gone = tmp_path / "gone" / "trace.jsonl"
    monkeypatch.setattr(type(tmp_path), "rglob", lambda folder, name: iter([gone, tmp_path / "kept" / name]))
    assert len(find(tmp_path)) == 1


def test_what_is_realised_is_measured_in_one_tier():
    (entry,) = entries(trace())
    assert (entry.realised, entry.outcome, entry.confirmed, entry.device) == (2.0, "gained", True, "cuda"), "tier full does not count here"
    assert score([entry]).win_rate == 1.0 and score([]).win_rate is None


def some(strategy: str, operators: list[str], gain: float = 1.5, device: str = "cuda") -> Inspiration:
    return Inspiration(strategy=strategy, operators=operators, device=device, gain=gain)


def test_what_fits_best_comes_first_and_each_strategy_once():
    known = [some("a", ["softmax", "convolution", "GELU"], 1.6), some("b", ["Softmax"], 1.5), some("b", ["softmax"], 1.4), some("c", ["mean"], 9.0)]
    assert [(one.strategy, one.gain) for one in ranked(known, ["softmax"], "cuda:1")] == [("b", 1.5), ("a", 1.6)]
    both = [some("best", ["softmax"], 3.0), some("second", ["softmax"], 2.0), some("best", ["softmax"], 1.2)]
    assert [(one.strategy, one.gain) for one in ranked(both, ["softmax"], "cuda")] == [("best", 3.0), ("second", 2.0)]
    assert len(ranked([some(str(n), ["softmax"]) for n in range(9)], ["softmax"], "cuda")) == 4


@pytest.mark.parametrize(
    ("split", "task", "suites", "held"),
    [
        (Split(), "t", ["s"], False),
        (Split(tasks=frozenset(["t"])), "t", [], True),
        (Split(suites=frozenset(["s"])), "t", ["s", "other"], True),
        (Split(suites=frozenset(["s"])), "t", ["other"], False),
    ],
)
def test_a_split_holds_tasks_and_suites(split, task, suites, held):
    assert split.holds(task, suites) is held


def test_recalling_is_an_effect_that_excludes_the_task_itself():
    asked, kept = [], {}

    class Port:
        async def find(self, operators, device, exclude):
            asked.append((operators, device, exclude))
            return [some("row-cache", ["softmax"])]

    async def effect(name, call):
        kept[name] = kept.get(name) or json.loads(json.dumps(await call()))
        return kept[name]

    node = Node(name="softmax", op="aten._softmax.default", args=[], kwargs={}, outputs=[TensorSpec(shape=(2, 2), dtype="float32")])
    capture = Capture(task=sha256(TASK), mode="train", graph=Graph(inputs=[], nodes=[node], outputs=[]))
    situation = Situation(TASK, "t", Settings(device="cuda:0"), capture=capture)
    span = SimpleNamespace(run=SimpleNamespace(inspirations=Port(), split=None), effect=effect)
    assert [one.strategy for one in asyncio.run(recall(span, situation))] == ["row-cache"]
    assert asked == [(["softmax"], "cuda:0", Split(tasks=frozenset([sha256(TASK)])))] and list(kept) == ["inspirations"]
    span.run.split = Split(suites=frozenset(["KernelBench L1"]))
    asyncio.run(recall(span, situation))
    assert asked[-1:] == asked[:1], "a second time it is found in the journal"
