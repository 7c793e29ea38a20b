"""Reads an untrusted Python source without running it, to find out where it is wrong and what it defines."""

from __future__ import annotations

import ast

from pydantic import BaseModel, ConfigDict

from verifier.hashes import sha256 as sha256

MAX_SOURCE_BYTES = 512 * 1024


class Problem(BaseModel):
    """One problem in a source, worded so that its author can act on it."""

    model_config = ConfigDict(frozen=True)

    line: int | None = None  # 1-based
    column: int | None = None  # 1-based
    message: str  # the cause
    hint: str = ""  # how to fix it


class SourceError(ValueError):
    """Raised for an unusable source; `problems` says where the source is wrong and why."""

    def __init__(self, problems: list[Problem]):
        super().__init__("; ".join(f"line {p.line}: {p.message}" if p.line else p.message for p in problems))
        self.problems = problems


def parse(source: str) -> ast.Module:
    """Returns the syntax tree. Raises `SourceError` with the line on which parsing failed."""
    if len(source.encode()) > MAX_SOURCE_BYTES:
        raise SourceError([Problem(message=f"the source is larger than {MAX_SOURCE_BYTES // 1024} KiB", hint="submit one module")])
    if "\0" in source:
        line = source[: source.index("\0")].count("\n") + 1
        raise SourceError([Problem(line=line, message="the source contains a NUL byte", hint="submit plain UTF-8 text")])
    try:
        return ast.parse(source.removeprefix("\ufeff"))  # the BOM that editors on Windows put at the beginning of a file
    except SyntaxError as error:
        raise SourceError(
            [Problem(line=error.lineno, column=error.offset, message=f"syntax error: {error.msg}", hint="the source must be valid Python")]
        ) from None
    except (RecursionError, MemoryError):
        raise SourceError([Problem(message="the source is nested too deeply to parse", hint="simplify the expression")]) from None


def top_level(tree: ast.Module) -> dict[str, ast.stmt]:
    """Returns the names that the module defines by `class`, `def`, `import` or a plain assignment, with their statements."""
    names: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names[target.id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                names[(alias.asname or alias.name).split(".")[0]] = node
    return names


def import_problems(tree: ast.Module, allowed: frozenset[str]) -> list[Problem]:
    """Finds imports outside the allowlist anywhere in the source. An import is accepted if the source handles its failure."""
    problems = []
    guarded = {
        id(inner) for node in ast.walk(tree) if isinstance(node, ast.Try) and _bears_absence(node) for item in node.body for inner in ast.walk(item)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            roots = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            roots = [(node.module or "").split(".")[0] if node.level == 0 else "."]
        else:
            continue
        for root in roots:
            if root not in allowed:
                problems.append(
                    Problem(
                        line=node.lineno,
                        column=node.col_offset + 1,
                        message=f"import of {root!r} is not allowed" if root != "." else "relative imports are not allowed",
                        hint="use torch and the standard library, or ask the operator to name the module in STITCH_TASK_IMPORTS",
                    )
                )
    return problems


def _bears_absence(item: ast.Try) -> bool:
    """Returns whether a `try` statement handles a missing module and lets the program continue."""
    caught = [ast.unparse(handler.type) if handler.type is not None else "Exception" for handler in item.handlers]
    return any(word in text for text in caught for word in ("ImportError", "ModuleNotFoundError", "Exception"))
