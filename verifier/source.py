"""Reads an untrusted Python source without running it, to find out where it is wrong and what it defines."""

from __future__ import annotations

import ast
import re
import sys

from pydantic import BaseModel, ConfigDict

from verifier.hashes import sha256 as sha256

MAX_SOURCE_BYTES = 512 * 1024


# a pattern for Python's message and the line that it refers to; the first version that has the construct; the construct's name; the remedy
_NEWER = (
    (r".*\n\s*(async\s+)?(class|def)\s+\w+\s*\[", (3, 12), "a type parameter (`class M[T]`, `def f[T]`)", "use typing.TypeVar and typing.Generic"),
    (r".*\n\s*type\s+\w+\s*(\[.*\])?\s*=[^=]", (3, 12), "the statement `type X = ...`", "assign the type: `X = ...`"),
    (r"f-string.* backslash", (3, 12), "an f-string with a backslash within its braces", "assign the value before, and name it there"),
    (r"f-string.*\n.*f([\"']).*\{[^{}]*\1[^{}]*\1[^{}]*\}", (3, 12), "an f-string with its own quotes within its braces", "use other quotes there"),
)


class Problem(BaseModel):
    """One problem in a source, worded so that its author can act on it."""

    model_config = ConfigDict(frozen=True)

    line: int | None = None  # 1-based
    column: int | None = None  # 1-based
    message: str  # the cause
    hint: str = ""  # how to fix it


class SourceError(ValueError):
    """Raised for an unusable source; `problems` lists where the source is wrong, and why."""

    def __init__(self, problems: list[Problem]):
        super().__init__("; ".join(f"line {p.line}: {p.message}" if p.line else p.message for p in problems))
        self.problems = problems


def syntax(error: SyntaxError, source: str) -> tuple[str, str]:
    """Returns a description of a syntax error, and how to fix it."""
    lines = source.removeprefix("\ufeff").splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    for pattern, since, what, hint in _NEWER:
        if sys.version_info < since and re.match(pattern, f"{error.msg}\n{line}"):
            here, needed = (".".join(map(str, version)) for version in (sys.version_info[:2], since))
            return f"{what} needs Python {needed}, and this verifier runs Python {here}", hint
    if line.lstrip().startswith("```"):
        return "the source is in a Markdown fence", "submit only what stands between the lines with ```"
    return error.msg, "the source must be valid Python"


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
        message, hint = syntax(error, source)
        raise SourceError([Problem(line=error.lineno, column=error.offset, message=f"syntax error: {message}", hint=hint)]) from None
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
                        hint="use torch and the standard library, or ask the operator to name the module in STITCH_TASK_IMPORTS"
                        if root != "."
                        else "copy what it imports into this source",
                    )
                )
    return problems


def _bears_absence(item: ast.Try) -> bool:
    """Returns whether a `try` statement handles a missing module and lets the program continue."""
    caught = [ast.unparse(handler.type) if handler.type is not None else "Exception" for handler in item.handlers]
    return any(word in text for text in caught for word in ("ImportError", "ModuleNotFoundError", "Exception"))
