"""Sessions over several devices: rows are written as they arrive, dead and slow processes get a row, and tasks that the end of a session cuts off
wait for the next one."""

from __future__ import annotations

import json
import sys
import time

import pytest

from bench import beside
from bench.beside import Beside, Result, shuffled

WORK = """
import json, pathlib, sys, time
key, device, out = sys.argv[1:]
if key == "dies":
    sys.exit("no such kernel")
if key == "slow":
    time.sleep(60)
pathlib.Path(out).write_text(json.dumps({"status": "passed", "on": device}))
"""


def session(tmp_path, devices=("a", "b"), seconds=60.0, task_seconds=1.5) -> Beside:
    result = Result(tmp_path / "out.json", {"seed": 0}, lambda rows: {"rows": len(rows)})

    def command(key, device, out):
        return [sys.executable, "-S", "-c", WORK, key, device, str(out)]

    return Beside(result, devices, command, time.monotonic() + seconds, task_seconds, begin_seconds=0.1)


@pytest.mark.slow
def test_every_task_gets_a_row_that_says_what_became_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(beside, "LAST_SECONDS", 0.0)
    series = session(tmp_path)
    assert series.run(["one", "dies", "slow", "two"]) == []
    content = json.loads((tmp_path / "out.json").read_text())
    assert {key: row["status"] for key, row in content["rows"].items()} == {"one": "passed", "two": "passed", "dies": "failed", "slow": "timed_out"}
    assert "no such kernel" in content["rows"]["dies"]["message"] and content["summary"] == {"rows": 4}
    assert all(row["on"] == row["device"] in ("a", "b") for key, row in content["rows"].items() if row["status"] == "passed")


@pytest.mark.slow
def test_what_the_end_cuts_off_has_no_row_and_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(beside, "LAST_SECONDS", 0.0)
    series = session(tmp_path, devices=("a",), seconds=1.0, task_seconds=30.0)
    assert series.run(["slow", "never"]) == ["slow", "never"]
    assert not series.result.rows


def test_a_result_goes_on_with_its_rows_and_refuses_another_draw(tmp_path):
    made = Result(tmp_path / "out.json", {"seed": 0}, len)
    made.notes["device"] = "H100"
    made.add("a", {"status": "printed", "how": "first"})
    made.add("a", {"status": "passed"})
    again = Result(tmp_path / "out.json", {"seed": 0}, len)
    again.resume()
    assert again.rows == {"a": {"status": "passed", "how": "first"}} and again.notes == {"device": "H100"}
    with pytest.raises(ValueError, match="made with seed 0, not 1"):
        Result(tmp_path / "out.json", {"seed": 1}, len).resume()


def test_the_order_is_the_seeds_and_a_place_does_not_depend_on_the_others():
    keys = [f"level1/{number}" for number in range(40)]
    order = shuffled(keys, 0)
    assert order != shuffled(keys, 1) and sorted(order) == sorted(keys)
    assert shuffled(keys[:20], 0) == [key for key in order if key in keys[:20]]
