"""The everyday suite: it has the stated number of tasks of each kind, each one is a valid task that names its source, and a page shows the
results."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bench.everyday.tables import page
from bench.sweep.tasks import in_set, items, sets_of

SUITE = Path(__file__).parents[3] / "bench" / "everyday"
COUNTS = {"serving": 16, "domains": 16, "loops": 8, "library": 8}
TASKS = [path for folder in COUNTS for path in sorted((SUITE / folder).glob("*.py"))]
SOURCE = re.compile(r"^Source: .*?(arXiv|ICML|Nature|`torchvision|`transformers)", re.M | re.S)


def test_counts():
    assert {folder: len(list((SUITE / folder).glob("*.py"))) for folder in COUNTS} == COUNTS


@pytest.mark.parametrize("path", TASKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_task_of_the_form_with_its_source(path):
    tree = ast.parse(path.read_text())
    assert SOURCE.search(ast.get_docstring(tree))
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {"Model", "get_inputs", "get_init_inputs"} <= defined
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - {"math", "functools"} <= ({"torch", "transformers", "torchvision"} if path.parent.name == "library" else {"torch"})


def test_a_sweep_over_the_suite_takes_serving_in_bf16_too():
    found = items(sets_of("everyday,everyday-bf16"), None)
    assert [item.precision for item in found].count("bf16") == 16 and len(found) == 64 and len({item.key for item in found}) == 64
    assert found[0].key == "everyday/serving/01_grouped_query_prefill fp32-strict"
    assert all(in_set("everyday-bf16" if item.precision == "bf16" else "everyday", item.key) for item in found)


def row(status: str = "passed", ratio: float = 1.5, kind: str = "custom") -> dict:
    interval = {"ratio": ratio, "low": 0.98 * ratio, "high": 1.02 * ratio}
    passed = status == "passed"
    return {
        "status": status, "class": kind if passed else None, "solved": passed, "flags": [], "why": "" if passed else "wrong at 3",
        "best": {"baseline": "compile", **interval} if passed else None, "vs_eager": interval if passed else None, "program_ms": 0.5,
        "candidates": 2, "first_faster_s": 12.0 if passed else None, "moves": [], "groups": [],
    }  # fmt: skip


def test_the_page_holds_the_figures_against_their_bars():
    rows = {
        "everyday/serving/01_a fp32-strict": row(),
        "everyday/loops/1_b fp32-strict": row(ratio=4.0),
        "everyday/loops/2_c fp32-strict": row("wrong_result"),
        "everyday/domains/03_d fp32-strict": row(ratio=0.9, kind="orchestration"),
        "everyday/serving/01_a bf16": row(ratio=1.25),
    }
    text = page({"rows": rows})
    assert "| admitted; passed | 48; 47 | 4; 3 of 4 |" in text
    assert "| the eight loops: mean over the best baseline | 2 | 2.00 over 2 of them |" in text, "what did not pass counts as 1"
    assert "| class custom or mixed | 32 | 2 |" in text and "| bf16, serving: mean over the best baseline | 1.25 | 1.25 |" in text
    assert "ends below 0.97 of the best baseline | 0 | 1: everyday/domains/03_d |" in text and "everyday/loops/2_c: wrong at 3" in text
