"""Notes, plans, budgets and forks from the command line."""

from __future__ import annotations

import json

import pytest
from agent_fakes import TASK, FakeClient
from model_fakes import AskingRoles, FakeModels

from agents import cli
from agents.journal import read_trace
from agents.llm.errors import ModelFailure
from agents.plan_edits import PlanRefused, edited_plan
from agents.projection import project

PROFILES = '[profiles.fake]\nkind = "mailbox"\n'


class Client(FakeClient):
    async def close(self):
        pass


@pytest.fixture
def models(monkeypatch, tmp_path):
    """Provides one fake model for all processes of a test; the profile also exists in the profiles file."""
    fake = FakeModels()
    (tmp_path / "llm.toml").write_text(PROFILES)
    monkeypatch.setenv("STITCHWORK_LLM_PROFILES", str(tmp_path / "llm.toml"))
    monkeypatch.setattr(cli, "open_verifier", lambda device, data_dir: Client())
    monkeypatch.setattr(cli, "open_models", lambda environment: fake)
    monkeypatch.setattr("agents.cli.roles_for", lambda *_: AskingRoles(3).roles())
    return fake


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "softmax.py"
    path.write_text(TASK)
    return path


def solve(task, out, *more: str) -> int:
    return cli.main(["solve", str(task), "--out", str(out), "--quiet", "--llm", "fake", *more])


def test_a_model_that_does_not_answer_ends_the_process_with_the_run_paused(models, task, tmp_path, capsys):
    models.failures = [ModelFailure("unreachable", "no connection to the server", "start the server")]
    out = tmp_path / "out"
    assert solve(task, out) == 5
    assert "is paused. no connection to the server. Start the server." in capsys.readouterr().err
    assert cli.main(["show", str(out)]) == 0
    assert "paused: no connection" in capsys.readouterr().out
    assert solve(task, out, "--resume") == 0
    assert cli.main(["show", str(out), "--events"]) == 0
    shown = capsys.readouterr().out
    assert "fake did not answer (unreachable)" in shown and "coder asked fake (coder/write): 100 tokens in, 50 out, $0.001" in shown
    assert "tokens in" in shown and "planner" in shown


def test_a_plan_is_read_edited_and_followed(models, task, tmp_path, capsys):
    out = tmp_path / "out"
    assert solve(task, out, "--review-plan") == 5
    capsys.readouterr()
    assert cli.main(["plan", str(out)]) == 0
    plan = json.loads(capsys.readouterr().out)
    plan["summary"] = "my own way"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert cli.main(["plan", str(out), "--edit", str(tmp_path / "plan.json")]) == 0
    assert cli.main(["note", str(out), "mind the tails", "--to", "coder"]) == 0
    assert cli.main(["raise-budget", str(out), "--budget-candidates", "9"]) == 0
    assert solve(task, out, "--resume") == 0
    events, _ = read_trace(out)
    assert project(events).plan.summary == "my own way" and project(events).limits["candidates"] == 9
    assert "my own way" in models.asked[1][1] and "mind the tails" in models.asked[1][1]
    assert cli.main(["plan", str(out), "--edit", str(tmp_path / "plan.json")]) == cli.USAGE
    assert cli.main(["note", str(out), "too late"]) == cli.USAGE
    assert "fork" in capsys.readouterr().err


def test_forked_where_the_budget_refused(models, task, tmp_path, capsys):
    out, new = tmp_path / "out", tmp_path / "new"
    assert solve(task, out, "--budget-calls", "5") == 0
    assert len(models.asked) == 5
    assert cli.main(["fork", str(out), "--at", "refusal", "--out", str(new), "--budget-calls", "8", "--target", "40"]) == 0
    assert "--resume" in capsys.readouterr().out
    assert solve(task, new, "--resume") == 0
    events, artefacts = read_trace(new)
    summary = project(events)
    assert summary.forked.changed.keys() == {"budget", "target"} and 5 < len(models.asked) <= 8 and dict(artefacts)
    assert summary.started.target == 40 and summary.limits["calls"] == 8
    capsys.readouterr()
    cli.main(["show", str(new)])
    assert "forked from event" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--at", "soon"], "number of an event"),
        (["--at", "99999"], "no event 99999"),
        (["--at", "refusal"], "never refused"),
        (["--at", "3", "--coder", "nobody"], "no LLM profile 'nobody'"),
        (["--at", "3", "--target", "-1"], "target"),
    ],
)
def test_forks_that_are_not_possible(models, task, tmp_path, capsys, arguments, said):
    out = tmp_path / "out"
    solve(task, out)
    assert cli.main(["fork", str(out), "--out", str(tmp_path / "new"), *arguments]) == cli.USAGE
    assert said in capsys.readouterr().err and not (tmp_path / "new" / "trace.jsonl").exists()


def test_a_profile_that_is_not_there_is_refused_before_a_run_is_made(models, task, tmp_path, capsys):
    assert cli.main(["solve", str(task), "--out", str(tmp_path / "out"), "--llm", "nobody"]) == cli.USAGE
    assert "nobody" in capsys.readouterr().err and not (tmp_path / "out" / "trace.jsonl").exists()


PLAN = {"summary": "s", "steps": [{"id": "g1", "title": "softmax", "space": "own kernel", "strategies": ["row-cache"]}], "floor_ms": 0.5}


def test_what_a_person_may_change_of_a_plan():
    edited = edited_plan(PLAN, {"summary": "t", "steps": [{"title": "a new one"}, {"id": "g1", "title": "softmax", "space": "pytorch"}]})
    assert [step["id"] for step in edited["steps"]] == ["step-1", "g1"] and edited["floor_ms"] == 0.5
    assert edited["steps"][1]["space"] == "pytorch" and edited["steps"][1]["strategies"] == ["row-cache"]


@pytest.mark.parametrize(
    "edited, said",
    [
        ([], "an object"),
        ({"steps": [1]}, "step 1"),
        ({"steps": [{"id": "g1", "title": ""}]}, "no title"),
        ({"steps": [{"id": "a", "title": "x"}, {"id": "a", "title": "y"}]}, "step 2 has the id"),
        ({"steps": [{"id": "a", "title": "x", "space": "the moon"}]}, "`space` is one of"),
        ({"steps": [{"id": "a", "title": "x", "strategies": "row-cache"}]}, "`strategies` is a list"),
        ({"steps": [{"id": "a", "title": "x", "expected": True}]}, "`expected` is a number"),
        ({"steps": [{"title": "x" * 1900} for _ in range(30)]}, "shorten"),
    ],
)
def test_plans_that_cannot_be_worked_by(edited, said):
    with pytest.raises(PlanRefused, match=said):
        edited_plan(PLAN, edited)
