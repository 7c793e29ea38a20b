"""The four layers, and the rule that trusted processes never run a stranger's source."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THIRD_PARTY = {
    "verifier": {"torch", "numpy", "pydantic"},
    "compiler": {"torch", "pydantic", "verifier"},
    "agents": {"torch", "numpy", "pydantic", "httpx", "compiler", "verifier", "tokenizers"},  # the last one only if a profile names a tokenizer
    "stitchwork": {"httpx", "mcp", "pydantic"},  # the last two only for coding agents
}
# Packages that an individual folder may need in addition: a separate requirements list installs them, and nothing outside the folder imports them.
OPTIONAL = {"agents/rl": {"pyarrow", "starlette", "uvicorn", "transformers", "verifiers"}}
# Files of `verifier` that run inside the sandbox: the only code that may execute strangers' code.
PARTY_MARK = "# sandboxed: "


def sources(package: str) -> list[Path]:
    return sorted(path for path in (ROOT / package).rglob("*.py"))


def imported_roots(tree: ast.Module) -> set[str]:
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots.add((node.module or "").split(".")[0])
    return roots


@pytest.mark.parametrize("package", list(THIRD_PARTY))
def test_a_floor_imports_only_what_is_below_it(package):
    allowed = THIRD_PARTY[package] | {package} | set(sys.stdlib_module_names)
    wrong = {}
    for path in sources(package):
        more = set().union(*(names for folder, names in OPTIONAL.items() if path.is_relative_to(ROOT / folder)))
        wrong[str(path.relative_to(ROOT))] = sorted(imported_roots(ast.parse(path.read_text())) - allowed - more)
    assert {path: roots for path, roots in wrong.items() if roots} == {}


@pytest.mark.parametrize("folder", list(OPTIONAL))
def test_what_needs_more_is_imported_by_nothing_else(folder):
    name = folder.replace("/", ".")
    users = [path for package in ("webapp", "agents", "compiler", "verifier") for path in sources(package) if folder not in str(path)]
    assert [str(path) for path in users if f"from {name}" in path.read_text() or f"import {name}" in path.read_text()] == []


WITHOUT_CIRCLES = ("verifier", "compiler", "agents", "webapp", "stitchwork")
IN_ROOMS = ("verifier", "compiler", "webapp")
MOST_FILES = 25  # files directly in any one folder of these packages


def internal_imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """Returns the product's modules that a file imports, including imports within functions but not those for type checkers only. Importing a
    module also runs the packages around it, so these are included."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else str(node.module) for name in names}
        found |= internal_imports(node, modules)
    return {package for name in found for package in (name, *packages_around(name))} & modules


