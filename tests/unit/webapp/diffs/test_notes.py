"""The findings of a report, at the lines to which they refer."""

from __future__ import annotations

import pytest

from tests.unit.webapp.diffs.test_colours import PROGRAM
from tests.unit.webapp.diffs.test_measured import ENVIRONMENT
from verifier.report import Report
from webapp.diffs.notes import bare_name, line_notes


def report(**fields) -> Report:
    base = {"task": "t", "program": "p", "tier": "full", "precision": "fp32-strict", "mode": "train", "status": "wrong_result"}
    return Report.model_validate(base | {"environment": ENVIRONMENT, "protection": {"sandbox": "process", "layers": []}} | fields)


@pytest.mark.parametrize(
    ("printed", "name"),
    [("void ns::scale<float, 4>(float*)", "scale"), ("add", "add"), ("(anonymous namespace)::x", "x"), ("void add(float const*)", "add")],
)
def test_names_of_kernels(printed, name):
    assert bare_name(printed.replace("(anonymous namespace)::", "")) == name


def test_everything_at_its_line():
    found = line_notes(
        report(
            findings=[{"rule": "static.x", "severity": "downgrade", "message": "odd", "line": 3}],
            problems=[{"line": 6, "message": "broken", "hint": "mend it"}],
            torch_compute=[{"name": "aten.addmm", "calls": 1, "line": 20, "share": 0.41}],
            kernels=[{"name": "void scale<4>(float*)", "calls": 2, "ms": 0.5, "share": 0.5, "own": True}],
            build={
                "seconds": 1, "cached": False,
                "compiler_output": "kernel.cu(6): warning #177-D: variable \"n\" was declared\n  template <int N>\nmain.cpp:99:1: error: elsewhere",
                "resources": [
                    {"kernel": "void scale<1>(float*)", "registers": 32, "shared_bytes": 4096, "spill_store_bytes": 0},
                    {"kernel": "void scale<2>(float*)", "registers": 40, "shared_bytes": 4096, "spill_store_bytes": 16},
                ],
            },
        ),
        PROGRAM,
    )  # fmt: skip
    said = {line: [(note.tone, note.text) for note in notes] for line, notes in found.items()}
    assert said[3] == [("warn", "downgrade: odd (static.x)")]
    assert said[6] == [("bad", "broken: mend it")]
    assert said[20] == [("info", "aten.addmm is computed by PyTorch, 41 % of the time")] or "41%" in said[20][0][1]
    assert said[8] == [("warn", 'compiler warning: variable "n" was declared')]
    use, time = said[10]
    assert use == ("use", "scale: 32 to 40 registers, 4,096 B shared memory, 0 to 16 B spilled (2 instances)")
    assert time[0] == "time" and "500 µs of a call, 50%" in time[1]
    assert 99 not in said
