"""The sweep over KernelBench: the order of tasks, rows from traces, tables that count failures, and what KernelBench itself accepts."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.journal import read_trace
from agents.projection import project
from bench.sweep import tables
from bench.sweep.__main__ import anew, merge_parts
from bench.sweep.accepting import accept
from bench.sweep.rows import measured, report_of, row_of, unsuited
from bench.sweep.store import Store, gathered, merged, packed, slug
from bench.sweep.tasks import Item, NoSuchTasks, items, needs, sets_of, to_accept, untimed
from verifier.cli import table
from verifier.report import Finding

TRACES = Path(__file__).parents[3] / "examples" / "traces"


def ratio(value: float, margin: float = 0.02) -> dict[str, float]:
    return {"ratio": value, "low": value - margin, "high": value + margin}


def row(eager: float | None, best: float | None = None, flags: tuple[str, ...] = (), first: float | None = 30.0, **more) -> dict:
    if eager is None:
        return {"status": "wrong_result", "class": None, "solved": False, "flags": list(flags), "first_faster_s": None, "candidates": 2, "moves": [],
                "vs_eager": None, "why": "off", **more}  # fmt: skip
    baselines = {"eager": {**ratio(eager), "ms": 2.0}, "compile": {**ratio(best), "ms": 1.0}}
    return {"status": "passed", "class": "custom", "solved": True, "flags": list(flags), "first_faster_s": first, "candidates": 2, "seconds": 9.0,
            "vs_eager": ratio(eager), "baselines": baselines, "best": {"baseline": "compile", **baselines["compile"]}, "program_ms": 1.0,
            "floor_fraction": 0.5, "moves": ["cuda-graph"], **more}  # fmt: skip


def test_the_ten_come_first_and_no_task_comes_twice(checkout):
    keys = [item.key for item in items(sets_of("level1,level3,level3-bf16"), checkout)]
    assert keys[:2] == ["level3/18_Fire fp32-strict", "level3/2_ShallowWideMLP fp32-strict"]  # in the order of the paper's table
    assert keys[2:] == [
        "level1/9_Tall fp32-strict", "level1/10_Wide fp32-strict", "level3/1_MLP fp32-strict", "level3/1_MLP bf16", "level3/2_ShallowWideMLP bf16",
        "level3/18_Fire bf16",
    ]  # fmt: skip
    assert [item.key for item in items(sets_of("ten"), checkout, ["Fire"])] == ["level3/18_Fire fp32-strict"]
    with pytest.raises(NoSuchTasks, match="level2"):
        items(["level2"], checkout)
    with pytest.raises(NoSuchTasks, match="no set"):
        sets_of("level9")


def test_a_row_says_what_was_confirmed_and_when_the_first_program_was_faster():
    found = row_of(TRACES / "attention")
    assert found["solved"] and found["class"] == "mixed" and found["moves"] == ["cuda-graph"]
    assert set(found["baselines"]) == {"eager", "compile", "cuda-graph"} and found["best"]["baseline"] == "cuda-graph"
    assert found["best"]["ratio"] == min(entry["ratio"] for entry in found["baselines"].values())
    assert 35 < found["first_faster_s"] < 45 < found["seconds"], "the first program beat eager 40 s after the run began"
    assert found["groups"] and found["environment"]["device_model"] == "h200" and len(json.dumps(found)) < 8000
    assert found["first_tier"] == "quick"
    assert found["waiting"] is None and found["measuring"] is None and found["measured_again"] == [], "recorded before these were noted"


@pytest.mark.parametrize(
    ("precision", "reason", "flags"),
    [
        ("bf16", "the task was not admitted: line 36: RuntimeError in forward: mat1 and mat2 must have the same dtype", ["not under bf16"]),
        ("fp32-strict", "the task was not admitted: line 36: RuntimeError in forward: mat1 and mat2 must have the same dtype", []),
        ("bf16", "the task was not admitted: line 36: OutOfMemoryError in forward: CUDA out of memory", []),
        ("bf16", "the task was not admitted: line 3: SyntaxError: invalid syntax", []),
        ("bf16", "no program passed: RuntimeError in forward: a fault", []),
    ],
)
def test_a_model_that_pytorch_cannot_run_in_16_bits_is_set_apart(precision, reason, flags):
    summary = project(read_trace(TRACES / "attention")[0])
    summary.precision, summary.reason = precision, reason
    assert unsuited(summary) == flags


def test_what_is_set_apart_for_its_types_is_said_with_the_reason():
    found = {"level3/33_VanillaRNN bf16": {**row(None, flags=("not under bf16",)), "why": "line 36: mat1 and mat2"}, "level3/1_b bf16": row(2.0, 1.5)}
    assert "- level3/33_VanillaRNN (bf16): line 36: mat1 and mat2" in tables.flagged(found) and tables.not_passed(found) == []
    assert tables.standing(list(found.values())).flagged == 1


def test_a_row_says_where_its_time_went():
    summary = project(read_trace(TRACES / "attention")[0])
    report = report_of(summary.best_candidate(), dict(read_trace(TRACES / "attention")[1]))
    report.timing.waiting, report.timing.measuring = 12.5, 31.0
    message = "36.9x eager: measured again in a fresh process with fresh seeds"
    report.findings.append(Finding(rule="measured-again", severity="note", message=message, source="runtime"))
    found = measured(report)
    assert (found["waiting"], found["measuring"], found["measured_again"]) == (12.5, 31.0, [message])
    lines = table(report)
    assert "measured for 31.0 s, waited 12.5 s for other verifiers of the device" in lines and message in lines


def test_a_row_names_a_missing_baseline_where_nothing_stands_in_for_it():
    summary = project(read_trace(TRACES / "attention")[0])
    report = report_of(summary.best_candidate(), dict(read_trace(TRACES / "attention")[1]))
    report.reasons["compile-max-autotune"] = late = "compile-max-autotune: it did not finish within 180 s"
    assert measured(report)["missing"] == {"compile-max-autotune": late}
    report.timing.comparisons.append(report.against("compile").model_copy(update={"baseline": "compile-reduce-overhead"}))
    found = measured(report)
    assert found["missing"] == {} and "compile-reduce-overhead" in found["baselines"]
    content = {"level3/18_a fp32-strict": {**row(4.0, 2.0), "baselines": found["baselines"]}, "level3/1_b fp32-strict": row(4.0, 2.0)}
    assert "(1 reduce-overhead, 1 failed)" in tables.of_baselines("level3", content)[2]


def test_what_a_task_needs_counts_what_its_call_holds_on_the_way():
    attention, narrow = (Item("level3/31_VisionAttention", precision, Path("x.py")) for precision in ("fp32-strict", "bf16"))
    assert 60 * 2**30 < needs(attention) < 141 * 2**30 and needs(narrow) < needs(attention), "scores of 8 GiB, twice"
    assert needs(Item("level3/99_unknown", "fp32-strict", Path("x.py"))) == 30 * 2**30


def test_what_a_task_needs_while_it_is_not_timed():
    mean, relu, small = (
        Item(f"level1/{name}", "fp32-strict", Path("x.py")) for name in ("48_Mean_reduction_over_a_dimension", "19_ReLU", "40_LayerNorm")
    )
    assert 35 * 2**30 < untimed(mean) < 0.8 * needs(mean), "8 GiB of inputs"
    assert 50 * 2**30 < untimed(relu) < needs(relu) and untimed(small) == needs(small), "no call of gigabytes waits for another"


def test_rows_are_made_anew_by_other_code_or_name_and_the_newer_one_counts(tmp_path):
    store = Store(tmp_path)
    store.finished("level1/1_a fp32-strict", row(1.5, 0.9))
    store.finished("level1/2_b fp32-strict", row(None))
    store.finished("level1/3_c fp32-strict", row(None, **{"status": "inconclusive"}))
    keys = list(store.rows)
    assert [[anew(part, key, store) for key in keys] for part in ("failed", "behind", "older", "2_b")] == [
        [False, False, True], [False] * 3, [False] * 3, [False, True, False]
    ]  # fmt: skip
    store.code = "another"
    assert [[anew(part, key, store) for key in keys] for part in ("failed", "behind", "older")] == [[False, True, True], [True] * 3, [True] * 3]
    store.rows[keys[0]]["missing"] = {"compile": "did not compile"}
    assert [anew("missing", key, store) for key in keys] == [True] * 3
    del store.rows[keys[0]]["missing"]
    assert [anew("missing", key, store) for key in keys] == [False, True, True]
    newer = {"made": "2100", "rows": {keys[0]: {**row(1.2, 0.8), "made": "2100"}}}
    both = merged([newer, json.loads((tmp_path / "kernelbench.json").read_text())])
    assert len(both["rows"]) == 3 and both["rows"][keys[0]]["best"]["ratio"] == 0.8, "better or worse"


def test_means_count_what_failed_as_one_and_leave_flagged_tasks_out(tmp_path):
    rows = {
        "level3/18_a fp32-strict": row(4.0, 2.0), "level3/1_b fp32-strict": row(None), "level3/4_c fp32-strict": row(1.0, 0.5, first=None),
        "level3/5_d fp32-strict": row(50.0, 50.0, flags=("trivial",)), "level3/1_b bf16": row(2.0, 1.01),
    }  # fmt: skip
    found = tables.standing([value for key, value in rows.items() if key.endswith("strict")])
    assert (found.rows, found.flagged, found.passed, found.without) == (4, 1, 2, 2)
    assert found.eager == pytest.approx(4 ** (1 / 3)) and found.best == pytest.approx(1.0)
    assert found.faster == found.surely == pytest.approx(1 / 3) and found.least == 0.5 and found.seconds == 30.0
    page = tmp_path / "README.md"
    page.write_text("# Before\n\n## After\n")
    for content in ({"rows": rows}, {"rows": rows, "acceptance": {"level3/18_a fp32-strict": {"correct": False, "said": "off"}}}):
        tables.rewrite(page, tables.page(content))
    text = page.read_text()
    assert text.startswith("# Before\n\n## After\n") and text.count(tables.BEGIN) == text.count(tables.END) == 1
    assert "| stitchcuda-ten | 1 (9 not run) | 1 of 1 | 4.00 | 2.00, least 2.00 | 100 % (100 %) | 30 s |" in text
    assert "0 of 1 accepted" in text and "level3/1_b: off" in text and "trivial" in text
    assert "| level3-bf16 | 1 (49 not run) | 1 of 1 | 2.00 | 1.01, least 1.01 | 100 % (0 %) | 30 s |" in text


def test_an_only_program_in_tier_full_says_nothing_of_how_soon_it_was_faster():
    found = tables.standing([row(4.0, 2.0), row(3.0, 2.0, first=300.0, first_tier="full"), row(None, first_tier="full")])
    assert (found.passed, found.seconds, found.at_once, found.without) == (2, 30.0, 1, 1)
    said = tables.of_set("level3", {"level3/1_a fp32-strict": row(3.0, 2.0, first=300.0, first_tier="full"), "level3/2_b fp32-strict": row(4.0, 2.0)})
    assert said[-1] == "30 s, 1 in tier full at once"
    alone = {"level3/1_a fp32-strict": row(3.0, 2.0, first=300.0, first_tier="full"), "level3/2_b fp32-strict": row(None)}
    assert tables.of_set("level3", alone)[-1] == "1 in tier full at once, 1 without"


def test_acceptance_asks_about_the_ten_and_a_draw_that_does_not_move():
    keys = [f"level{level}/{number}_x fp32-strict" for level in (1, 2) for number in range(1, 60)] + ["level3/18_y fp32-strict", "level3/18_y bf16"]
    asked = to_accept(keys)
    assert len(asked) == 21 and asked[0] == "level3/18_y fp32-strict" and not any(key.endswith("bf16") for key in asked)
    fewer = to_accept([key for key in keys if key != asked[5]])
    assert set(asked) - {asked[5]} < set(fewer) and len(fewer) == 21


def test_acceptance_is_asked_once_for_a_program_and_again_for_another(tmp_path, checkout, monkeypatch):
    asked = []

    def evaluation(command, env, **_):
        pairs = [pair.partition("=") for pair in command if "=" in pair]
        exact = env.get("NVIDIA_TF32_OVERRIDE") == "0"
        asked.append((env["CUDA_VISIBLE_DEVICES"], [Path(task).stem for task, _, _ in pairs], exact))
        wrong = ("Fire", "Wide") if not exact else ("Fire",)
        said = {"hardware": "H200", "correctness_issue": "Output mismatch", "max_difference": "['0.05', '0.2']"}
        results = [
            {"task": Path(task).stem, "compiled": True, "correct": not any(name in task for name in wrong), "runtime_ms": 1.0,
             "reference_runtime_ms": 2.0, "metadata": said if "Fire" in task else {}}
            for task, _, program in pairs if Path(program).exists()
        ]  # fmt: skip
        Path(command[command.index("--out") + 1]).write_text(json.dumps({"results": results}))

    monkeypatch.setattr("bench.sweep.accepting.subprocess.run", evaluation)
    for name in ("level1", "level2"):
        (checkout / "KernelBench" / name).mkdir(exist_ok=True)
    store = Store(tmp_path / "kept")
    (tmp_path / "best.py").write_text("# a program\n")
    for key in ("level3/18_Fire fp32-strict", "level3/2_ShallowWideMLP fp32-strict", "level1/9_Tall fp32-strict"):
        store.finished(key, row(2.0, 1.5, program="a"), tmp_path / "best.py")
    store.finished("level1/10_Wide fp32-strict", row(None))
    assert accept(store, checkout, ["cuda:0", "cuda:2"], None) == []
    assert sorted(asked[:2]) == [("0", ["18_Fire", "9_Tall"], False), ("2", ["2_ShallowWideMLP"], False)]
    assert sorted(asked[2:]) == [("0", ["18_Fire"], True), ("2", ["2_ShallowWideMLP"], True)], "what was refused, once more without TF32"
    verdict, tf32 = (store.content["acceptance"][f"level3/{name} fp32-strict"] for name in ("18_Fire", "2_ShallowWideMLP"))
    assert not verdict["correct"] and not verdict["exact"]["correct"] and "Output mismatch" in verdict["said"] and verdict["program"] == "a"
    assert not tf32["correct"] and tf32["exact"]["correct"] and tf32["runtime_ms"] == 1.0
    page = "\n".join(tables.acceptance(store.content))
    assert "accepts 1 of 3 with its default settings, and 2 of 3 without TF32" in page
    assert "Accepted only without TF32: level3/2_ShallowWideMLP" in page
    assert "Refused either way:\n\n- level3/18_Fire: correctness_issue: Output mismatch, at most 0.2 off" in page and "not yet tried" not in page
    interrupted = {**store.content, "acceptance": {**store.content["acceptance"], "level1/9_Tall fp32-strict": {"correct": False, "program": "a"}}}
    page = "\n".join(tables.acceptance(interrupted))
    assert "accepts 0 of 3 with its default settings, and 1 of 2 without TF32" in page
    assert page.endswith("Refused with default settings, not yet tried without TF32:\n\n- level1/9_Tall: not correct\n")
    assert accept(store, checkout, ["cuda:0"], None) == [] and len(asked) == 4
    store.finished("level1/9_Tall fp32-strict", row(3.0, 1.5, program="b"), tmp_path / "best.py")
    accept(store, checkout, ["cuda:0"], None)
    assert asked[4:] == [("0", ["9_Tall"], False)]
    store.rows["level3/18_Fire fp32-strict"]["program"] = "another"
    page = "\n".join(tables.acceptance(store.content))
    assert "accepts 1 of 2 with its default settings, and 2 of 2 without TF32" in page, "not about programs that are gone"
    assert store.content["acceptance"]["level1/9_Tall fp32-strict"]["runtime_ms"] == 1.0
    for key in ("level3/18_Fire fp32-strict", "level1/9_Tall fp32-strict"):
        store.finished(key, row(3.0, 1.5, program="c"), tmp_path / "best.py")
    assert accept(store, checkout, ["cuda:0"], None, share=2) == []
    assert sorted(asked[5:7]) == [("0", ["18_Fire"], False), ("0", ["9_Tall"], False)] and asked[7:] == [("0", ["18_Fire"], True)]
    assert "runtime_ms" not in store.content["acceptance"]["level1/9_Tall fp32-strict"], "another process computed beside it"
    store.finished("level1/9_Tall fp32-strict", row(3.0, 1.5, program="d"), tmp_path / "best.py")
    assert accept(store, checkout, ["cuda:0"], 0.0) == ["level1/9_Tall fp32-strict"], "no time is left"


def test_merged_sittings_have_the_program_that_each_row_names(tmp_path, capsys):
    def kept(name: str, made: str, sources: dict[str, str]) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        rows = {key: {**row(1.5, 1.1), "made": made, "program": hashlib.sha256(source.encode()).hexdigest()} for key, source in sources.items()}
        (folder / "kernelbench.json").write_text(json.dumps({"made": made, "rows": rows}))
        (folder / "programs.tar.gz").write_bytes(packed({f"{slug(key)}.py": source.encode() for key, source in sources.items()}))
        return folder

    one, two = "level1/1_a fp32-strict", "level1/2_b fp32-strict"
    newer, older = kept("a", "2026-11-25", {one: "newer = 1"}), kept("b", "2026-11-24", {one: "older = 1", two: "x = 2"})
    out = tmp_path / "merged" / "kernelbench.json"
    assert merge_parts(SimpleNamespace(parts=[newer, older / "kernelbench.json"], out=out)) == 0
    assert capsys.readouterr().out == "2 rows, 2 programs\n"
    content = json.loads(out.read_text())
    found = gathered(content["rows"], [out.with_name("programs.tar.gz")])
    assert found == {f"{slug(one)}.py": b"newer = 1", f"{slug(two)}.py": b"x = 2"}
    assert gathered({one: {"program": None}}, [older / "programs.tar.gz"]) == {f"{slug(one)}.py": b"older = 1"}


def test_kinds_of_kernels_against_their_floors():
    def with_groups(*groups: tuple[str, str, float, float | None]) -> dict:
        named = [dict(zip(("title", "space", "floor_ms", "realised_ms"), one, strict=True)) for one in groups]
        return {**row(1.5, 1.1), "groups": named}

    own, rows = "own kernel", {}
    for number, realised in enumerate((2.0, 2.5, 4.0)):
        rows[f"level1/{number}_a fp32-strict"] = with_groups(
            ("convolution, ReLU", own, 1.0, realised), ("sum", own, 1.0, 1.0), ("tiny", own, 0.001, 0.002), ("cat", "pytorch", 1.0, None)
        )
        rows[f"level3/{number}_a bf16"] = with_groups(("convolution", own, 1.0, 5.0))
    rows["level1/9_b fp32-strict"] = with_groups(("softmax", own, 1.0, 2.0))
    rows["level1/10_c fp32-strict"] = {**row(None), "groups": [{"title": "sum", "space": own, "floor_ms": 1.0, "realised_ms": 9.0}]}
    assert tables.of_floors(rows) == [["convolution", "3", "40 %", "32 to 45 %", "20 % (3)"], ["sum", "3", "100 %", "100 to 100 %", "-"]]
