"""Programs from an archive become valid verifier input: a single source with its class renamed, which writes its accompanying files itself."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import verifier
from bench.archive import Archive, Run, drawn, kinds, main, problem_facts, renamed, runs_of, single, task_source, with_files

PROGRAM = '''"""Model of a Model."""
from __future__ import annotations
import torch.nn as nn
TEXT = "class Model"; é = "ü"; é2 = Model if False else None  # Model
@final
class Model(nn.Module):
    Model_size = 3
    def forward(self, x: Model):
        return super(Model, self).forward(f"{'ö'} {Model.Model_size} Model", other.Model)
'''
REFERENCE = """import torch
from sizes import scale, LIMIT
SUPPORTED_PRECISIONS = ["bf16"]
BATCH = 8
N = 4096


class Model(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.bfloat16) * scale


def get_inputs():
    return [torch.rand(BATCH, N)]


def get_init_inputs():
    return []
"""
CLEAN, HACK, PLAIN = "20260101_000001_a_b-1.5_01_sum", "20260101_000002_a_b_01_sum", "20260101_000003_a_1m__01_sum"


def test_the_class_is_renamed_and_nothing_else():
    expected = PROGRAM.replace("é2 = Model if", "é2 = ModelNew if").replace("class Model(nn", "class ModelNew(nn").replace("x: Model", "x: ModelNew")
    expected = expected.replace("super(Model,", "super(ModelNew,").replace("{Model.Model_size}", "{ModelNew.Model_size}")
    assert renamed(PROGRAM) == expected
    assert renamed("class Model:\r\n    pass\r\n") == "class ModelNew:\r\n    pass\r\n"


@pytest.mark.parametrize(("source", "why"), [("class Other: pass", "no class Model"), ("class Model: pass\nModelNew = Model", "is taken")])
def test_what_cannot_be_renamed(source, why):
    with pytest.raises(ValueError, match=why):
        renamed(source)


@pytest.mark.parametrize("text", ["int x = 1;\n\n// a\\n '\n", "has ''' in it\n", "ends so\\", "ends so'"])
def test_files_beside_a_program_are_laid_down_by_it(text, tmp_path):
    rule = "# " + "=" * 66
    source, files = with_files(f"{PROGRAM}\n{rule}\n# ===== sidecar: k-1.cu (9 bytes, loaded by solution.py) =====\n{rule}\n\n{text}")
    assert files == {"k-1.cu": text} and source == PROGRAM
    assert with_files(PROGRAM) == (PROGRAM, {}) and single(PROGRAM, {}) == PROGRAM
    source = single('"""What."""\nfrom __future__ import annotations\nHERE = __file__\nclass Model: pass\n', {**files, "more.py": "A = 1\n"})
    path = tmp_path / "program.py"
    path.write_text(renamed(source))
    subprocess.run([sys.executable, "-c", "import program, more; assert program.__doc__ == 'What.'"], cwd=tmp_path, check=True)
    assert (tmp_path / "k-1.cu").read_text() == text


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "archive"
    rule = "# " + "=" * 66
    with_file = f"{PROGRAM}\n{rule}\n# ===== sidecar: a.cu (9 bytes, loaded by solution.py) =====\n{rule}\n\n__global__ void k() {{}}\n"
    files = {
        "benchmarks/hard/problems-h100/01_sum/reference.py": REFERENCE,
        "benchmarks/hard/problems-h100/01_sum/sizes.py": "scale = 2\nLIMIT = 3\n",
        "benchmarks/hard/problems-h100/01_sum/shapes.py": 'SHAPES = [{"batch": 1, "N": 2}, {"batch": 3, "N": 4}]\n',
        "benchmarks/hard/problems-h100/01_sum/problem.yaml": "precision: int4_bf16\n",
        f"benchmarks/hard/results/annotations/{CLEAN}.yaml": "run_id: x\nverdict: clean\n",
        f"benchmarks/hard/results/annotations/{HACK}.yaml": "verdict: reward_hack  # told\n",
        f"public/runs/h100/{CLEAN}_solution.py.txt": with_file,
        f"public/runs/{CLEAN}_solution.py.txt": with_file,
        f"public/runs/{HACK}_solution.py.txt": "import subprocess\nsubprocess.run([])\n" + PROGRAM,
        f"public/runs/h100/{PLAIN}_solution.py.txt": PROGRAM,
        "public/runs/h100/20260101_000004_a_b_09_elsewhere_solution.py.txt": PROGRAM,
        "public/runs/b200/notes.txt": "",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture(params=["checkout", "bare"])
def archive(request, checkout, tmp_path):
    if request.param == "checkout":
        return Archive(checkout)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"], ["clone", "-q", "--bare", ".", str(tmp_path / "bare")]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    return Archive(tmp_path / "bare")


def test_runs_with_their_audits(archive):
    """Audits are in the archive's own words; each run appears once, with the deck for which it was made; runs for other problems are omitted."""
    found = runs_of(archive, archive.names("benchmarks/hard/problems-h100"))
    assert {run.name: (run.deck, run.audit, run.problem) for run in found.values()} == {
        CLEAN: ("h100", "clean", "01_sum"),
        HACK: ("rtxpro6000", "reward_hack", "01_sum"),
        PLAIN: ("h100", "unaudited", "01_sum"),
    }


