"""`python -m agents arena`: arguments, a race on a table, and contests between real runs with a verifier that answers immediately."""

from __future__ import annotations

import json

import pytest

from agents.arena.cli import budget_from, seeds_from
from agents.arena.landscape import save
from agents.arena.synthetic import synthetic
from agents.arguments import Unusable
from agents.cli import main


@pytest.fixture
def table(tmp_path):
    return save(synthetic(2), tmp_path / "table.json")


def test_seeds_and_budgets_are_read_as_people_write_them():
    assert seeds_from("1-3,7, 9-10") == [1, 2, 3, 7, 9, 10]
    budget = budget_from("calls=12,dollars=0.5,verifier_seconds=0")
    assert (budget.calls, budget.dollars, budget.verifier_seconds, budget.candidates) == (12, 0.5, None, None)
    for text in ("", "calls=many", "cats=3", "calls=0"):
        with pytest.raises(Unusable):
            budget_from(text)
    for text in ("x", "3-1", ""):
        with pytest.raises(Unusable):
            seeds_from(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workflows", "stich"], "there is no workflow stich"),
        (["--quality", "godlike"], "there is no quality"),
        (["--llm", "built-in"], "plays only tables"),
        (["--seeds", "a"], "numbers and ranges"),
        (["--workers", "0"], "at least 1"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_in_a_sentence(table, tmp_path, capsys, arguments, said):
    assert main(["arena", "--suite", f"landscape:{table}", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_suite_that_is_not_there(tmp_path, capsys):
    assert main(["arena", "--suite", "landscape:nowhere.json", "--out", str(tmp_path / "out")]) == 2
    assert main(["arena", "--suite", str(tmp_path / "nothing.py"), "--out", str(tmp_path / "out2")]) == 2
    assert main(["arena", "--suite", str(tmp_path), "--llm", "landscape", "--out", str(tmp_path / "out3")]) == 2
    said = capsys.readouterr().err
    assert "nowhere.json" in said and "there is no task" in said and "plays only tables" in said


def test_a_race_writes_its_table_and_goes_on_where_it_was(table, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["arena", "--suite", f"landscape:{table}", "--workflows", "stitch,random", "--seeds", "1-4", "--budget", "calls=8,candidates=8"]
    assert main([*command, "--out", str(out)]) == 0
    first = capsys.readouterr().out
    assert "synthetic, not measured" in first and "| stitch |" in first and "## Why" in first
    content = json.loads((out / "arena.json").read_text())
    assert content["kind"] == "plays on a synthetic table" and {s["workflow"] for s in content["scores"]} == {"stitch", "random"}
    assert all(score["runs"] == 8 for score in content["scores"]) and content["quality"]["name"] == "middling"

    assert main([*command, "--out", str(out)]) == 2
    assert "continue it with --resume" in capsys.readouterr().err
    kept = sorted((out / "plays").iterdir())
    kept[0].unlink()
    times = {path: path.stat().st_mtime_ns for path in kept[1:]}
    assert main([*command, "--out", str(out), "--resume", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["scores"] == content["scores"] and {path: path.stat().st_mtime_ns for path in kept[1:]} == times

    assert main([*command, "--out", str(out), "--resume", "--quality", "weak"]) == 2
    assert "other quality" in capsys.readouterr().err
