"""Line alignment, moved blocks, hunks, folds, word marks, and the rows of a page."""

from __future__ import annotations

import re

import pytest

from webapp.diffs import compute as computing
from webapp.diffs.anatomy import anatomy
from webapp.diffs.compute import Diff, _compute, compute, folds
from webapp.diffs.lines import changes, lines_of, word_marks
from webapp.diffs.notes import Note
from webapp.diffs.pairs import align
from webapp.diffs.table import PART, Table, line_html

OLD = "".join(f"line {i}\n" for i in range(40))
BLOCK = "".join(f"def moved_{i}(argument):\n    return argument * {i}\n\n" for i in range(6))


def rebuilt(result: Diff, old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    return [old[row.old - 1] for row in result.rows if row.old], [new[row.new - 1] for row in result.rows if row.new]


@pytest.mark.parametrize("seconds", [5.0, 0.0], ids=["in time", "out of time"])
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
        ("a\0b\n", "a\0c\nlast"),
        (OLD + BLOCK, BLOCK + OLD),
        (OLD + BLOCK, BLOCK.replace("def", "    def").replace("  return", "      return") + "x = 1\n" + OLD.replace("line 8", "line eight")),
    ],
)
def test_both_sides_can_be_read_back_in_order(old, new, seconds):
    result = _compute(old, new, False, seconds)
    assert rebuilt(result, lines_of(old), lines_of(new)) == (lines_of(old), lines_of(new))


def test_counts_and_sameness():
    assert compute(OLD, OLD).same
    result = compute(OLD, OLD.replace("line 7\n", "line seven\n").replace("line 9\n", ""))
    assert (result.inserted, result.deleted, result.moved, result.same, len(result.hunks)) == (1, 2, 0, False, 1)


def test_white_space_can_be_ignored():
    new = OLD.replace("line 7", "    line  7")
    assert not compute(OLD, new).same
    assert compute(OLD, new, ignore_space=True).same
    assert changes(["a", " b "], ["a", "b"], ignore_space=True) == []


def test_a_moved_block_is_neither_removed_nor_added():
    result = compute(OLD + BLOCK, BLOCK + OLD)
    assert (result.inserted, result.deleted) == (0, 0) or result.moved >= 17
    assert {row.kind for row in result.rows} <= {"equal", "moved-out", "moved-in", "deleted", "inserted"}
    out = next(row for row in result.rows if row.kind == "moved-out")
    assert lines_of(OLD + BLOCK)[out.old - 1] == lines_of(BLOCK + OLD)[out.other - 1]
    assert result.hunks[0].partners == (2,) and result.hunks[1].partners == (1,)


def test_a_block_that_moved_into_a_class_is_still_recognised():
    inside = "class Holder:\n" + "".join(f"    {line}\n" if line else "\n" for line in lines_of(BLOCK))
    result = compute(OLD + BLOCK, inside + OLD)
    assert result.moved >= 16


def test_few_letters_are_no_moved_block():
    result = compute("a\n}\n}\n" + OLD, OLD + "}\n}\nb\n")
    assert result.moved == 0


def test_what_is_far_from_a_change_is_folded():
    result = compute(OLD, OLD.replace("line 20\n", "line twenty\n"))
    first, second = folds(result.rows)
    assert (first.begin, first.end, second.end) == (0, 20 - computing.CONTEXT, 40)


def test_a_line_with_a_finding_is_never_folded():
    result = compute(OLD, OLD.replace("line 20\n", "line twenty\n"))
    hidden = {index for fold in folds(result.rows, keep={3}) for index in range(fold.begin, fold.end)}
    assert 2 not in hidden and 10 in hidden


def test_changes_that_stand_together_are_one_hunk():
    new = OLD.replace("line 10\n", "ten\n").replace("line 12\n", "twelve\n").replace("line 30\n", "thirty\n")
    assert [hunk.new for hunk in compute(OLD, new).hunks] == [(10, 13), (30, 31)]


def test_words_that_differ_are_marked_on_both_sides():
    old, new = "    total += exp(x[i]);", "    total += exp(x[i] - largest);"
    old_marks, new_marks = word_marks(old, new)
    assert old_marks == ()
    assert [new[begin:end] for begin, end in new_marks] == [" - largest"]
    assert word_marks("import torch", "} while (0);") == ((), ())
    assert word_marks("x = 1", "    x = 1") == ((), ((0, 4),))