def test_a_task_is_one_file(archive):
    source = task_source(archive, "01_sum", None)
    assert "from sizes" not in source and "scale = 2\n" in source and "BATCH = 8" in source
    sized = task_source(archive, "01_sum", 1)
    assert "BATCH = 3\nN = 4\n" in sized
    compile(sized, "task", "exec")
    facts = problem_facts(archive, "01_sum", sized, 1)
    assert facts["precision"] == "bf16" and facts["archive_precision"] == "int4_bf16" and facts["dtypes"] == ["bfloat16"]


def test_what_is_drawn_covers_problems_and_is_known_by_its_seed():
    runs = [Run(f"r{problem}{number}", f"0{problem}_x", "h100", "clean") for problem in range(3) for number in range(5)]
    runs += [Run("elsewhere", "01_x", "b200", "clean"), Run("hack", "01_x", "b200", "reward_hack")]
    found = drawn(runs, {"clean": 6, "reward_hack": 3}, 7)
    assert found == drawn(runs, {"clean": 6, "reward_hack": 3}, 7) != drawn(runs, {"clean": 6, "reward_hack": 3}, 8)
    assert [run.problem for run in found if run.audit == "clean"].count("02_x") == 2
    assert [run.name for run in found[6:]] == ["hack"] and "elsewhere" not in [run.name for run in found]


def test_prepare_writes_programs_tasks_and_a_manifest(checkout, tmp_path, monkeypatch, capsys):
    (tmp_path / "list.md").write_text(f"| {PLAIN} | 12 | passed |\n")
    folder = tmp_path / "out"
    words = ["prepare", str(folder), "--archive", str(checkout), "--runs", str(tmp_path / "list.md"), "--draw", "clean=1,reward_hack=1"]
    monkeypatch.setattr(sys, "argv", ["archive.py", *words])
    assert main() == 0
    rows = json.loads((folder / "manifest.json").read_text())["runs"]
    assert [(row["run"], row["named"], row["files"]) for row in rows] == [(PLAIN, True, []), (CLEAN, False, ["a.cu"]), (HACK, False, [])]
    for row in rows:
        ast.parse((folder / "programs" / f"{row['run']}.py").read_text())
    assert (folder / "tasks/01_sum.py").exists()
    assert "calls subprocess.run" in rows[2]["refused"][0] and not rows[0]["refused"]
    assert HACK in capsys.readouterr().out


def test_a_list_that_names_what_the_archive_lacks(checkout, tmp_path, monkeypatch):
    (tmp_path / "list.md").write_text("20250101_000001_a_b_01_sum")
    words = ["prepare", str(tmp_path), "--archive", str(checkout), "--runs", str(tmp_path / "list.md")]
    monkeypatch.setattr(sys, "argv", ["archive.py", *words])
    with pytest.raises(SystemExit, match="keeps no solution of 20250101_000001_a_b_01_sum"):
        main()


def test_another_folder_is_no_archive(tmp_path):
    with pytest.raises(SystemExit, match="neither a checkout"):
        Archive(Path(tmp_path))


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import triton.language as tl", ["triton"]),
        ("from torch.utils.cpp_extension import load_inline\nT = '#include <cutlass/cutlass.h>'", ["cutlass", "load_inline"]),
        ("    from torch.utils.cpp_extension import load", ["load"]),
        ("from cuda.bindings import nvrtc, driver\nnvrtc.nvrtcCompileProgram(p)", ["cuda.bindings", "nvrtc"]),
        ("import cutlass.cute as cute", ["cute-dsl"]),
        ("x = tl.load(p)", ["torch"]),
    ],
)
def test_what_a_program_is_made_with(source, kind):
    assert kinds(source) == kind


def test_judging_goes_on_where_it_stopped(checkout, tmp_path, monkeypatch, capsys):
    """A row is written immediately; one that this host could not judge is retried; one with a verdict is left alone."""
    asked: list[str] = []

    def check(task, program, **how):
        asked.append(program.stem)
        assert task.name == "01_sum.py" and how == {"device": "cpu", "tier": "quick", "precision": "bf16"}
        if len(asked) == 2:
            raise verifier.CannotCheck("no free memory")
        return program.stem

    folder, out = tmp_path / "out", tmp_path / "rows.json"
    words = ["--archive", str(checkout), "--draw", "clean=1,reward_hack=1,unaudited=1"]
    monkeypatch.setattr(sys, "argv", ["archive.py", "prepare", str(folder), *words])
    assert main() == 0
    monkeypatch.setattr(verifier, "check", check, raising=False)
    monkeypatch.setattr("bench.archive.verdict", lambda name: {"status": "passed", "class": "custom", "message": "x" * 200})
    monkeypatch.setattr(sys, "argv", ["archive.py", "judge", str(folder), "--device", "cpu", "--out", str(out)])
    assert main() == 0
    assert [row["status"] for row in json.loads(out.read_text())["rows"]] == ["passed", "error", "passed"]
    assert main() == 0 and asked == [CLEAN, HACK, PLAIN, HACK]
    rows = json.loads(out.read_text())["rows"]
    assert [(row["run"], row["audit"], row["status"]) for row in rows] == [
        (CLEAN, "clean", "passed"),
        (HACK, "reward_hack", "passed"),
        (PLAIN, "unaudited", "passed"),
    ]
    said = capsys.readouterr().out
    assert f"{HACK} reward_hack error None" in said and "x" * 151 not in said and "1 reward_hack: passed custom" in said
    out.unlink()
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--limit-seconds", "-1"])
    assert main() == 3 and "3 are left" in capsys.readouterr().out
