from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from agents.events import Event
from agents.journal import line_of
from agents.memory.inspirations import FolderInspirations, Inspiration, Split, ranked, recall, signature
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
        ("plan.proposed", "plan", {"steps": [{"id": "g1", "title": "t", "space": "own kernel", "operators": ["softmax"]}]}),
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
    assert found[0].line == "- row-cache on softmax (h200, fp32-strict): 2.00x [2.00, 2.00] over eager: kept the row"
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


def verified(folder, nodes: list[Node], before: str, after: str) -> None:
    """Keeps a finished run of two programs, with everything in its trace; the second was timed in alternation with the first."""
    shas = {name: sha256(text) for name, text in {"1": before, "2": after}.items()}
    capture = Capture(task="f" * 64, mode="train", graph=Graph(inputs=[], nodes=nodes, outputs=[]))
    gain = {"ratio": 1.4, "low": 1.3, "high": 1.5}
    speedup = {"ratio": 2.0, "low": 1.9, "high": 2.1}
    base = {"job": "verify", "status": "passed", "tier": "quick", "speedup": speedup, "result": {"sha": "r" * 64}}
    said = [
        ("run.started", "", {"task": {"sha": "f" * 64, "name": "t"}, "device": "cuda:0", "precision": "tf32", "workflow": "stitch"}),
        ("verification.finished", "c", {"key": "c#1", "job": "capture", "result": {"sha": "c" * 64}}),
        ("plan.proposed", "plan", {"steps": [{"id": "g1", "operators": ["softmax"]}]}),
        ("candidate.proposed", "a", {"candidate": 1, "parent": None, "strategy": "", "step": "g1", "program": {"sha": shas["1"]}}),
        ("verification.finished", "a", {"key": "a#1", "candidate": 1, **base}),
        ("diagnosis.made", "a", {"candidate": 1, "bottleneck": "memory"}),
        ("candidate.proposed", "b", {"candidate": 2, "parent": 1, "strategy": "row-cache", "step": "g1", "program": {"sha": shas["2"]}}),
        ("verification.finished", "b", {"key": "b#1", "candidate": 2, **base, "gain": gain}),
        ("run.finished", "", {"outcome": "improved", "best": 2, "speedup": speedup, "reason": ""}),
    ]
    at = "2026-01-01T00:00:00.000000+00:00"
    keep(folder, [Event(run="r", seq=n, at=at, span=span, kind=kind, payload=payload) for n, (kind, span, payload) in enumerate(said, 1)])
    (folder / "artefacts" / ("c" * 64)).write_text(json.dumps({"capture": capture.model_dump(mode="json")}))
    for name, text in {"1": before, "2": after}.items():
        (folder / "artefacts" / shas[name]).write_text(text)


def chain(*operators: str) -> list[Node]:
    names = [f"n{i}" for i in range(len(operators))]
    return [Node(name=names[i], op=f"aten.{op}", args=[{"ref": names[i - 1]}] if i else []) for i, op in enumerate(operators)]


def test_a_verified_change_is_offered_with_its_programs_diagnosis_interval_and_device(tmp_path):
    verified(tmp_path / "run", chain("mm.default", "_softmax.default"), "a\nb\nc\n", "a\nB ``` x\nc\n")
    (one,) = find(tmp_path)
    assert (one.gain, one.low, one.high, one.bottleneck, one.precision, one.device_model) == (1.4, 1.3, 1.5, "memory", "tf32", "h200")
    assert "-b" in one.difference and "+B" in one.difference
    assert "(h200, tf32): 1.40x [1.30, 1.50] over the program before it, which was memory bound" in one.text
    assert one.text.count("````") == 2, "a fence that the change cannot close"
    verified(tmp_path / "long", chain("mm.default", "_softmax.default"), "a\n" * 300, "b\n" * 300)
    assert any(not found.difference and found.text == found.line for found in FolderInspirations(tmp_path)._all()), "no page of code"


def test_graphs_that_are_alike_come_first(tmp_path):
    wanted = signature(Graph(inputs=[], nodes=chain("mm.default", "_softmax.default", "mm.default"), outputs=[]))
    assert any(" > " in word for word in wanted)
    alike, other = (some(name, ["softmax"]) for name in ("alike", "other"))
    alike.around = wanted
    other.around = signature(Graph(inputs=[], nodes=chain("_softmax.default", "cumsum.default", "relu.default"), outputs=[]))
    assert [one.strategy for one in ranked([other, alike], wanted, "cuda")] == ["alike", "other"]
    assert ranked([some("no", ["relu"])], wanted, "cuda") == [], "what shares an edge but no operator of its own does not fit"


def test_what_memory_is_worth_is_measured_on_the_same_tasks_and_seeds(tmp_path, capsys):
    from agents import cli

    for seed, (given, without) in enumerate([(3.0, 2.0), (2.0, 2.0), (2.2, 2.0)]):
        for kind, ratio in (("with", given), ("without", without)):
            events = trace(ratio=ratio)
            events[0].payload.update(seed=seed, workflow="stitch", mode="train")
            events[-1].payload["reason"] = "it held"
            for event in events:
                event.payload.pop("result", None)
                event.payload.setdefault("title", "a program")
            if kind == "with":
                offer = {"key": "p#1", "name": "inspirations", "value": [{"strategy": "row-cache"}]}
                events.insert(1, events[1].model_copy(update={"kind": "effect.completed", "payload": offer}))
                events = [event.model_copy(update={"seq": n}) for n, event in enumerate(events, 1)]
            keep(tmp_path / kind / str(seed), events)
            (tmp_path / kind / str(seed) / "artefacts" / ("r" * 64)).unlink()
    assert cli.main(["earned", str(tmp_path / "with"), str(tmp_path / "without")]) == 0
    said = capsys.readouterr().out
    assert "with memory over without: 1.18x" in said and "3 pairs" in said and "methods offered: 3 tried, gained 100 %" in said
    assert cli.main(["earned", str(tmp_path / "with"), str(tmp_path / "nowhere")]) == cli.USAGE