def packages_around(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def graph_of(package: str) -> dict[str, set[str]]:
    """Returns, for each module of a package, the other modules that its import runs, except the packages that contain it, because these run first in
    any case."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in sources(package)}
    found = {name: internal_imports(ast.parse(path.read_text()), set(paths)) for name, path in paths.items()}
    return {name: targets - set(packages_around(name)) for name, targets in found.items()}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Returns the rest of a graph after repeatedly removing every node that has no importer or no import."""
    left = {name: set(targets) - {name} for name, targets in graph.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        gone = {name for name, targets in left.items() if not targets or name not in imported}
        if not gone:
            return sorted([name, *sorted(targets)] for name, targets in left.items())
        left = {name: targets - gone for name, targets in left.items() if name not in gone}


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_file_imports_itself_by_way_of_others(package):
    assert circles(graph_of(package)) == []


def test_a_circle_is_found_within_functions_too():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert [row[0] for row in circles(graph)] == ["a", "b", "c"]
    tree = ast.parse("if TYPE_CHECKING:\n    import a\ndef f():\n    from p import b\n    from p.c import D\n")
    assert internal_imports(tree, {"a", "p", "p.b", "p.c"}) == {"p", "p.b", "p.c"}


PRODUCT = ("webapp", "agents", "compiler", "verifier", "stitchwork")
SAYS_WHY = "# Imports within functions: "  # the same reason for all functions of a module


def unexplained_imports(text: str) -> list[int]:
    """Returns the lines at which a function begins to import modules of the product without a comment that gives the reason."""
    if SAYS_WHY in text:
        return []
    lines, found = text.splitlines(), set()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in (inner for function in functions for inner in ast.walk(function)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            imports = [one for one in block if isinstance(one, ast.Import | ast.ImportFrom)] if isinstance(block, list) else []
            own = [one.lineno for one in imports if imported_roots(ast.Module([one], [])) & set(PRODUCT)]
            if own and "#" not in lines[own[0] - 1]:
                found.add(own[0])
    return sorted(found)


@pytest.mark.parametrize("package", PRODUCT)
def test_an_import_within_a_function_says_why(package):
    wrong = {str(path.relative_to(ROOT)): unexplained_imports(path.read_text()) for path in sources(package) if "migrations" not in path.parts}
    assert {path: lines for path, lines in wrong.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f():\n    from agents.run import Engine\n", [2]),
        ("def f():\n    if x:\n        import verifier.cli\n", [3]),
        ("def f():\n    from agents.run import Engine  # loads torch\n", []),
        ("# Imports within functions: they load torch.\ndef f():\n    from agents.run import Engine\n", []),
        ("if TYPE_CHECKING:\n    from agents.run import Engine\n", []),
        ("def f():\n    import json\n", []),
    ],
)
def test_an_import_without_a_reason_is_found(text, lines):
    assert unexplained_imports(text) == lines


@pytest.mark.parametrize("package", IN_ROOMS)
def test_no_folder_holds_more_files_than_one_can_look_over(package):
    folders = {path.parent for path in sources(package)}
    crowded = {str(folder.relative_to(ROOT)): count for folder in folders if (count := len(list(folder.glob("*.py")))) > MOST_FILES}
    assert crowded == {}


ONE_MEANING = ("Plan", "Row", "Kernel", "Refused", "Verifier")  # other classes have these nouns as the end of a longer name


@pytest.mark.parametrize("noun", ONE_MEANING)
def test_an_ambiguous_noun_names_one_class(noun):
    definition = re.compile(rf"^\s*class {noun}\b", re.MULTILINE)
    assert len([path for package in PRODUCT for path in sources(package) for _ in definition.finditer(path.read_text())]) == 1


EXECUTING_NAMES = {"exec", "eval", "__import__"}
EXECUTING_ATTRIBUTES = {
    ("importlib", "import_module"),
    ("importlib.util", "spec_from_file_location"),
    ("runpy", "run_path"),
    ("pickle", "load"),
    ("pickle", "loads"),
    ("marshal", "loads"),
    ("torch", "load"),
    ("torch.jit", "load"),
    ("torch.export", "load"),
    ("torch.export", "export"),
}


def executing_calls(path: Path) -> list[str]:
    """Returns the calls through which a source or a pickle could be executed."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, attribute = called.rpartition(".")
        if (isinstance(node.func, ast.Name) and called in EXECUTING_NAMES) or (owner, attribute) in EXECUTING_ATTRIBUTES:
            found.append(f"{path.relative_to(ROOT)}:{node.lineno} {called}")
    return found


def test_web_and_orchestrator_execute_no_source():
    found = [call for package in ("webapp", "agents", "compiler") for path in sources(package) for call in executing_calls(path)]
    assert found == []


def test_in_the_verifier_only_sandboxed_files_execute_sources():
    """A file that runs strangers' code declares it in its first lines, and no other file in `verifier` may run any."""
    found = []
    for path in sources("verifier"):
        if PARTY_MARK not in "".join(path.read_text().splitlines(keepends=True)[:12]):
            found += executing_calls(path)
    assert found == []


def test_trusted_processes_never_import_a_sandboxed_file():
    """Neither the judge nor anything above it imports a file that executes strangers' code, not even lazily."""
    sandboxed = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sources("verifier")
        if PARTY_MARK in "".join(path.read_text().splitlines(keepends=True)[:12])
    }
    wrong = []
    for package in ("verifier", "compiler", "agents", "webapp"):
        for path in sources(package):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if module in sandboxed:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
                wrong += [f"{module} imports {name}" for name in names if name in sandboxed]
    assert wrong == []


LONGEST_SQL = 5  # lines in a statement within Python; a longer one belongs in a separate file (webapp/sql.py)
BEGINS_SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE)\s")


def long_statements(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        text = node.value if isinstance(node, ast.Constant) else ast.unparse(node) if isinstance(node, ast.JoinedStr) else None
        begins = isinstance(text, str) and BEGINS_SQL.match(text.lstrip("f'\"\n"))
        if begins and (node.end_lineno or node.lineno) - node.lineno > LONGEST_SQL + 1:
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_long_sql_stands_in_files_of_its_own():
    assert [found for path in sources("webapp") if "migrations" not in path.parts for found in long_statements(path)] == []


WITHOUT_REASON = re.compile(r"# type: ignore(?!\[[\w, -]+\]  # \S)")


@pytest.mark.parametrize("package", PRODUCT)
def test_an_ignored_type_names_its_rule_and_says_why(package):
    lines = ((path, number, line) for path in sources(package) for number, line in enumerate(path.read_text().splitlines(), start=1))
    assert [f"{path.relative_to(ROOT)}:{number}" for path, number, line in lines if WITHOUT_REASON.search(line)] == []


def test_mypy_leaves_no_module_out():
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    assert [override["module"] for override in overrides if override.get("ignore_errors")] == []
