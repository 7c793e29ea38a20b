"""Line alignment, word marks, folds, colours."""

from __future__ import annotations

import pytest

from webapp.diffs.highlight import highlighted_lines
from webapp.runs import diff, diff_table

OLD = "".join(f"line {i}\n" for i in range(40))


def rows(result: diff.Diff) -> list[diff.Row]:
    return [row for block in result.blocks for row in block.rows]


def rebuilt(result: diff.Diff, old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    found = rows(result)
    return [old[row.old - 1] for row in found if row.old], [new[row.new - 1] for row in found if row.new]


@pytest.mark.parametrize("with_git", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD, OLD.replace("line 7\n", "line seven\n")),
        (OLD, "first\n" + OLD),
        (OLD, OLD + "last\n"),
        (OLD, OLD.replace("line 3\nline 4\n", "")),
        ("", "a\nb\n"),
        ("a\nb\n", ""),
        ("a\r\nb\r\n", "a\nc\n"),
        ("one\ftwo\x0bthree\n", "one\ftwo\x0bfour\n"),
        ("@@ -1 +1 @@\n-x\n+y\n", "@@ -1 +1 @@\n-x\n+z\n"),
    ],
)
def test_both_sides_can_be_read_back_in_order(monkeypatch, with_git, old, new):
    if not with_git:
        monkeypatch.setattr(diff.shutil, "which", lambda name: None)
    result = diff.compute(old, new)
    assert rebuilt(result, diff.lines_of(old), diff.lines_of(new)) == (diff.lines_of(old), diff.lines_of(new))


def test_counts_and_sameness():
    assert diff.compute(OLD, OLD).same
    result = diff.compute(OLD, OLD.replace("line 7\n", "line seven\n").replace("line 9\n", ""))
    assert (result.inserted, result.deleted, result.same) == (1, 2, False)


def test_what_is_far_from_a_change_is_folded():
    result = diff.compute(OLD, OLD.replace("line 20\n", "line twenty\n"))
    assert [block.folded for block in result.blocks] == [True, False, True]
    assert len(result.blocks[1].rows) == 1 + 2 * diff.CONTEXT


def test_a_line_with_a_finding_is_never_folded():
    result = diff.compute(OLD, OLD.replace("line 20\n", "line twenty\n"), keep={3})
    shown = {row.new for block in result.blocks if not block.folded for row in block.rows}
    assert 3 in shown


def test_words_that_differ_are_marked_on_both_sides():
    old, new = "    total += exp(x[i]);", "    total += exp(x[i] - largest);"
    old_marks, new_marks = diff.word_marks(old, new)
    assert old_marks == ()
    assert [new[begin:end] for begin, end in new_marks] == [" - largest"]
    assert diff.word_marks("import torch", "} while (0);") == ((), ())


def test_alike_lines_stand_beside_each_other():
    result = diff.compute("a = 1\n", "import os\na = 2\n")
    pairs = [(row.old, row.new) for row in rows(result)]
    assert pairs == [(None, 1), (1, 2)]


def test_very_large_programs_are_refused_with_a_sentence():
    refused = diff.compute("x\n", "y\n" * (diff.MAX_LINES + 1)).refused
    assert "later program is larger" in refused


def test_a_hanging_git_falls_back_to_difflib(monkeypatch):
    def hang(*args, **kwargs):
        raise diff.subprocess.TimeoutExpired("git", 3)

    monkeypatch.setattr(diff.subprocess, "run", hang)
    assert diff.compute("a\n", "b\n").inserted == 1


PROGRAM = '''import torch

SOURCE = r"""
extern "C" __global__ void add(const float* x, float* y) { y[0] = x[0]; }
"""


def f():
    """A docstring with int64_t in it stays a docstring."""
'''


def test_cuda_inside_a_python_string_is_coloured_as_cuda():
    lines = highlighted_lines(PROGRAM)
    assert ["".join(text for _, text in line) for line in lines] == PROGRAM.split("\n")
    native = {text: name for name, text in lines[3]}
    assert native["float"].startswith("k") and native["extern"].startswith("k")
    assert {name for name, text in lines[8] if "docstring" in text} == {"sd"}


def test_large_sources_come_without_colours():
    assert highlighted_lines("x = 1\n" * 400_000)[0] == [("", "x = 1")]


def test_html_of_a_line_is_escaped_and_marked():
    html = diff_table.line_html([("s", "<script>alert(1)</script>")], [(0, 8)])
    assert str(html) == '<span class="s"><mark>&lt;script&gt;</mark></span><span class="s">alert(1)&lt;/script&gt;</span>'


@pytest.mark.parametrize("layout", ["inline", "split"])
def test_sections_hold_every_line_once(layout):
    new = OLD.replace("line 20\n", "line twenty\n")
    computed = diff.compute(OLD, new)
    lines = [line for section in diff_table.sections(computed, OLD, new, layout, {21: ["note: look"]}) for line in section.lines]
    assert [line.left.number for line in lines if line.left.number] == list(range(1, 41))
    assert [line.right.number for line in lines if line.right.number] == list(range(1, 41))
    assert [line.right.notes for line in lines if line.right.notes] == [("note: look",)]