def test_alike_lines_stand_beside_each_other():
    pairs = [(row.old, row.new) for row in compute("a = 1\n", "import os\na = 2\n").rows]
    assert pairs == [(0, 1), (1, 2)]
    assert align([], ["x"]) == [(None, 0)]


def test_very_large_programs_are_refused_with_a_sentence():
    assert "later program is larger" in compute("x\n", "y\n" * (computing.MAX_LINES + 1)).refused


def test_what_was_left_out_for_time_is_said():
    result = _compute(OLD, "".join(f"row {i}\n" for i in range(40)), False, 0.0)
    assert "took more than 0 ms" in result.coarser and result.hunks


def test_html_of_a_line_is_escaped_and_marked():
    html = line_html([("s", "<script>alert(1)</script>")], [(0, 8)])
    assert str(html) == '<span class="s"><mark>&lt;script&gt;</mark></span><span class="s">alert(1)&lt;/script&gt;</span>'


@pytest.mark.parametrize("layout", ["inline", "split"])
def test_the_table_holds_every_line_once(layout):
    new = OLD.replace("line 20\n", "line twenty\n")
    table = Table(compute(OLD, new), OLD, new, layout, candidate=4, notes={21: [Note("warn", "look <here>")]}, unfolded=True)
    html = table.part(0)
    for side in "LR":
        assert sorted(map(int, re.findall(rf'id="{side}(\d+)"', html))) == list(range(1, 41))
    assert html.count("look &lt;here&gt;") == 1
    assert 'data-candidate="4" data-line="21" data-side="new"' in html and 'data-line="21" data-side="old"' in html


@pytest.mark.parametrize("layout", ["inline", "split"])
def test_parts_and_folds_together_are_the_whole(layout):
    old, new = "".join(f"a{i}\n" for i in range(2000)), "".join(f"a{i}\n" if i % 9 else f"b{i} = {i}\n" for i in range(2000))
    table = Table(compute(old, new), old, new, layout)
    assert table.parts > 1 and sum(table.part_sizes()) == len(table.items) and max(table.part_sizes()) == PART
    html = "".join(table.part(number) for number in range(table.parts))
    for begin, end in re.findall(r'data-begin="(\d+)" data-end="(\d+)"', html):
        html += table.between(int(begin), int(end))
    assert sorted(map(int, re.findall(r'id="R(\d+)"', html))) == list(range(1, 2001))
    assert 'id="R1900"' in table.part(table.part_of("new", 1900))


def test_a_hunk_head_stands_before_its_first_line():
    new = OLD.replace("line 20\n", "line twenty\n")
    html = Table(compute(OLD, new), OLD, new, "inline", heads={1: "worth it"}).part(0)
    assert html.index("worth it") < html.index('id="L21"') and html.count("worth it") == 1


HEADER = "".join(f"#include <header{number}>\n" for number in range(20))
KERNEL = "// adds one\n__global__ void add(float* x) {\n    x[threadIdx.x] += 1.0f;\n}\n"
GENERATED = f'import torch\n\nSOURCE = r"""\n{HEADER}\n{KERNEL}"""\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n'


@pytest.mark.parametrize("layout", ["inline", "split"])
def test_what_is_added_above_the_first_kernel_is_folded(layout):
    table = Table(compute("class Model:\n    pass\n", GENERATED), "class Model:\n    pass\n", GENERATED, layout)
    assert GENERATED.split("\n")[table.opens_at - 1].startswith("__global__")
    html = table.part(0)
    assert "added lines above the first kernel" in html and "header7" not in html and "__global__" in html and "adds one" in html
    (fold,) = [item.fold for item in table.items if item.fold]
    assert "header7" in table.between(fold.begin, fold.end)


def test_a_header_with_a_finding_or_of_few_lines_stays_open():
    few = GENERATED.replace(HEADER, "#include <cmath>\n")
    assert "above the first kernel" not in Table(compute("x\n", few), "x\n", few, "inline").part(0)
    noted = Table(compute("x\n", GENERATED), "x\n", GENERATED, "inline", notes={8: [Note("bad", "look here")]})
    assert "look here" in noted.part(0)


def test_of_two_kernels_the_first_and_of_none_the_first_function_of_cpp():
    assert anatomy(GENERATED).first_kernel.name == "add"
    cpp = GENERATED.replace("__global__ ", 'extern "C" ')
    assert anatomy(cpp).first_kernel.name == "add"
    assert anatomy("def forward(x):\n    return x\n").first_kernel is None
