"""Detects a program that merely returns the task, that is, one with the same code apart from names, comments, docstrings and annotations."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def unchanged(task: str, program: str) -> bool:
    """Returns whether the program is the unchanged task. Returns False if one of them cannot be parsed."""
    try:
        told = _described(ast.parse(program), "ModelNew")
        return bool(told) and told == _described(ast.parse(task), "Model")
    except (SyntaxError, ValueError, RecursionError):
        return False


def _described(module: ast.Module, entry: str) -> list[str]:
    """Returns the entry class and everything that it needs from the module, in the order of first use."""
    known = _definitions(module)
    entry = _meant(known, entry)
    names: dict[str, str] = {entry: "entry"}
    waiting, told = [entry], []
    while waiting:
        node = known.get(waiting.pop(0))
        if node is None:
            continue
        for name in _names(node):
            if name in known and name not in names:
                names[name] = f"needed{len(names)}"
                waiting.append(name)
        told.append(ast.dump(_Plain(names).visit(ast.parse(ast.unparse(node)))))
    return told


def _definitions(module: ast.Module) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in module.body:
        if isinstance(node, Definition):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
    return found


def _meant(known: dict[str, ast.stmt], name: str) -> str:
    """Returns the class that a name refers to, following `ModelNew = Model` and classes that add nothing to their base."""
    for _ in range(len(known)):
        node = known.get(name)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            name = node.value.id
        elif isinstance(node, ast.ClassDef) and len(node.bases) == 1 and isinstance(node.bases[0], ast.Name) and node.bases[0].id in known:
            if any(not _adds_nothing(statement) for statement in node.body):
                return name
            name = node.bases[0].id
        else:
            return name
    return name


def _adds_nothing(statement: ast.stmt) -> bool:
    """Returns True for `pass`, a docstring, or a method that only calls the base method."""
    if isinstance(statement, ast.Pass) or isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    if not isinstance(statement, ast.FunctionDef):
        return False
    calls = [line for line in statement.body if not _adds_nothing(line)]
    return all(_calls_base(line, statement) for line in calls)


def _calls_base(line: ast.stmt, method: ast.FunctionDef) -> bool:
    """Returns whether the line calls the base method with the method's own arguments, unchanged."""
    call = line.value if isinstance(line, ast.Expr | ast.Return) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == method.name):
        return False
    given = [argument.arg for argument in method.args.args[1:]]
    if call.keywords or [getattr(argument, "id", None) for argument in call.args] != given:
        return False
    base = call.func.value
    return isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super"


def _names(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield child.id


class _Plain(ast.NodeTransformer):
    """Strips docstrings and annotations, and renames arguments, locals and needed definitions by their position."""

    def __init__(self, names: dict[str, str]):
        self.names = dict(names)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.names.get(node.name, node.name)
        node.body, node.returns = _without_docstring(node.body), None
        outside = dict(self.names)
        every = [*node.args.posonlyargs, *node.args.args, node.args.vararg, *node.args.kwonlyargs, node.args.kwarg]
        for argument in filter(None, every):
            self.names[argument.arg] = f"local{len(self.names)}"
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                self.names.setdefault(child.id, f"local{len(self.names)}")
        found = self.generic_visit(node)
        self.names = outside
        return found

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=self.names.get(node.arg, node.arg))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self.names.get(node.id, node.id), ctx=node.ctx)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:] or [ast.Pass()]
    return body
