"""Data that runs leave for later runs on the same device: how far each strategy kept its promises, and how many kernels there were."""

import json

import pytest
from agent_fakes import TASK

from agents.memory.experience import FolderExperience
from agents.memory.inspirations import Split
from agents.roles.promises import trusted
from agents.roles.situation import Situation
from agents.settings import Settings
from agents.strategies.ledger import Entry, Record, joined, kept, records
from compiler.options import Move, Options


def entry(strategy: str, expected: float | None, realised: float | None, outcome: str = "gained") -> Entry:
    return Entry(run="r", candidate=1, strategy=strategy, expected=expected, realised=realised, outcome=outcome)


def test_a_promise_is_kept_as_far_as_the_gain_came():
    assert [kept(1.5, 1.5), kept(1.5, None), kept(1.5, 0.9), kept(None, 1.3), kept(None, 1.01), kept(1.1, 9.0)] == [1.0, 0.0, 0.0, 1.0, 0.0, 1.5]
    assert kept(4.0, 2.0) == pytest.approx(0.5)
    found = records(
        [
            entry("row-cache", 2.0, 2.0),
            entry("row-cache", 2.0, None, "not right"),
            entry("vectorise", 1.2, 1.0),
            entry("vectorise", 3.0, 3.0, "not measured"),
        ]
    )
    assert found == {"row-cache": Record(tried=2, kept=1.0), "vectorise": Record(tried=1, kept=0.0)}
    assert Record().likely(2.0) == pytest.approx(2.0), "without evidence a promise is believed"
    bad = Record(tried=8, kept=0.0)
    assert 1 < bad.likely(2.0) < 1.2 and bad.likely(0.9) == 0.9
    assert joined(found, {"vectorise": bad})["vectorise"] == Record(tried=9, kept=0.0)


def test_moves_are_ordered_by_what_their_strategies_kept():
    def move(strategy: str, expected: float) -> Move:
        return Move(strategy=strategy, options=Options(), expectation="faster", expected_speedup=expected, why="because")

    situation = Situation(TASK, "softmax", Settings(), records={"cuda-graph": Record(tried=10, kept=1.0)})
    likely = trusted(situation)
    assert likely(move("row-cache", 1.3)) == pytest.approx(1.3)
    assert 1 < likely(move("cuda-graph", 1.8)) < likely(move("row-cache", 1.3))


@pytest.mark.asyncio
async def test_a_folder_keeps_experience_by_device_and_by_task(tmp_path):
    known = FolderExperience(tmp_path)
    await known.learn("h200", "task-1", {"row-cache": Record(tried=1, kept=1.0)}, {"kernel-a": {"block": 512}})
    await known.learn("h200", "task-1", {"row-cache": Record(tried=2, kept=1.0)}, {})
    await known.learn("h200", "task-2", {"row-cache": Record(tried=1, kept=0.0)}, {"kernel-b": {"block": 64}, "kernel-a": {"block": 1024}})
    await known.learn("", "task-3", {"row-cache": Record(tried=9)}, {})
    found = await FolderExperience(tmp_path).recall("h200", ["kernel-a", "kernel-c"], Split())
    assert found.records == {"row-cache": Record(tried=3, kept=1.0)} and found.tuned == {"kernel-a": {"block": 1024}}
    apart = await known.recall("h200", [], Split(tasks=frozenset({"task-2"})))
    assert apart.records == {"row-cache": Record(tried=2, kept=1.0)}, "a task that is scored teaches nothing, the run that comes again counts once"
    assert (await known.recall("h200", ["kernel-a"], Split(suites=frozenset({"level3"})))).records == {}
    assert (await known.recall("cpu", ["kernel-a"], Split())).tuned == {}
    old = json.loads((tmp_path / "h200.json").read_text()) | {"gains": 1}
    (tmp_path / "old.json").write_text(json.dumps(old))
    found = await known.recall("old", ["kernel-a"], Split())
    assert found.records == {} and found.tuned, "gains that were ratios of ratios are discarded, numbers of kernels stay"
    next(tmp_path.glob("h200.json")).write_text("{")
    assert (await known.recall("h200", ["kernel-a"], Split())).tuned == {}, "a damaged file is an empty memory"
