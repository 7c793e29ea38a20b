"""Converts source statements to text: verbatim if that yields the same program, otherwise by unparsing their syntax tree.

A statement is kept verbatim if it does not share a line with another statement and, for class members, is indented by four spaces like the printed
text around it. All others are printed from their syntax tree: statements with tabs, two-space indentation, several statements per line, or private
names (which denote a different attribute in a class with a different name).
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator

from verifier.private_names import identifiers, is_private, mangle

INDENT = "    "
NEW_NAME = "ModelNew"
_LINE_END = re.compile(r"\r\n|\r|\n")  # the characters that Python treats as line ends (`str.splitlines` accepts more)
_DEF = re.compile(rb"(async\s+)?def\s+")


class SourceText:
    """Prints the statements of a source file. `renamed` maps methods of `owner`, a class, to their new names."""

    def __init__(self, source: str, owner: ast.ClassDef, renamed: dict[str, str]):
        self.lines = _LINE_END.split(source.removeprefix("\ufeff"))
        self.owner, self.renamed = owner, renamed
        self.private = any(is_private(name) for name in identifiers(owner))

    def of(self, item: ast.stmt) -> str:
        """Returns a statement of the module."""
        lines = self._lines(item)
        return self._edited(lines, item) if _same("\n".join(lines), item) else ast.unparse(self._changed(item))

    def member(self, item: ast.stmt) -> str:
        """Returns a statement of the class, indented by four spaces."""
        lines = self._lines(item)
        indented = lines[0].startswith(INDENT) and not lines[0][len(INDENT) : len(INDENT) + 1].isspace()
        if indented and not self.private and not _has_tabs(lines) and _same("class _:\n" + "\n".join(lines), item, within=True):
            return self._edited(lines, item)
        shell = ast.ClassDef(name="_", bases=[], keywords=[], body=[self._changed(item, within=True)], decorator_list=[])
        return ast.unparse(ast.fix_missing_locations(shell)).split("\n", 1)[1].strip("\n")

    def head(self) -> str:
        """Returns the decorators and the class statement of the owner under its new name."""
        decorators = "".join(f"@{ast.unparse(item)}\n" for item in self.owner.decorator_list)
        bases = [*map(ast.unparse, self.owner.bases), *map(ast.unparse, self.owner.keywords)]
        return f"{decorators}class {NEW_NAME}({', '.join(bases)}):"

    def _lines(self, item: ast.stmt) -> list[str]:
        first = min([item.lineno, *(d.lineno for d in getattr(item, "decorator_list", []))])
        return self.lines[first - 1 : item.end_lineno]

    def _edits(self, item: ast.AST) -> Iterator[tuple[ast.Name | ast.FunctionDef | ast.AsyncFunctionDef, str]]:
        """Yields the nodes with identifiers that change: the class passed to `super`, and renamed methods."""
        for node in ast.walk(item):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Name) and first.id == self.owner.name:
                    yield first, NEW_NAME
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name in self.renamed and item in self.owner.body:
            yield item, self.renamed[item.name]

    def _edited(self, lines: list[str], item: ast.stmt) -> str:
        """Returns the lines of `item` with its edits, which are applied from last to first so that positions remain valid."""
        rows = [line.encode() for line in lines]
        top = (item.end_lineno or item.lineno) - len(lines) + 1
        for node, name in sorted(self._edits(item), key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
            row, at = node.lineno - top, node.col_offset
            if isinstance(node, ast.Name):
                length = len(node.id.encode())
            else:
                word = _DEF.match(rows[row], at)
                assert word is not None and isinstance(node, ast.FunctionDef)
                at, length = word.end(), len(node.name.encode())
            rows[row] = rows[row][:at] + name.encode() + rows[row][at + length :]
        return b"\n".join(rows).decode()

    def _changed(self, item: ast.stmt, within: bool = False) -> ast.stmt:
        """Returns a copy of the tree with its edits applied. In the class, private names are replaced by their mangled form."""
        twins = copy.deepcopy(item)
        order = {id(node): twin for node, twin in zip(ast.walk(item), ast.walk(twins), strict=True)}
        for node, name in self._edits(item):
            twin = order[id(node)]
            setattr(twin, "id" if isinstance(twin, ast.Name) else "name", name)
        if within and self.private:
            mangle(twins, self.owner.name)
        return twins


def _same(text: str, item: ast.stmt, within: bool = False) -> bool:
    """Returns whether `text` is exactly this statement."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    if within:
        body = body[0].body if len(body) == 1 and isinstance(body[0], ast.ClassDef) else []
    return len(body) == 1 and ast.dump(body[0]) == ast.dump(item)


def _has_tabs(lines: list[str]) -> bool:
    return any("\t" in line[: len(line) - len(line.lstrip())] for line in lines)
