"""The texts that people and models read: in templates, in the pages' modules, in messages and in prompts, each with its location. Comments and
docstrings are excluded, because only developers read them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple

from webapp.environment import ROOT

ATTRIBUTES = re.compile(r'\b(?:title|placeholder|aria-label|aria-description|alt|text|help|todo|cause|kept|action|label)="([^"]*)"')
TAGS = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.S)
INLINE = re.compile(r"</?(?:b|strong|code|em|a|span|kbd|q|i)\b[^>]*>")
HIDDEN = re.compile(r"\{%\s*comment.*?endcomment\s*%\}|\{#.*?#\}|<script\b.*?</script>|<!--.*?-->", re.S)
COMMENTS = re.compile(r"/\*(?:[^*]|\*(?!/))*\*/|^[ \t]*//.*$|[ \t]// .*$", re.M)
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
LEFT_OUT = ("migrations", "webapp/roles.py")  # SQL, and labels in their earlier wording
SQL = re.compile(r"\b(SELECT|UPDATE|INSERT|CREATE|DELETE|GRANT|REVOKE|ALTER|WHERE)\b")
LEAST_WORDS = 2


class Text(NamedTuple):
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text[:160]}"


def everything() -> Iterator[Text]:
    for path in sorted((ROOT / "templates").rglob("*.*")):
        yield from _of(path, _template(path.read_text()))
    for path in sorted((ROOT / "static").rglob("*.js")):
        yield from _of(path, _module(path.read_text()))
    for folder in ("webapp", "agents", "stitchwork"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(part in str(path) for part in LEFT_OUT):
                yield from _of(path, _python(path.read_text()))
    for path in sorted((ROOT / "agents" / "prompts").rglob("*.md")):
        yield from _of(path, enumerate(path.read_text().splitlines(), 1))


def _of(path: Path, found: Iterator[tuple[int, str]]) -> Iterator[Text]:
    for line, text in found:
        plain = re.sub(r"\s+", " ", text).strip()
        if "def forward(" in plain or "class Model" in plain:
            continue  # a program
        if len(re.findall(r"[^\W\d_]{2,}", plain)) >= LEAST_WORDS:
            yield Text(str(path.relative_to(ROOT)), line, plain)


def _template(source: str) -> Iterator[tuple[int, str]]:
    """Yields sentences between blocks of markup, with "◦" for inserted values, and the text of attributes."""
    shown = HIDDEN.sub(lambda found: "\n" * found[0].count("\n"), source)
    for found in ATTRIBUTES.finditer(shown):
        yield shown.count("\n", 0, found.start()) + 1, unescape(TAGS.sub("◦", found[1]))
    plain = re.sub(r"<[^>]+>", "\0", INLINE.sub("", TAGS.sub(lambda found: "◦" if found[0].startswith("{{") else "¦", shown)))
    for number, line in enumerate(plain.split("\n"), 1):
        for piece in line.split("\0"):
            yield number, unescape(re.sub("¦+", " ", piece))


def _module(source: str) -> Iterator[tuple[int, str]]:
    shown = COMMENTS.sub(lambda found: "\n" * found[0].count("\n"), source)
    for found in LITERAL.finditer(shown):
        text = found[1] if found[1] is not None else found[2]
        yield shown.count("\n", 0, found.start()) + 1, re.sub(r"\$\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "◦", text)


def _python(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body[0] for node in ast.walk(tree) if isinstance(node, nodes) and node.body]
    passed = {id(first.value) for first in bodies if isinstance(first, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            text = "".join(part.value if isinstance(part, ast.Constant) else "◦" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            text = node.value
        else:
            continue
        if not SQL.search(text):
            yield node.lineno, text
