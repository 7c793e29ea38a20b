"""The everyday suite: how many tasks of which kind there are, and that each is a task with its source named."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

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
