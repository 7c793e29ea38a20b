from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess

import pytest

from agents.strategies import by_name
from tests.planted.case import FOLDER, Case, cases
from verifier.integrity.static import inspect_source
from verifier.profiling.diagnosing.diagnosis import FAULT_CLASS
from verifier.source import sha256
from verifier.task import Task

SET = cases()


def kernel_source(program: str) -> str:
    """Returns the translation unit that the program's `load` compiles."""
    texts = {
        node.targets[0].id: node.value.value
        for node in ast.parse(program).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
    }
    return texts["COMMON"] + texts["SOURCE"]


def test_the_set_is_large_and_mixed():
    assert len(SET) >= 44
    kinds = {case.fault for case in SET}
    assert len(kinds) >= 18, kinds
    assert {name for case in SET for name in case.diagnoses} <= set(FAULT_CLASS)


@pytest.mark.parametrize("case", SET, ids=lambda case: case.name)
def test_a_case_is_sound(case: Case):
    Task.read(case.task)
    good, faulty = case.program("good"), case.program("faulty")
    assert good != faulty
    for program in (good, faulty, *(case.program(f"mended {method}") for method in case.mended)):
        findings = inspect_source(ast.parse(program), program)
        assert not [finding for finding in findings if finding.severity == "refuse"], findings
        assert not re.search(r"\[(good|faulty|mended|end)\b", program), "a marker would tell the diagnosis"
        assert case.fault not in program and "faulty" not in program
    for method in case.methods:
        strategy = by_name(method)
        assert strategy is not None, f"{method} is not in the catalogue"
        assert set(strategy.cures) & set(case.diagnoses), f"{method} cures none of {case.diagnoses}"
    assert set(case.mended).isdisjoint(case.methods)
    assert {FAULT_CLASS[case.diagnoses[0]]} & set(case.classes), f"{case.diagnoses[0]} is of the class {FAULT_CLASS[case.diagnoses[0]]}"


def test_the_facts_of_every_task_are_recorded():
    known = json.loads((FOLDER.parent / "facts.json").read_text())
    assert {sha256(case.task) for case in SET} <= set(known), "run: python bench/planted.py --facts tests/planted/facts.json --device cpu"


def test_markers_divide_a_program(tmp_path):
    path = tmp_path / "a.py"
    facts = "# fault: f\n# class: memory\n# diagnosis: d | e\n# method: m\n# says: s\n"
    text = facts + "\nTASK\n\n# [program]\na\n# [good]\nb\n# [faulty]\nc\n    // [mended x]\nd\n# [end]\ne\n"
    path.write_text(text)
    case = Case.read(path)
    assert case.task == "TASK\n\n" or case.task.strip() == "TASK"
    assert case.diagnoses == ("d", "e") and case.mended == ("x",)
    endings = {variant: case.program(variant).split()[-3:] for variant in ("good", "faulty", "mended x")}
    assert endings == {"good": ["a", "b", "e"], "faulty": ["a", "c", "e"], "mended x": ["a", "d", "e"]}
    assert case.after("m") == case.program("good") and case.after("x") == case.program("mended x") and case.after("y") is None
    path.write_text(text.replace("# [end]\n", ""))
    with pytest.raises(ValueError, match="without an end"):
        Case.read(path).program("good")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_every_variant_compiles(tmp_path):
    sources = {}
    for case in SET:
        for variant in ("good", "faulty", *(f"mended {method}" for method in case.mended)):
            sources.setdefault(kernel_source(case.program(variant)), f"{case.name} {variant}")
    includes: dict[str, None] = {}
    parts = []
    for number, (source, name) in enumerate(sources.items()):  # in one unit, because nvcc takes a second to start
        lines = source.splitlines()
        includes.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        body = "\n".join("" if line.startswith("#include") else line for line in lines).replace('extern "C" ', "")
        undone = "\n".join(f"#undef {macro}" for macro in re.findall(r"^#define (\w+)", body, re.M))
        parts.append(f'namespace variant_{number} {{\n#line 1 "{name}"\n{body}\n}}\n{undone}')
    unit = tmp_path / "kernels.cu"
    unit.write_text("\n".join([*includes, *parts]))
    command = ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "-cubin", "-Werror", "all-warnings", str(unit), "-o", str(tmp_path / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
