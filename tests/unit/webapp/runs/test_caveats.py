"""Anything that a reader must know about a figure is shown next to it as a flag."""

from __future__ import annotations

import pytest

from verifier.report import CLOCK
from webapp.runs.models import Verification
from webapp.runs.trace import projection
from webapp.ui.tags import FLAGS


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({}, []),
        ({"flags": ["trivial"]}, ["trivial"]),
        ({"timing": {"program_ms": 0.4, "bounded": True, "clock": CLOCK, "comparisons": []}}, ["bounded"]),
        ({"timing": {"program_ms": 0.4, "clock": 1, "comparisons": []}}, ["earlier clock"]),
        ({"timing": {"program_ms": 0.4, "comparisons": []}}, ["earlier clock"]),
        ({"weights": "seeded"}, ["seeded"]),
        ({"findings": [{"severity": "note"}, {"severity": "downgrade"}]}, ["findings"]),
        ({"protection": {"sandbox": "process", "layers": ["rlimits"]}}, ["no sandbox"]),
    ],
)
def test_what_a_reader_of_the_bare_figure_has_to_know_is_a_flag_of_the_row(change, flag):
    row = Verification()
    projection._take_report(row, {"status": "passed", "tier": "full", "protection": {"sandbox": "bubblewrap", "layers": []}} | change)
    assert row.flags == flag
    assert set(flag) <= set(FLAGS)
