"""Finds the code of a program that runs only if the file is started as a script: the body of `if __name__ == "__main__":` and the functions that only
this body uses. Authors test and profile their kernels there. A verifier imports the program under another name, so none of it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

_RUNS_TEXT = {
    "exec",
    "eval",
    "__import__",
    "builtins",
    "__builtins__",
    "runpy",
    "run_path",
    "run_module",
    "import_module",
    "load_module",
    "exec_module",
}
# Reach a module's variables without its name in the text, so that the module could be given the name of a script.
_VARIABLES = {"globals", "locals", "vars", "__dict__", "__globals__", "__setattr__", "f_globals", "f_locals", "f_builtins", "modules"}
_FINDS_OBJECTS = {"get_referrers", "get_referents", "get_objects", "methodcaller", "attrgetter", "patch"}
_POSES = frozenset(_RUNS_TEXT | _VARIABLES | _FINDS_OBJECTS)
_NAMES = _POSES | {"compile"}  # the built-in function; `re.compile` and `torch.compile` are attributes


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
        if isinstance(node, ast.Name) and (node.id in _NAMES or (node.id == "__name__" and not isinstance(node.ctx, ast.Load))):
            return True
        if isinstance(node, ast.Attribute) and (node.attr in _POSES or (node.attr == "__name__" and not isinstance(node.ctx, ast.Load))):
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(alias.name.split(".")[-1] in _NAMES for alias in node.names):
            return True
        if _text(node) == "__name__" or (isinstance(node, ast.keyword) and node.arg == "__name__"):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr") and not (len(node.args) > 1 and _text(node.args[1])):
            return True
    return False


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
