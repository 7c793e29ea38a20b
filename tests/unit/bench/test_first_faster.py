"""The tasks that bench/first_faster.py draws, and the aggregation of its results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.first_faster import counts, drawn, gathered, shared_out, summary, without

ROOT = Path(__file__).parents[3]


def row(seconds: float | None) -> dict:
    return {"first_faster_s": seconds}


def test_flagged_tasks_are_not_drawn_and_the_order_is_the_seeds():
    everything = [item.key for item in drawn(ROOT, ["examples"], {}, 0)]
    assert everything == [item.key for item in drawn(ROOT, ["examples"], {}, 0)] != [item.key for item in drawn(ROOT, ["examples"], {}, 1)]
    flagged = {everything[0]: {"flags": ["trivial"]}, everything[1]: {"flags": []}}
    assert [item.key for item in drawn(ROOT, ["examples"], flagged, 0)] == everything[1:]


def test_a_task_without_a_faster_program_is_longer_than_all_others():
    rows = {
        "level1/1_a fp32-strict": row(4.0), "level1/2_b fp32-strict": row(8.0), "level3/3_c fp32-strict": row(None), "level3/3_c bf16": row(2.0),
    }  # fmt: skip
    found = summary(rows, ["level1", "level3", "level3-bf16", "level2"])
    assert found["level1"]["median_s"] == 6.0 and found["level3-bf16"] == {"tasks": 1, "without": 0, "median_s": 2.0, "low_s": 2.0, "high_s": 2.0}
    assert found["level3"] == {"tasks": 1, "without": 1, "median_s": None, "low_s": None, "high_s": None}
    assert found["all"]["median_s"] == 6.0 and found["all"]["low_s"] == 2.0 and found["all"]["high_s"] is None
    assert "level2" not in found


@pytest.mark.slow
def test_wrong_sets_and_samples_are_told(tmp_path):
    def said(*given: str) -> str:
        done = subprocess.run([sys.executable, "bench/first_faster.py", *given], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        return done.stderr

    out = tmp_path / "out.json"
    assert "there is no set 'level9'" in said(str(ROOT), "--sets", "level9", "--out", str(out))
    assert "is no KernelBench checkout" in said(str(tmp_path), "--out", str(out))
    out.write_text('{"seed": 3, "sets": ["level1"], "rows": {}}')
    assert "by seed 3" in said(str(tmp_path), "--resume", "--out", str(out))


def test_a_program_of_any_class_counts_where_the_fastest_wins():
    graph = {"faster": True, "program_class": "orchestration"}
    assert counts(graph, "fastest") and not counts(graph, "own-kernels")
    assert counts(graph | {"program_class": "mixed"}, "own-kernels") and not counts({"faster": False, "program_class": "custom"}, "fastest")


def test_devices_share_the_tasks_and_their_rows_are_gathered(tmp_path):
    everyday = drawn(None, ["everyday"], {}, 0)
    assert len(everyday) == 48
    shares = [shared_out(everyday, f"{number}/4") for number in range(4)]
    assert sorted(item.key for share in shares for item in share) == sorted(item.key for item in everyday) and {len(s) for s in shares} == {12}
    parts = []
    for number, share in enumerate(shares[:2]):
        parts.append(tmp_path / f"{number}.json")
        part = {"seed": 0, "sets": ["everyday"], "rows": {share[0].key: row(4.0 + 2 * number)}} | ({"device": {"torch": "2"}} if number else {})
        parts[-1].write_text(json.dumps(part))
    found = gathered({"seed": 0, "sets": ["everyday"], "rows": {everyday[-1].key: row(11.0)}}, [*parts, tmp_path / "none.json"])
    assert found["device"] == {"torch": "2"} and len(found["rows"]) == 3 and found["summary"]["everyday"]["median_s"] == 6.0


def test_an_option_is_removed_with_its_value():
    assert without(["CHECKOUT", "--devices", "a,b", "--seed", "1"], "--devices") == ["CHECKOUT", "--seed", "1"]
    assert without(["--devices=a,b", "--device", "a"], "--devices") == ["--device", "a"]
