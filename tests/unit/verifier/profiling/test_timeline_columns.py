from pathlib import Path

import pytest

from verifier.profiling.digest import digest
from verifier.profiling.own_kernels import is_own
from verifier.profiling.timeline import Timeline

DATA = Path(__file__).parents[3] / "data"


@pytest.mark.parametrize(("name", "kernels"), [("softmax-h200-nsys", 1.0), ("linear-norm-h200-nsys", 7.0)])
def test_timelines_that_the_job_took_on_a_gpu(name, kernels):
    timeline = Timeline.from_bytes((DATA / f"{name}.timeline").read_bytes())
    figures = digest(timeline, lambda kernel: is_own(kernel, frozenset({"row_softmax"})), on_device=True)
    assert (figures.iterations, figures.launches_per_iteration) == (5, kernels)
    assert figures.own_share == (1.0 if name.startswith("softmax") else 0.0)
    assert timeline.device == "NVIDIA H200"


def test_crop_keeps_only_what_its_events_use():
    timeline = Timeline.from_bytes((DATA / "linear-norm-h200-nsys.timeline").read_bytes())
    ranges = [i for i, name in enumerate(timeline.columns["name"]) if timeline.names[name] == "iter"]
    first = ranges[0]
    begin = float(timeline.columns["start"][first])
    cropped = timeline.crop(begin, begin + float(timeline.columns["duration"][first]))
    assert digest(cropped, lambda name: False, on_device=True).launches_per_iteration == 7.0
    assert len(cropped.names) <= len(timeline.names) and len(cropped.details) <= len(timeline.details)
    kernel = next(i for i, d in enumerate(cropped.columns["detail"]) if d)
    assert cropped.details[cropped.columns["detail"][kernel] - 1]


def test_damaged_bytes_are_refused():
    data = (DATA / "softmax-h200-nsys.timeline").read_bytes()
    for broken in (b"", data[:40], b"X" + data[1:], data[:-200]):
        with pytest.raises(ValueError):
            Timeline.from_bytes(broken)
