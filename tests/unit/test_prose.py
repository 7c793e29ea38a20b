"""Sentences in comments, docstrings and documents begin with their subject: none begins with "Of" or "Whose"."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INVERTED = re.compile(r"""(?:^|[.!?]["')`*]*\s)["'(*]*(?:Of|Whose)\s""")
MARKER = re.compile(r"^\s*(?:[-*>|#]+|\d+\.)\s+")
GENERATED = {ROOT / "docs" / "reference" / name for name in ("strategies.md", "prompts.md")}  # generated from the catalogue and prompts of agents/
NATIVE = re.compile(r"//[^\n]*(?:\n\s*//[^\n]*)*|/\*.*?\*/", re.DOTALL)


def of_python(text: str) -> Iterator[str]:
    """Yields docstrings, and comments with adjacent lines joined."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (said := ast.get_docstring(node)):
            yield from paragraphs(said)
    last, lines = 0, [""]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.lstrip().startswith("#")
            said = token.string.lstrip("#: ")
            if alone and token.start[0] == last + 1:
                lines[-1] += " " + said
            else:
                lines.append(said)
            last = token.start[0] if alone else 0
    yield from lines


def of_native(text: str) -> Iterator[str]:
    """Yields comments in C and CUDA."""
    for found in NATIVE.finditer(text):
        yield " ".join(line.strip(" /*") for line in found[0].splitlines())


def paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs, list items and table cells, each as one line; fenced code is left out."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if not line.strip() or MARKER.match(line):
            yield " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            yield from (cell.strip() for cell in line.split("|"))
        elif line.strip():
            lines.append(MARKER.sub("", line).strip())


def files() -> Iterator[tuple[Path, Iterator[str]]]:
    for folder in ("verifier", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".py":
                yield path, of_python(path.read_text())
            elif path.suffix in {".c", ".h", ".cu"}:
                yield path, of_native(path.read_text())
    for path in [
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "bench" / "notes").glob("*.md")),
        *sorted(ROOT.glob("*.md")),
        ROOT / "bench" / "README.md",
    ]:
        if path not in GENERATED:
            yield path, paragraphs(path.read_text())


def inverted(sentences: Iterator[str]) -> list[str]:
    return [said[:120] for said in sentences if INVERTED.search(said)]


def test_no_sentence_begins_with_of_or_whose():
    found = {str(path.relative_to(ROOT)): wrong for path, sentences in files() if (wrong := inverted(sentences))}
    assert found == {}


@pytest.mark.parametrize(
    ("reads", "text"),
    [
        (of_python, '"""Of one model at a time."""'),
        (of_python, 'def f():\n    """Reads it.\n\n    Of gigabytes nothing is kept."""'),
        (of_python, "# It waits. Of several\n# the first one goes on.\nx = 1"),
        (of_python, "# It waits.\n# Whose turn it is, the queue says.\nx = 1"),
        (of_python, "x = 1  # Of one call."),
        (of_native, "/* Waits.\n * Of two calls the first. */"),
        (paragraphs, "A line. Of several\nlaunches the mean."),
        (paragraphs, "| name | Of each kernel |"),
        (paragraphs, "- **Lists**: a line.\n- Of large ones a sample."),
    ],
)
def test_such_a_sentence_is_found(reads, text):
    assert inverted(reads(text))


@pytest.mark.parametrize(
    ("reads", "text"),
    [
        (of_python, 'x = "Of a message"  # of one call'),
        (of_python, "# the share\n# of one call\nx = 1"),
        (paragraphs, "The mean of several launches.\n\n```\nOf code nothing is said.\n```"),
    ],
)
def test_other_sentences_are_left_alone(reads, text):
    assert not inverted(reads(text))
