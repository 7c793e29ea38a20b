"""Finding lines again in another version of a program."""

from __future__ import annotations

import pytest

from webapp.review.placing import context_of, place

BEFORE = """import torch

def forward(x):
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    }
    return total

def backward(g):
    total = 0.0
    for i in range(len(g)):
        total -= g[i]
    }
    return total
""".splitlines()


def anchored(line: int, lines: list[str] = BEFORE) -> dict:
    return {"line": line, "text": lines[line - 1], "context": context_of(lines, line)}


def test_the_same_program():
    for number in range(1, len(BEFORE) + 1):
        if BEFORE[number - 1].strip():
            assert place(anchored(number), BEFORE).line == number


def test_lines_move_with_what_stands_above_them():
    after = ["# new", "# lines", *BEFORE]
    for number in (3, 5, 6, 12):
        assert (place(anchored(number), after).line, place(anchored(number), after).state) == (number + 2, "moved")


def test_of_equal_lines_the_neighbours_decide():
    after = BEFORE[:2] + BEFORE[9:] + [""] + BEFORE[2:9]  # with the two functions swapped
    assert after[place(anchored(4), after).line - 2] == "def forward(x):"
    assert after[place(anchored(11), after).line - 2] == "def backward(g):"
    assert after[place(anchored(7), after).line - 2] == "        total += x[i]"


def test_a_changed_line_is_found_by_likeness():
    after = [line.replace("total += x[i]", "total += float(x[i])") for line in ["# one more", *BEFORE]]
    assert (place(anchored(6), after).line, place(anchored(6), after).state) == (7, "changed")


def test_indentation_alone_is_no_change():
    after = ["class A:", *("    " + line for line in BEFORE)]
    found = place(anchored(3), after)
    assert (found.line, found.state) == (4, "moved")


@pytest.mark.parametrize("line", [6, 7])
def test_a_line_that_is_gone_is_outdated(line):
    after = [text for text in BEFORE if "total" not in text and text.strip() != "}"]
    found = place(anchored(line), after)
    assert (found.line, found.state) == (None, "outdated")


def test_a_brace_alone_is_found_only_between_its_neighbours():
    assert place(anchored(7), ["}", "else", "}"]).line is None


def test_an_empty_program():
    assert place(anchored(6), []).state == "outdated"
