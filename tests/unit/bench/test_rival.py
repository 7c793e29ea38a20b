"""The tasks that bench/rival.py draws, its test for equal programs, and the aggregation of its measurements."""

from __future__ import annotations

import json
from argparse import Namespace
from types import SimpleNamespace

from bench import rival
from bench.beside import stored_programs
from bench.rival import SLOWER, again, compared, drawn, kept, name_of, row_of, summary
from bench.sweep.store import packed, slug
from verifier.source import sha256

OLD = '''"""A program."""
SOURCE = r"""
// sum of two
__global__ void add(float* x) {
    x[0] += 1;  // one more
}
"""


def forward(x):
    """Adds."""
    return x + 1  # here
'''


def ratio(value: float, high: float = 0.0) -> dict:
    return {"ratio": value, "low": value * 0.99, "high": high or value * 1.01}


def test_programs_are_the_same_apart_from_comments_or_are_measured():
    assert compared(OLD, OLD) == "same text"
    assert compared(OLD, OLD.replace("// sum of two\n", "").replace("  # here", "").replace('    """Adds."""\n', "")) == "same code"
    assert compared(OLD, OLD.replace("x[0] += 1", "x[0] += 2")) == "printed" == compared(OLD, OLD.replace("return x + 1", "return x + 2"))


def test_only_stored_fp32_programs_of_the_three_levels_that_passed_are_drawn(tmp_path):
    def row(status: str = "passed", text: str = OLD) -> dict:
        return {"status": status, "program": sha256(text), "moves": [], "flags": []}

    rows = {
        "level1/1_a fp32-strict": row(), "level2/2_b fp32-strict": row(), "level3/3_c bf16": row(), "level3/4_d fp32-strict": row("failed"),
        "examples/e fp32-strict": row(), "level3/5_f fp32-strict": row(text="another"), "level3/6_g fp32-strict": row(),
    }  # fmt: skip
    archive = tmp_path / "programs.tar.gz"
    archive.write_bytes(packed({f"{slug(key)}.py": OLD.encode() for key in rows if "6_g" not in key}))
    stored = stored_programs(rows, archive)
    assert "level3/5_f fp32-strict" not in stored and stored["level1/1_a fp32-strict"] == OLD
    assert sorted(drawn(rows, stored, 0, 30)) == ["level1/1_a fp32-strict", "level2/2_b fp32-strict"]
    assert drawn(rows, stored, 0, 1) == drawn(rows, stored, 0, 30)[:1]
    assert {name_of(f"{slug(key)}.py") for key in rows if key.endswith("strict")} == {key for key in rows if key.endswith("strict")}
    assert kept(tmp_path / "none.tar.gz") == {} and kept(archive)["level2/2_b fp32-strict"] == OLD


def test_the_summary_names_what_is_slower_by_more_than_three_percent():
    rows = {
        "a": {"status": "same text"}, "b": {"status": "passed", "vs_old": ratio(1.2)}, "c": {"status": "passed", "vs_old": ratio(0.9)},
        "d": {"status": "passed", "vs_old": ratio(SLOWER - 0.001, 0.99)}, "e": {"status": "inconclusive", "message": "busy"},
        "f": {"status": "printed"}, "g": {"status": "passed", "vs_old": ratio(0.98)},
    }  # fmt: skip
    found = summary(rows)
    assert (found["drawn"], found["same text"], found["measured"], found["to be measured"]) == (7, 1, 4, 1)
    assert found["slower_by_more_than_3_percent"] == ["c", "d"] and found["surely_slower_by_more_than_3_percent"] == ["c"]
    assert list(found["vs_old"]) == ["c", "d", "g", "b"] and found["vs_old"]["b"] == "1.200 [1.188, 1.212]"
    assert found["not_measured"] == {"e": "inconclusive: busy"}
    assert [key for key, row in rows.items() if again(row, ["slower"])] == ["c", "d"]
    assert [key for key, row in rows.items() if again(row, ["failed"])] == ["e"]


def test_a_row_has_the_ratio_to_the_stored_program():
    rate = SimpleNamespace(model_dump=lambda: {"ratio": 1.234567, "low": 1.2, "high": 1.3})
    compare = SimpleNamespace(speedup=rate, program_ms=1.0, baseline_ms=1.234567)
    report = SimpleNamespace(
        status="passed", program_class="custom", tier="quick", message="", flags=[], stages=[], timing=SimpleNamespace(rival=compare), speedup=None
    )
    found = row_of(report, "", None)
    assert found["vs_old"]["ratio"] == 1.2346 and (found["new_ms"], found["old_ms"]) == (1.0, 1.234567)
    assert row_of(None, "no GPU", None)["status"] == "infrastructure_error"


def test_printed_programs_are_kept_while_the_code_is_the_same_and_a_measurement_while_the_text_is(tmp_path, monkeypatch):
    key = "level1/1_a fp32-strict"
    stored = {"rows": {key: {"status": "passed", "program": sha256(OLD), "moves": [], "flags": []}}, "device": {}}
    (tmp_path / "rows.json").write_text(json.dumps(stored))
    (tmp_path / "programs.tar.gz").write_bytes(packed({f"{slug(key)}.py": OLD.encode()}))
    task = tmp_path / "KernelBench" / "level1" / "1_a.py"
    for level in rival.SETS:
        (tmp_path / "KernelBench" / level).mkdir(parents=True)
    task.write_text("# a task\n")
    texts, asked = [OLD.replace("+= 1", "+= 2")], []

    class Played(rival.Beside):
        def run(self, keys):
            for one in keys:
                asked.append(one)
                self.result.add(one, {"status": "printed", "text": texts[0], "how": "the first program", "message": ""})
            return []

    monkeypatch.setattr(rival, "Beside", Played)

    def bench(code: str, resume: bool = True) -> rival.Bench:
        monkeypatch.setattr(rival, "code", lambda: code)
        given = {"checkout": tmp_path, "rows": tmp_path / "rows.json", "programs": tmp_path / "programs.tar.gz", "out": tmp_path / "out.json"}
        made = rival.Bench(Namespace(**given, seed=0, count=30, resume=resume, jobs=1, limit_seconds=60.0))
        made.print()
        return made

    first = bench("one", resume=False)
    assert asked == [key] and first.result.rows[key]["new"] == sha256(texts[0]) and first.result.rows[key]["lines"] == 2
    first.result.add(key, {"status": "passed", "vs_old": ratio(1.1)})
    assert bench("one").result.rows[key]["vs_old"] == ratio(1.1) and asked == [key], "nothing is printed again"
    assert bench("two").result.rows[key]["vs_old"] == ratio(1.1) and asked == [key, key], "the same text keeps its measurement"
    texts[0] = OLD.replace("+= 1", "+= 3")
    assert "vs_old" not in bench("three").result.rows[key]
