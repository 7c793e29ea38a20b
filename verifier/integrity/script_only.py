"""Finds the code of a program that runs only if the file is started as a script: the body of `if __name__ == "__main__":` and the functions that only
this body uses. Authors test and profile their kernels there. A verifier imports the program under another name, so none of it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

_TEXT_OR_TABLE = {
    "exec",
    "eval",
    "compile",
    "__import__",
    "builtins",
    "__builtins__",
    "globals",
    "locals",
    "vars",
}  # run text or find names in tables
_IMPORTS = {"runpy", "run_path", "run_module", "import_module", "load_module", "exec_module", "__dict__", "__builtins__"}


def script_only(tree: ast.Module) -> frozenset[int]:
    """Returns the ids of the syntax tree's nodes that only a script runs. The result is empty if the program could give itself the name of a script,
    run its own text, or call a function by a name that the text does not show."""
    if _may_pose(tree):
        return frozenset()
    bodies = [node.body for node in tree.body if isinstance(node, ast.If) and _is_guard(node.test)]
    found = set(_ids(statement for body in bodies for statement in body))
    functions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.decorator_list]
    grown = bool(found)
    while grown:
        grown = False
        for function in functions:
            inner = _ids([function])
            uses = [id(node) for node in ast.walk(tree) if _mentions(node, function.name) and id(node) not in inner]
            if id(function) not in found and uses and found.issuperset(uses):
                found |= inner
                grown = True
    return frozenset(found)


def _ids(nodes: Iterable[ast.AST]) -> set[int]:
    return {id(inner) for node in nodes for inner in ast.walk(node)}


def _is_guard(test: ast.expr) -> bool:
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _mentions(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name) or _text(node) == name


def _may_pose(tree: ast.Module) -> bool:
    """Returns whether the text alone cannot show what runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and (node.id in _TEXT_OR_TABLE | _IMPORTS or (node.id == "__name__" and not isinstance(node.ctx, ast.Load))):
            return True
        if isinstance(node, ast.Attribute) and (node.attr in _IMPORTS or (node.attr == "__name__" and not isinstance(node.ctx, ast.Load))):
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(alias.name.split(".")[-1] in _TEXT_OR_TABLE | _IMPORTS for alias in node.names):
            return True
        if _text(node) == "__name__" or (isinstance(node, ast.keyword) and node.arg == "__name__"):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr") and not (len(node.args) > 1 and _text(node.args[1])):
            return True
    return False


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
