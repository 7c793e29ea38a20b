"""The design system stays in order: no unused class, no colour outside the tokens, no undefined token, no overlong file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from pygments.token import STANDARD_TYPES

from webapp.environment import ROOT

SHEETS = sorted((ROOT / "static").rglob("*.css"))
COMMENT = re.compile(r"/\*.*?\*/", re.S)
SELECTOR = re.compile(r"([^{};]+)\{")
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl|oklch|light-dark)a?\(")
MOST_LINES = 350
# Written by libraries, never by this project.
FOREIGN = re.compile(r"cm-|htmx-|plotly|js-plotly|modebar|hoverlayer|legendtext|xtick|ytick|gtitle")


def rules(sheet: Path) -> str:
    return COMMENT.sub("", sheet.read_text())


@cache
def sources() -> str:
    files = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static").rglob("*.js"), *(ROOT / "webapp").rglob("*.py")]
    return "\n".join(file.read_text() for file in files)


@cache
def used_words() -> frozenset[str]:
    """Returns every word in templates, modules and Python code that could name a class, plus Pygments' own classes."""
    return frozenset(re.findall(r"[A-Za-z_][\w-]*", sources())) | frozenset(STANDARD_TYPES.values())


@cache
def stems() -> tuple[str, ...]:
    """Returns the text that precedes a value and forms a class with it: `class-{{ name }}`, `depth-${level}`."""
    return tuple(set(re.findall(r"([A-Za-z_][\w-]*)(?=\{\{|\$\{|\{\w+\})", sources())))


def is_used(name: str) -> bool:
    return name in used_words() or name.startswith(stems())


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: str(path.relative_to(ROOT / "static")))
def test_every_class_is_used_by_a_template_or_a_module(sheet: Path):
    named = {name for selector in SELECTOR.findall(rules(sheet)) if not selector.strip().startswith("@") for name in CLASS.findall(selector)}
    dead = {name for name in named if not FOREIGN.match(name) and not is_used(name)}
    assert not dead, f"no template or module uses these classes of {sheet.name}: {sorted(dead)}"


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: str(path.relative_to(ROOT / "static")))
def test_colours_are_tokens_and_files_are_short(sheet: Path):
    assert len(sheet.read_text().splitlines()) <= MOST_LINES, f"{sheet.name} has more than {MOST_LINES} lines: split it by what is in it"
    if sheet.name != "tokens.css":
        written = {found.group() for found in COLOUR.finditer(rules(sheet))}
        assert not written, f"colours belong into tokens.css, not into {sheet.name}: {sorted(written)}"


def test_every_token_that_is_used_is_defined():
    defined = {name for sheet in SHEETS for name in re.findall(r"(--[\w-]+)\s*:", rules(sheet))}
    modules = [*(ROOT / "static").rglob("*.js")]
    set_by_modules = {name for module in modules for name in re.findall(r"""setProperty\(\s*["'`](--[\w-]+)""", module.read_text())}
    used = {(sheet.name, name) for sheet in SHEETS for name in re.findall(r"var\((--[\w-]+)\s*[,)]", rules(sheet))}
    assert not {f"{sheet}: {name}" for sheet, name in used if name not in defined | set_by_modules}


def test_no_tag_spans_lines():
    """A tag that is broken across lines is shown as text."""
    broken = re.compile(r"\{%(?:(?!%\}).)*\n(?:(?!\{%).)*%\}")
    found = [str(file.relative_to(ROOT)) for file in (ROOT / "templates").rglob("*.html") if broken.search(file.read_text())]
    assert not found, f"a template tag has to stand on one line: {found}"
