"""Kinds of faults by which a request cost its reader a failed attempt, a call or a slower program."""

from __future__ import annotations

import re

import pytest

from agents.roles import digest
from agents.roles.prompts import part
from agents.strategies import CATALOGUE, by_name
from verifier.profiling.diagnosing import diagnosis

FAST = re.compile(r"__(?:exp|exp10|log|log2|log10|pow|sin|cos|tan|fdivide)f\b|\bex2\.approx|\btl\.exp\b|\btl\.exp2\b")


# Methods and routes


def test_several_methods_may_bring_independent_gains():
    said = part("routes")
    assert "by one method or by several at once" in said and "do not depend on each other when few programs are left" in said


def test_nothing_is_called_near_a_ceiling_that_it_is_far_from():
    said = [diagnosis._sentence("memory", 9.0, share, 0.0, None, None, "fp32 units", "", 0) for share in (0.002, 0.4, 0.9)]
    assert said[0].startswith("Nothing is known to be near its ceiling: the least traffic possible would take 0 % of the call")
    assert said[1].startswith("Nearest to its ceiling is memory") and said[2].startswith("Bound by memory")


# Instructions


@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_a_fast_approximation_is_never_shown_without_the_policies_that_allow_it(language):
    for entry in CATALOGUE:
        text = getattr(entry, language)
        assert not FAST.search(text) or "tf32, bf16 or fp16 policy" in text or "fp32-strict" in text, entry.name


def test_a_softmax_takes_its_maximum_first_where_the_row_fits():
    said = digest.how_to_text([by_name("one-pass-softmax")], "cuda")
    assert "take the maximum first" in said and said.index("take the maximum first") < said.index("m2 = fmaxf")
    assert "`s = s * __expf" not in said and "never for values that a choice" in said


@pytest.mark.parametrize("name", ["fuse-row-reduction", "row-cache"])
def test_few_long_rows_are_spread_over_several_blocks(name):
    assert "fewer" in by_name(name).cuda and "`parallel-split`" in by_name(name).cuda
    assert "cluster" in by_name("parallel-split").cuda
