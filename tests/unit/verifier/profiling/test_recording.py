import numpy as np

from verifier.profiling.recording import Recording, nesting
from verifier.profiling.timeline import Timeline

STREAM = ("gpu", "Stream 7", "GPU")


def test_rows_are_sorted_by_kind_and_number_and_events_by_start():
    recording = Recording("nsys", "GPU")
    recording.add(("api", "CUDA API, thread 1", "CUDA"), "api", "launch", 0, 5)
    recording.add(("gpu", "Stream 13", "GPU"), "kernel", "b", 30, 5)
    recording.add(STREAM, "kernel", "late", 20, 5)
    recording.add(STREAM, "kernel", "early", 10, 5)
    timeline = recording.timeline()
    assert [row.name for row in timeline.rows] == ["Stream 7", "Stream 13", "CUDA API, thread 1"]
    assert [timeline.names[i] for i in timeline.columns["name"]] == ["early", "late", "b", "launch"]


def test_nested_events_get_deeper_and_siblings_do_not():
    row = np.array([0, 0, 0, 0, 1])
    start = np.array([0.0, 10.0, 20.0, 40.0, 5.0])
    duration = np.array([100.0, 50.0, 10.0, 30.0, 1.0])
    # [0, 100) contains [10, 60), which contains [20, 30); [40, 70) overlaps [10, 60) without being inside it, and is placed below it.
    assert nesting(row, start, duration).tolist() == [0, 1, 2, 2, 0]


def test_correlations_of_two_processes_never_meet():
    recording = Recording("nsys", "GPU")
    for process in (1, 2):
        recording.add(STREAM, "kernel", "k", process, 1, correlation=(process, 9))
    recording.add(STREAM, "kernel", "none", 9, 1, correlation=(1, 0))
    assert len(set(recording.timeline().columns["correlation"].tolist())) == 3
    assert recording.timeline().columns["correlation"][-1] == 0


def test_the_window_crops_and_the_limit_says_what_it_left_out():
    recording = Recording("nsys", "GPU")
    for at in range(100):
        recording.add(STREAM, "kernel", f"k{at}", at * 10, 5, detail={"bytes": at})
    cropped = recording.timeline().crop(200, 300)
    assert [cropped.names[i] for i in cropped.columns["name"]] == [f"k{at}" for at in range(20, 31)]
    assert cropped.details[cropped.columns["detail"][0] - 1] == {"bytes": 20}
    assert cropped.truncated is None
    limited = recording.timeline(limit=10)
    assert limited.truncated == (10, 100)
    assert Timeline.from_bytes(limited.to_bytes()).truncated == (10, 100)


def test_an_empty_recording_is_a_timeline():
    again = Timeline.from_bytes(Recording("cupti", "GPU").timeline().to_bytes())
    assert again.events == 0 and again.tool == "cupti"


def test_endless_names_are_cut():
    recording = Recording("nsys", "GPU")
    recording.add(STREAM, "kernel", "x" * 100_000, 0, 1)
    assert len(recording.timeline().names[0]) == 2000
