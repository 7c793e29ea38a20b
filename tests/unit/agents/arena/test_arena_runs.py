"""A contest on real tasks: runs in separate folders, with a verifier that answers immediately."""

from __future__ import annotations

import json

import pytest

from agents.arena.report import of_runs, write
from agents.arena.runs import Contest, run_all
from agents.llm.errors import ModelFailure
from agents.settings import Budget
from tests.unit.agents.agent_fakes import TASK, FakeClient

TASKS = {"one": TASK, "two": TASK.replace("softmax", "log_softmax")}


async def quick(run):
    """A workflow that writes one program, whose speed depends on the seed."""
    from agents.run import Finish
    from agents.workflows.measuring import measure

    async with run.span("only", "Only", "coder") as span:
        source = f"# speed {1 + run.settings.seed}.0\n" if run.settings.workflow == "stitch" else "# status wrong_result\n"
        await span.propose(source, parent=None, title="t", step="", changes="", strategy="")
        report = await measure(span, source, 1, "full")
    if report.status != "passed":
        return Finish("failed", "nothing passed")
    return Finish("improved", "it is faster", 1, report.speedup)


@pytest.mark.asyncio
async def test_every_run_has_its_folder_and_a_resumed_contest_repeats_none(tmp_path, monkeypatch):
    from agents.workflows import FUNCTIONS

    for name in ("stitch", "forge"):
        monkeypatch.setitem(FUNCTIONS, name, quick)
    contest = Contest(TASKS, ["stitch", "forge"], [1, 2], "built-in", Budget(candidates=2), "cpu")
    client, seen = FakeClient(), []
    rows, waiting = await run_all(contest, tmp_path, client, None, None, lambda rows, waiting: seen.append(len(rows)))
    assert seen == list(range(1, 9)) and not waiting
    assert {(r.task, r.workflow, r.seed, r.success, r.speedup) for r in rows if r.workflow == "stitch"} == {
        (task, "stitch", seed, True, 1.0 + seed) for task in TASKS for seed in (1, 2)
    }
    assert all(not r.success and r.outcome == "failed" for r in rows if r.workflow == "forge")
    assert (tmp_path / "runs/stitch/one/seed-2/best.py").exists() and all((tmp_path / row.place / "trace.jsonl").exists() for row in rows)

    asked = len(client.calls)
    again, _ = await run_all(contest, tmp_path, client, None, None, lambda rows, waiting: None)
    assert again == rows and len(client.calls) == asked

    content, text = of_runs(contest, rows, waiting, {"device_name": "a test"}, 1.0)
    write(tmp_path, content, text)
    assert "| stitch | 4/4 | 2.45" in text and "| forge | 0/4 | 1.00" in text and "8 of 8 runs have ended" in text and "## Task by task" in text
    assert json.loads((tmp_path / "arena.json").read_text())["scores"][0]["worst_seed"] == 1


class Silent:
    """Models that never answer."""

    def __init__(self):
        self.asked = 0

    def known(self, profile):
        return True

    def estimate(self, profile, request):
        return {"calls": 1}

    async def ask(self, profile, request, *, key, run, on_delta):
        self.asked += 1
        raise ModelFailure("unreachable", "the server does not answer", "start it", attempts=1)


@pytest.mark.asyncio
async def test_a_run_whose_model_does_not_answer_waits_and_is_asked_again_on_resume(tmp_path):
    contest = Contest({"one": TASK}, ["forge"], [1], "silent", Budget(candidates=2, calls=3), "cpu")
    models = Silent()
    for asked in (1, 2):
        rows, waiting = await run_all(contest, tmp_path, FakeClient(), models, None, lambda rows, waiting: None)
        assert not rows and len(waiting) == 1 and "forge on one, seed 1: paused" in waiting[0]
        assert models.asked == asked
    _, text = of_runs(contest, rows, waiting, {}, 1.0)
    assert "0 of 1 runs have ended" in text and "Not ended:" in text


def test_what_was_learned_on_the_suite_stays_out_of_it():
    contest = Contest(TASKS, ["stitch"], [1], "built-in", Budget(), "cpu")
    assert all(contest.split.holds(sha) for sha in contest.plain()["tasks"].values()) and not contest.split.holds("0" * 64)
