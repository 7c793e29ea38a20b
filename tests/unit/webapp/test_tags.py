"""Figures and chips as they appear on pages."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest
from django.template import Context, Template
from django.utils import timezone

from agents.events import Outcome, State
from verifier.report import Status
from webapp.ui import figures, tags


def render(source: str, **context) -> str:
    return Template(source).render(Context(context)).strip()


@pytest.mark.parametrize("name", [*get_args(Status), *get_args(State), *get_args(Outcome)])
def test_every_status_has_its_own_words_and_a_sign(name):
    assert name in tags.STATUSES
    assert 'class="sign"' in render("{% status name %}", name=name)


def test_an_unknown_status_is_shown_as_it_is():
    assert "half done" in render("{% status 'half_done' %}")


@pytest.mark.parametrize(
    ("value", "tone"),
    [
        ({"ratio": 2, "low": 1.9, "high": 2.1}, "faster"),
        ({"ratio": 0.5, "low": 0.4, "high": 0.6}, "slower"),
        ({"ratio": 1.1, "low": 0.9, "high": 1.3}, ""),
    ],
)
def test_a_speedup_is_coloured_only_where_its_interval_allows_it(value, tone):
    assert f'class="speedup {tone}"' in render("{% speedup value %}", value=value)


def test_a_speedup_that_was_not_measured_is_a_dash():
    for value in (None, {}, ""):
        assert "×" not in render("{% speedup value %}", value=value)


def test_three_figures():
    assert [figures.times(value) for value in (1.234, 12.34, 123.4)] == ["1.23", "12.3", "123"]
    assert [figures.ms(value) for value in (0.0412, 1.234, 23.71, 1500, 0.9999, None)] == ["41.2 µs", "1.23 ms", "23.7 ms", "1.5 s", "1000 µs", "–"]
    assert [figures.seconds(value) for value in (0.84, 12.3, 200, 3600, None)] == ["0.8 s", "12 s", "3 min 20 s", "1 h 0 min", "–"]
    assert [figures.bytes(value) for value in (12, 2048, 3 * 1024**3)] == ["12 B", "2 KiB", "3 GiB"]


def test_a_whisker_keeps_to_its_scale():
    scale = tags.whisker_scale([{"ratio": 2, "low": 1.8, "high": 2.2}, {"ratio": 0.5, "low": 0.4, "high": 0.6}])
    assert scale[0] < 0.4 and scale[1] > 2.2
    drawn = tags.whisker({"ratio": 2, "low": 1.8, "high": 2.2}, scale)
    assert 4 <= drawn["one"] < drawn["left"] < drawn["dot"] < drawn["right"] <= 156


def test_devices_are_named_as_people_name_them():
    names = ("NVIDIA H200", "AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "")
    assert [figures.short_device(name) for name in names] == ["H200", "EPYC 9654", "Xeon Platinum 8481C", ""]


def test_times_are_relative_with_the_moment_in_the_title():
    page = render("{% ago moment %}", moment=timezone.now() - timedelta(minutes=5))
    assert "5 min ago" in page and "title=" in page
    assert "–" in render("{% ago none %}")


def test_code_in_text_is_marked_and_nothing_else():
    assert figures.ticked("use `a < b` and\n```\nfence `x`\n```") == "use <code>a &lt; b</code> and\n```\nfence <code>x</code>\n```"
    assert figures.ticked("<b>`") == "&lt;b&gt;`" and figures.grouped(1234567) == "1\u202f234\u202f567" and figures.grouped(None) == "–"


@pytest.mark.parametrize(
    ("spent", "expected", "said"),
    [
        (5, 8.9, "5 s of about 8.9 s"),
        (93, 8.9, "1 min 33 s, longer than the usual 8.9 s"),
        (4.2, None, "4 s"),
        (None, 8.9, "–"),
    ],
)
def test_progress_never_says_more_than_the_whole(spent, expected, said):
    assert tags.progress(spent, expected) == said


@pytest.mark.parametrize(
    ("value", "noun", "said"), [(1, "run", "1 run"), (0, "run", "0 runs"), ([1, 2], "entry,entries", "2 entries"), ("x", "run", "x runs")]
)
def test_numbers_agree_with_their_nouns(value, noun, said):
    assert figures.counted(value, noun) == said
