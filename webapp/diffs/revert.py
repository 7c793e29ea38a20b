"""Builds a program without one of its changed hunks, and checks whether the result can be a valid program. Programs are only read, never run."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verifier.program import Program
from verifier.source import SourceError
from webapp.diffs.anatomy import STRONG, anatomy, uncommented
from webapp.diffs.compute import Diff, Hunk
from webapp.diffs.lines import lines_of

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?!\s*(?:define|if|elif))[^\n]*", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Reverted:
    """A program with some hunks reverted. An empty `status` means that the program can be measured. Otherwise `message` explains why it cannot."""

    number: int  # the number of its first hunk
    members: tuple[int, ...]
    source: str
    status: Literal["", "same", "syntax", "names"] = ""
    message: str = ""


def reverted_hunks(diff: Diff, old: str, new: str) -> list[Reverted]:
    """Reverts each hunk alone, or together with the hunks at the other ends of its moved blocks, because half a move would duplicate or drop a
    block."""
    found = []
    for members in groups(diff.hunks):
        source = without(old, new, [hunk for hunk in diff.hunks if hunk.number in members])
        status, message = judged(source, new)
        found.append(Reverted(members[0], members, source, status, message))
    return found


def groups(hunks: Sequence[Hunk]) -> list[tuple[int, ...]]:
    known: dict[int, set[int]] = {}
    for hunk in hunks:
        joined = {hunk.number, *hunk.partners}
        for number in list(joined):
            joined |= known.get(number, set())
        for number in joined:
            known[number] = joined
    return sorted({tuple(sorted(group)) for group in known.values()})


def without(old: str, new: str, hunks: Sequence[Hunk]) -> str:
    """Returns the newer text with these hunks replaced by the older lines."""
    before, after = lines_of(old), lines_of(new)
    for hunk in sorted(hunks, key=lambda one: one.number, reverse=True):
        for a, b, c, d in reversed(hunk.changes):
            after[c:d] = before[a:b]
    return "".join(f"{line}\n" for line in after)


def judged(source: str, new: str) -> tuple[Literal["", "same", "syntax", "names"], str]:
    """Returns what can be determined without a device."""
    try:
        Program.read(source)
    except SourceError as error:
        return "syntax", f"without this hunk the program cannot be read: {error}"
    if _meaning(source) == _meaning(new):
        return "same", "only comments, documentation or white space differ: the program is the same without it"
    tree, newer = ast.parse(source), ast.parse(new)
    missing = _names(source, tree) or _attributes(tree, newer) or _native(source, new)
    return ("names", missing) if missing else ("", "")


def _meaning(source: str) -> str:
    """Returns the syntax tree without parts that have no effect: docstrings (unless the program reads them), and C++ and CUDA comments in strings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if "__doc__" not in source and ast.get_docstring(node, clean=False) is not None:
                node.body[0] = ast.Pass()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and STRONG.search(node.value):
            node.value = uncommented(node.value)
    return ast.dump(tree)


def _names(source: str, tree: ast.Module) -> str:
    """Reports a name that is used but never bound. Programs with a star import are not checked, because it may bind any name."""
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return ""
    top = symtable.symtable(source, "program.py", "exec")
    bound = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()}
    tables = [top]
    wanted: set[str] = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if symbol.is_declared_global() and symbol.is_assigned():
                bound.add(name)
            if symbol.is_referenced() and (symbol.is_global() or table is top):
                wanted.add(name)
    unknown = wanted - bound - set(dir(builtins)) - {"__file__", "__name__", "__doc__", "__class__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in unknown:
            return f"without this hunk nothing defines {node.id}, which line {node.lineno} uses"
    return ""


def _attributes(tree: ast.Module, newer: ast.Module) -> str:
    """Reports an attribute of `self` that is read but, without the hunk, never set."""
    for name, (reads, sets) in _selves(tree).items():
        known = _selves(newer).get(name)
        gone = {attribute: line for attribute, line in reads.items() if attribute not in sets and known and attribute in known[1]}
        for attribute, line in gone.items():
            return f"without this hunk nothing sets self.{attribute}, which line {line} of {name} reads"
    return ""


def _selves(tree: ast.Module) -> dict[str, tuple[dict[str, int], set[str]]]:
    """Returns for each class the attributes of self that it reads, each with a line, and the names that it sets or defines (including by string, as
    register_buffer does)."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        reads: dict[str, int] = {}
        sets: set[str] = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
                if isinstance(inner.ctx, ast.Load):
                    reads.setdefault(inner.attr, inner.lineno)
                else:
                    sets.add(inner.attr)
            elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                sets.add(inner.name)
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                sets.add(inner.id)
            elif isinstance(inner, ast.Call):
                sets |= {argument.value for argument in inner.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)}
        found[node.name] = reads, sets
    return found


def _native(source: str, new: str) -> str:
    """Reports a C++ or CUDA function that disappears with the hunk but is still referenced."""
    mine, newer = anatomy(source), anatomy(new)
    gone = _defined(newer) - {one.bare for one in mine.definitions}
    for name in sorted(gone):
        used = re.search(rf"\b{re.escape(name)}\b", _blanked(mine.source))
        if used:
            return f"without this hunk nothing defines {name}, which line {mine.source.count(chr(10), 0, used.start()) + 1} uses"
    return ""


def _defined(body: Any) -> set[str]:
    spans = [(body.line_at(begin), body.line_at(end)) for begin, end in body.native]
    return {one.bare for one in body.definitions if any(first <= one.begin <= last for first, last in spans)}


def _blanked(text: str) -> str:
    """Returns the text with comments blanked out, without changing its length or lines."""
    return re.sub(
        r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?!\s*(?:define|if|elif))[^\n]*", lambda match: re.sub(r"[^\n]", " ", match.group()), text, flags=re.S | re.M
    )
