"""Data sets built from the traces shipped in the repository, and from modified copies of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agents import sound
from agents.rl.cli import main
from agents.rl.data import export, sources, writing
from agents.rl.data.rows import RunTrace, rows_of
from agents.rl.data.scrub import Scrubber
from tests.unit.rl.rl_reports import failed
from verifier.source import sha256

EXAMPLES = Path(__file__).parents[3] / "examples"
TRACES = EXAMPLES / "traces"
RUNS = len(list(TRACES.glob("*/trace.jsonl")))
CLEAN = Scrubber({})


def trace(name: str, **changed) -> RunTrace:
    events, stored = sound.read(TRACES / name)
    return replace(RunTrace(events, stored.__getitem__, "stated by us", "trace"), **changed)


def test_rows_say_where_they_come_from():
    rows = list(rows_of(trace("attention"), CLEAN))
    assert [(row.skill, row.kind) for row in rows] == [("write", "write"), ("write", "write"), ("improve", "optimise")]
    better = rows[2]
    assert sha256(better.program) == better.program_sha and sha256(better.before) == better.before_sha and sha256(better.task) == better.task_sha
    assert json.loads(better.diagnosis_before)["bottleneck"] == "launch" and better.strategy == "cuda-graph"
    assert better.device_model == "h200" and better.agreement == "stated by us" and json.loads(better.report)["status"] == "passed"
    assert better.reward is None and json.loads(better.components)["no_sample"] == "other-clock"  # measured by the first version of the clock
    assert len({row.id for row in rows}) == 3


def with_report(name: str, candidate: int, change) -> RunTrace:
    """Returns the trace with one candidate's report modified."""
    one = trace(name)
    number = next(e for e in one.events if e.kind == "verification.finished" and e.payload.get("candidate") == candidate).payload["result"]["sha"]

    def artefact(sha: str) -> bytes:
        data = one.artefact(sha)
        if sha != number:
            return data
        answer = json.loads(data)
        return json.dumps({**answer, "report": change(answer["report"])}).encode()

    return replace(one, artefact=artefact)


def test_a_failure_that_was_repaired_is_a_row_of_its_kind():
    def fail(report):
        return {**failed("wrong_result", message="wrong at /home/ada/x"), "task": report["task"], "program": report["program"]}

    rows = list(rows_of(with_report("attention", 1, fail), CLEAN))
    assert [row.kind for row in rows] == ["write", "repair"]
    assert rows[1].status_before == "wrong_result" and "/home/[person]" in rows[1].feedback


def test_a_report_of_another_program_makes_no_row():
    skipped = []
    rows = list(rows_of(with_report("attention", 1, lambda report: {**report, "program": "0" * 64}), CLEAN, skipped.append))
    assert [row.kind for row in rows] == ["write"] and "candidate 1: the report is of another program" in skipped


def test_what_people_called_a_hack_teaches_nothing():
    assert not list(rows_of(trace("attention", verdicts={1: "hack", 2: "retracted"}), CLEAN))


def test_a_program_with_a_key_stays_at_home():
    program = trace("attention").artefact(next(row for row in rows_of(trace("attention"), CLEAN)).program_sha).decode()
    word = max(program.split(), key=len)
    assert not list(rows_of(trace("attention"), Scrubber({"MY_SECRET": word})))


def test_an_unfinished_run_teaches_nothing():
    assert not list(rows_of(trace("attention", events=trace("attention").events[:-1]), CLEAN))


def run(*arguments: object) -> int:
    return main([str(one) for one in arguments])


def test_the_command_writes_files_that_can_be_read_back(tmp_path, capsys):
    assert run("export", "--traces", TRACES, "--agreed-by", "us", "--out", tmp_path, "--format", "jsonl", "--json") == 0
    manifest = json.loads(capsys.readouterr().out)
    rows = [row for path in sorted(tmp_path.glob("*.jsonl")) for row in writing.read_rows(path)]
    assert len(rows) == manifest["rows"] == sum(manifest["files"].values()) and manifest["runs"] == RUNS
    again = tmp_path / "again"
    fixed = dict.fromkeys(json.loads((tmp_path / "splits.json").read_text()), "test")
    (tmp_path / "fixed.json").write_text(json.dumps(fixed))
    command = ["export", "--traces", TRACES, "--agreed-by", "us", "--out", again, "--format", "jsonl", "--splits", tmp_path / "fixed.json"]
    assert run(*command) == 0 and run(*command) == 2  # existing data are not mixed with other data
    assert set(json.loads((again / "splits.json").read_text()).values()) == {"test"}


def test_a_leak_fails_the_export(tmp_path, capsys):
    held = tmp_path / "held"
    held.mkdir()
    shutil.copy(EXAMPLES / "rms_norm.py", held)
    (held / "rms_norm.py").write_text((held / "rms_norm.py").read_text().replace("mean_square", "m").replace("1e-6", "1e-5").replace("2048", "64"))
    command = ["export", "--traces", TRACES, "--agreed-by", "us", "--format", "jsonl", "--held-out", held]
    assert run(*command, "--out", tmp_path / "a") == 1
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["leaks.json"] and "100% like" in capsys.readouterr().err
    assert run(*command, "--out", tmp_path / "b", "--drop-leaks") == 0
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["tasks"] == RUNS - 1 and manifest["leaks"]["rows_dropped"] == 3


