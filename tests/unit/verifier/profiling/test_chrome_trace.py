import json
from pathlib import Path

import numpy as np
import pytest

from verifier.profiling.chrome_trace import chrome_trace
from verifier.profiling.nsight.nsys_import import import_nsys
from verifier.profiling.timeline import COLUMNS, KINDS, Counter, Row, Timeline

DATA = Path(__file__).parents[3] / "data"


def exported(timeline: Timeline, title: str = "") -> dict:
    return json.loads(b"".join(chrome_trace(timeline, title)))


def of_phase(trace: dict, phase: str) -> list[dict]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def made(rows: list[Row], names: list[str], **columns: list) -> Timeline:
    count = len(columns["start"])
    filled = {name: np.asarray(columns.get(name, [0] * count)).astype(dtype) for name, dtype in COLUMNS}
    return Timeline("nsys", "NVIDIA H200", rows, names, filled)


def test_a_real_export_as_a_chrome_trace():
    timeline, _ = import_nsys(DATA / "nsys-convnet-h200.sqlite")
    trace = exported(timeline, "convnet")
    slices = of_phase(trace, "X")
    assert len(slices) == timeline.events
    assert trace["otherData"]["title"] == "convnet"
    kernel = next(event for event in slices if event["name"].startswith("sm90_xmma_fprop"))
    assert kernel["cat"] == "kernel" and kernel["args"]["grid"] == [30, 4, 1] and kernel["args"]["correlation"]
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in of_phase(trace, "M") if event["name"] == "thread_name"}
    assert threads[(kernel["pid"], kernel["tid"])] == "Stream 7"
    # There is an arrow from each launch to what it launched; it leaves within the call and arrives at the start of the kernel.
    begins, ends = of_phase(trace, "s"), of_phase(trace, "f")
    assert len(begins) == len(ends) == 100
    arrival = next(event for event in ends if (event["ts"], event["tid"]) == (kernel["ts"], kernel["tid"]))
    departure = next(event for event in begins if event["id"] == arrival["id"])
    launch = next(event for event in slices if (event["ts"], event["pid"], event["tid"]) == (departure["ts"], departure["pid"], departure["tid"]))
    assert launch["name"] == "cudaLaunchKernelExC"
    assert sum(event["dur"] for event in slices) == pytest.approx(timeline.columns["duration"].sum() / 1e3, rel=1e-6)


def test_events_that_overlap_without_nesting_get_threads_of_their_own():
    timeline = made(
        [Row("Stream 7", "gpu", "H200"), Row("NVTX", "nvtx", "NVTX")],
        ["a", "b"],
        start=[0, 50, 0, 10],
        duration=[100, 100, 100, 20],
        name=[0, 1, 0, 1],
        row=[0, 0, 1, 1],
        depth=[0, 1, 0, 1],
    )
    slices = of_phase(exported(timeline), "X")
    assert slices[0]["tid"] != slices[1]["tid"]
    assert slices[2]["tid"] == slices[3]["tid"]


def test_names_are_written_as_json():
    timeline = made([Row('a "row"', "thread")], ['quote " and \\ and µ'], start=[0], duration=[1], kind=[KINDS.index("operator")])
    assert of_phase(exported(timeline), "X")[0]["name"] == 'quote " and \\ and µ'


def test_nothing_recorded_is_an_empty_trace():
    assert of_phase(exported(made([], [], start=[], duration=[])), "X") == []


def test_sampled_counters_become_counter_events_of_their_gpu():
    columns = {name: np.zeros(1, dtype) for name, dtype in COLUMNS} | {"duration": np.array([10.0])}
    counter = Counter("SMs Active", "H200", "%", np.array([1.0, 6000.0]), np.array([40.0, 60.5]))
    timeline = Timeline("nsys", "H200", [Row("Stream 7", "gpu", "H200")], ["k"], columns, counters=[counter])
    events = json.loads(b"".join(chrome_trace(timeline)))["traceEvents"]
    found = [event for event in events if event["ph"] == "C"]
    assert [(event["name"], event["ts"], event["args"]["value"]) for event in found] == [("SMs Active [%]", 0.001, 40), ("SMs Active [%]", 6, 60.5)]
    assert found[0]["pid"] == next(event["pid"] for event in events if event["ph"] == "X")
