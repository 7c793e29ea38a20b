"""Where a call's time goes, from timelines recorded on an H200: the parts add up to the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifier.profiling.digest import ITERATION
from verifier.profiling.host_calls import host_calls
from verifier.profiling.timeline import KINDS, Timeline

DATA = Path(__file__).parents[3] / "data"


@pytest.mark.parametrize("name", ["linear-norm-h200-nsys", "softmax-h200-nsys"])
def test_the_parts_of_a_call_make_the_whole(name):
    timeline = Timeline.from_bytes((DATA / f"{name}.timeline").read_bytes())
    found = host_calls(timeline)
    columns = timeline.columns
    calls = (columns["kind"] == KINDS.index("nvtx")) & (columns["name"] == timeline.names.index(ITERATION))
    whole = float(np.mean(columns["duration"][calls])) / 1e3
    assert found.device_us > 0 and found.begin_us > 0 and found.gap_us >= 0 and found.after_us >= 0
    parts = found.begin_us + found.device_us + found.gap_us + found.after_us
    assert parts == pytest.approx(whole, rel=0.02), (found, whole)