def test_splits_that_were_given_out_apart_are_a_leak():
    rows = export.collect([("a", trace("rms_norm"))], CLEAN).rows
    other = replace(rows[0], task=rows[0].task.replace("mean_square", "m"), task_sha="b" * 64)
    report = export.leak_report(export.with_splits([rows[0], other], 0, {rows[0].task_sha: "train", other.task_sha: "test"}), {})
    assert [leak.train for leak in report.leaks] == [rows[0].task_sha]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--traces", TRACES], "--agreed-by"),
        (["--traces", EXAMPLES / "nothing", "--agreed-by", "us"], "holds no trace.jsonl"),
        ([], "nothing to export"),
        (["--traces", TRACES, "--agreed-by", "us", "--held-out", TRACES / "attention"], "no task"),
    ],
)
def test_errors_say_what_to_do(arguments, says, tmp_path, capsys):
    assert run("export", "--out", tmp_path, "--format", "jsonl", *arguments) == 2
    assert says in capsys.readouterr().err


def test_parquet_says_what_is_missing(tmp_path, monkeypatch):
    def missing():
        raise writing.CannotWrite(writing.MISSING)

    monkeypatch.setattr(writing, "_pyarrow", missing)
    assert run("export", "--traces", TRACES, "--agreed-by", "us", "--out", tmp_path) == 2


def test_parquet_keeps_every_field(tmp_path):
    pytest.importorskip("pyarrow")
    rows = export.collect([("a", trace("rms_norm"))], CLEAN).rows
    assert writing.read_rows(writing.write_rows(tmp_path, "x", rows, "parquet", {"version": 1})) == rows


def test_cheats_are_few():
    row = export.collect([("a", trace("rms_norm"))], CLEAN).rows[0]
    rows = [replace(row, id=str(n), quality="cheat" if n % 3 == 0 else "tuned", split="train" if n < 240 else "test") for n in range(300)]
    kept = export.with_few_cheats(rows)
    for part in ("train", "test"):
        mine = [one.quality for one in kept if one.split == part]
        assert 0 < mine.count("cheat") <= 0.05 * len(mine) and mine.count("cheat") + 1 > 0.05 * (len(mine) + 1) - 1
    assert [one.quality for one in kept].count("tuned") == 200


def test_the_score_of_a_report_by_command(tmp_path, capsys):
    rows = export.collect([("a", trace("rms_norm"))], CLEAN).rows
    (tmp_path / "task.py").write_text(rows[0].task)
    (tmp_path / "program.py").write_text(rows[0].program)
    report = next(e for e in trace("rms_norm").events if e.kind == "verification.finished" and e.payload.get("candidate") == 1).payload["result"]
    answer = TRACES / "rms_norm" / "artefacts" / report["sha"]
    assert run("score", answer, "--task", tmp_path / "task.py", "--program", tmp_path / "program.py") == 0
    assert json.loads(capsys.readouterr().out)["no_sample"] == "other-clock"


def test_what_a_database_says_of_its_runs_comes_along(tmp_path):
    shutil.copytree(TRACES / "attention", tmp_path / "a")
    (tmp_path / "a" / "agreement.json").write_text(json.dumps({"by": "the team's owner ada", "verdicts": {"2": "hack"}}))
    shutil.copytree(TRACES / "rms_norm", tmp_path / "b")
    (tmp_path / "b" / "agreement.json").write_text("{}")
    found = export.collect(sources.folders([tmp_path]), CLEAN)
    assert [(row.candidate, row.agreement, row.origin) for row in found.rows] == [(1, "the team's owner ada", "database")]
    assert list(found.unusable.values()) == ["its agreement.json cannot be read (KeyError)"]


def test_the_database_is_asked_through_manage(tmp_path, monkeypatch):
    manage = tmp_path / "manage.py"
    monkeypatch.setattr(sources, "MANAGE", manage)
    with pytest.raises(sources.NoSource, match="checkout"):
        list(sources.database())
    manage.write_text("import sys; sys.exit('CommandError: no team agreed')")
    with pytest.raises(sources.NoSource, match="no team agreed"):
        list(sources.database())
    said = "{'by': 'ada', 'verdicts': {}}"
    copy = f"import json, shutil, sys; p = sys.argv[2] + '/a'; shutil.copytree({str(TRACES / 'rms_norm')!r}, p)"
    manage.write_text(f"{copy}; open(p + '/agreement.json', 'w').write(json.dumps({said}))")
    assert [row.agreement for row in export.collect(sources.database(), CLEAN).rows] == ["ada"] * 3


def test_a_folder_without_agreement_is_refused():
    with pytest.raises(sources.NoSource, match="--agreed-by"):
        list(sources.folders([TRACES], " "))
