"""Comments, docstrings and documents read like a native speaker's: no sentence begins with "Of" or "Whose" or contains a phrase of
`AVOIDED`.

`tests/unit/webapp/test_words.py` does the same for pages and messages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INVERTED = re.compile(r"""(?:^|[.!?]["')`*]*\s)["'(*]*(?:Of|Whose)\s""")
# A phrase found repeatedly in drafts, and its replacement.
AVOIDED = {
    r"\bin vain\b": "without success; failed",
    r"\bhung up on\b": "is disconnected",
    r"\bas (it|they) comes?\b(?! into)": "as it arrives; unchanged",
    r"\bsays? nothing of\b": "does not mention",
    r"\bmakes? (it|this|that) known\b": "announces",
    r"\bcounts? nowhere\b": "does not count",
    r"\btakes? the place of\b": "replaces",
    r"\bby its text alone\b": "by its text only",
    r"\b(decided|computed) otherwise\b": "differently",
    r"\bbrought (no|nothing|less)\b": "yielded",
    r"\bit was made from\b": "from which it was derived",
    r"\bwould pay\b": "would be worthwhile",
    r"\bwhat there is\b(?! to)": "name it",
    r"\b(has|have) not (the|a|an|any)\b": "lacks; does not have",
    r"\b([Ii]t|[Tt]his|[Tt]hat|which|who) (is|was) no (?!longer|more|less|better|worse|\w+er\b)\w": "isn't a",
    r"\b(hitherto|thereof|wherein|whereby|therein|hereby|thence|thereto|whomever|lest)\b": "name it",
    r"\b(for want of|at the hands of|ought to|in its stead)\b": "for lack of; by; should; instead",
}
QUOTED = re.compile(r"`[^`]*`|“[^”]*”|\"[^\"]*\"")
FOLDERS = ("agents", "bench", "compiler", "static", "stitchwork", "tests", "verifier", "webapp")
PROGRAMS = ("tests/data/", "tests/integrity/cheats/", "tests/integrity/honest/", "static/vendor/")  # programs under test, and other people's texts
QUOTING = {ROOT / "bench" / "notes" / "2026-11-28-texts.md"}  # lists phrases that were replaced
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


@cache
def files() -> list[tuple[Path, list[str]]]:
    """Returns all files with their texts."""
    found: list[tuple[Path, list[str]]] = []
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))):
        if path.relative_to(ROOT).as_posix().startswith(PROGRAMS):
            continue
        if path.suffix == ".py":
            found.append((path, list(of_python(path.read_text()))))
        elif path.suffix in {".c", ".h", ".cu", ".js"} and path.is_file():
            found.append((path, list(of_native(path.read_text()))))
    for path in [
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "bench" / "notes").glob("*.md")),
        *sorted(ROOT.glob("*.md")),
        ROOT / "bench" / "README.md",
    ]:
        if path not in GENERATED:
            found.append((path, list(paragraphs(path.read_text()))))
    return found


def inverted(sentences: Iterable[str]) -> list[str]:
    return [said[:120] for said in sentences if INVERTED.search(said)]


def test_no_sentence_begins_with_of_or_whose():
    found = {str(path.relative_to(ROOT)): wrong for path, sentences in files() if (wrong := inverted(sentences))}
    assert found == {}


@pytest.mark.parametrize("phrase", AVOIDED)
def test_no_text_contains_the_phrase(phrase: str):
    pattern = re.compile(phrase)
    found = [
        f"{path.relative_to(ROOT)}: {said[max(0, hit.start() - 60) : hit.end() + 60]}"
        for path, texts in files()
        if path not in QUOTING
        for said in (QUOTED.sub("", text) for text in texts)
        if (hit := pattern.search(said))
    ]
    assert not found, f"write instead: {AVOIDED[phrase]}\n" + "\n".join(found)


@pytest.mark.parametrize(
    "sentence",
    [
        "It was tried in vain.",
        "Events are shown as they come.",
        "The report says nothing of the cause.",
        "The copy takes the place of the original.",
        "An element that was decided otherwise",
        "The last ten programs brought no gain.",
        "Nothing is left that would pay.",
        "Lists what there is.",
        "The database has not the tables of this version.",
        "A ratio of 1.01, which is no gain",
    ],
)
def test_such_a_phrase_is_found(sentence: str):
    assert any(re.search(phrase, sentence) for phrase in AVOIDED)


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
