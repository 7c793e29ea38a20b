"""Sittings of the sweep: workers share a device, and no row is lost when a limit is reached or a worker dies."""

import json
import subprocess
import sys
import threading
import time

import pytest

from bench.sweep.__main__ import parser, sitting, to_do
from bench.sweep.rows import failed
from bench.sweep.running import Sitting, the_hosts
from bench.sweep.store import Store
from bench.sweep.tasks import items

WORKER = """
import json, os, sys, time, signal
signal.signal(signal.SIGTERM, lambda *_: (print(json.dumps({"key": order["key"], "interrupted": True}), flush=True), sys.exit()))
print(json.dumps({"ready": {"device_name": "Fake", "device_model": "fake"}}), flush=True)
row = {"outcome": "improved", "status": "passed", "class": "custom", "solved": True, "flags": [], "moves": [], "candidates": 1, "seconds": 1.0}
for line in sys.stdin:
    order = json.loads(line)
    if "dies" in order["key"]:
        sys.exit(1)
    if "slow" in order["key"]:
        time.sleep(30)
    if "tight" in order["key"] and not os.path.exists(order["folder"] + ".tried"):
        os.makedirs(os.path.dirname(order["folder"]), exist_ok=True)
        open(order["folder"] + ".tried", "w").close()
        print(json.dumps({"row": {**row, "status": "infrastructure_error", "why": "no memory"}}), flush=True)
        continue
    print(json.dumps({"key": order["key"], "row": row}), flush=True)
"""


class Faked(Sitting):
    """A sitting whose workers run `WORKER`."""

    def _start(self, device, number):
        worker = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.workers[f"{device} {number}"] = worker
        return worker if json.loads(worker.stdout.readline()).get("ready") else None


def test_what_the_host_is_to_blame_for_is_tried_again_without_others(tmp_path, checkout):
    (checkout / "KernelBench" / "level1" / "5_tight.py").write_text("# a task\n")
    wanted = items(["level1"], checkout)
    series = Faked(Store(tmp_path / "one"), ["a:0"], tmp_path, [], None, 900.0, share=2)
    series.run(wanted)
    assert {row["status"] for row in series.store.rows.values()} == {"passed"} and len(series.store.rows) == len(wanted)
    assert [key for key, row in series.store.rows.items() if row.get("second_try")] == ["level1/5_tight fp32-strict"]
    assert series.alone == {"level1/5_tight fp32-strict"} and series.running == {"a:0": {}}


def test_near_its_end_a_sitting_begins_nothing_more(tmp_path, checkout):
    series = Faked(Store(tmp_path / "one"), ["a:0"], tmp_path, [], 60.0, 900.0, begin_seconds=100.0)
    series.run(items(["level1"], checkout))
    assert not series.store.rows and not series.finished


@pytest.mark.slow
def test_finished_rows_outlive_a_sitting_and_interrupted_runs_go_on(tmp_path, checkout, monkeypatch):
    class Short(Faked):
        def _solve(self, device, worker, item):
            folder = self.store.runs / item.key.replace("/", "-").replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "trace.jsonl").write_text("{}\n")
            (folder / "best.py").write_text(f"# {item.key}\n")
            return super()._solve(device, worker, item)

    for name in ("3_slow", "4_dies", "5_last"):
        (checkout / "KernelBench" / "level3" / f"{name}.py").write_text("# a task\n")
    wanted = items(["level3"], checkout)
    monkeypatch.setattr("bench.sweep.running.LAST_SECONDS", 0.5)
    store = Store(tmp_path / "one")
    series = Short(store, ["a:0", "a:1"], tmp_path, [], 4.0, 900.0, begin_seconds=0.1)
    series.run(wanted)
    again = Store(tmp_path / "two", tmp_path / "one")
    assert set(again.rows) == {item.key for item in wanted} - {"level3/3_slow fp32-strict"}
    assert again.rows["level3/4_dies fp32-strict"]["status"] == "failed" and "died, twice" in again.rows["level3/4_dies fp32-strict"]["why"]
    assert list(again.content["unfinished"]) == ["level3/3_slow fp32-strict"]
    assert (again.runs / "level3-3_slow-fp32-strict" / "trace.jsonl").exists() and not (again.runs / "level3-18_Fire-fp32-strict").exists()
    assert (again.programs / "level3-18_Fire-fp32-strict.py").read_text() == "# level3/18_Fire fp32-strict\n"
    assert [item.key for item in to_do(wanted, again, [])] == ["level3/3_slow fp32-strict"]
    third = Store(tmp_path / "three", tmp_path / "one", tmp_path / "two" / "work")
    assert set(third.rows) == set(again.rows) and (third.programs / "level3-18_Fire-fp32-strict.py").exists()
    assert third.work == again.work and (tmp_path / "one" / "sweep.log").exists() and not (tmp_path / "three" / "work").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="not a sweep's"):
        Store(tmp_path / "three", None, tmp_path / "mine")
    monkeypatch.setattr("bench.sweep.store.code", lambda: "another")
    assert not Store(tmp_path / "three", tmp_path / "one").content["unfinished"], "a run does not go on with other code than it began with"


def test_what_was_interrupted_after_minutes_comes_first_where_it_may_end_and_else_last(tmp_path, checkout, monkeypatch):
    for name in ("3_slow", "5_last"):
        (checkout / "KernelBench" / "level3" / f"{name}.py").write_text("# a task\n")
    wanted = items(["level3"], checkout)
    slow, last = "level3/3_slow fp32-strict", "level3/5_last fp32-strict"
    store = Store(tmp_path / "one")
    for key, seconds in ((slow, 301.0), (last, 20.0)):
        (store.runs / key).mkdir(parents=True)
        store.interrupted(key, seconds)
    order = [item.key for item in to_do(wanted, store, [], limit=350.0)]
    assert order[:2] == ["level3/2_ShallowWideMLP fp32-strict", last] and order[-1] == slow, "the one that needs most of a device before all"
    assert [item.key for item in to_do(wanted, store, [], limit=3000.0)][1:3] == [slow, last], "where it may end in one sitting"
    monkeypatch.setattr("bench.sweep.store.code", lambda: "another")
    other = Store(tmp_path / "two", tmp_path / "one")
    assert to_do(wanted, other, [], limit=350.0)[-1].key == slow
    other.finished(slow, failed("as it happens", 9.0))
    assert slow not in other.content["given_up"] and last in other.content["given_up"]


def test_workers_share_a_device_as_far_as_its_memory_goes(tmp_path, checkout, monkeypatch):
    running: list[str] = []
    beside: dict[str, int] = {}

    class Watched(Sitting):
        def _start(self, device, number):
            return subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)

        def _solve(self, device, worker, item):
            with self.lock:
                running.append(item.task)
            for _ in range(30):
                time.sleep(0.005)
                beside[item.task] = max(beside.get(item.task, 0), len(running))
            with self.lock:
                running.remove(item.task)
                self.finished.add(item.key)
            return True

    for name in ("needs", "untimed"):
        monkeypatch.setattr(f"bench.sweep.running.{name}", lambda item: 100.0 if "Wide" in item.task else 40.0)
    wanted = items(["level3", "level1"], checkout)
    series = Watched(Store(tmp_path), ["a:0"], tmp_path, [], None, 900.0, share=2, memory=90.0)
    series.run(wanted)
    assert series.finished == {item.key for item in wanted} and series.running == {"a:0": {}}
    assert max(beside.values()) == 2
    assert all(count == 1 for name, count in beside.items() if "Wide" in name), "a task that needs it all has the device alone"


def test_small_tasks_leave_room_for_the_largest_that_waits(tmp_path, checkout, monkeypatch):
    gib = 2.0**30
    wanted = items(["level3"], checkout)
    large, *small = sorted(wanted, key=lambda item: "Wide" not in item.task)
    series = Sitting(Store(tmp_path), ["a:0"], tmp_path, [], None, 900.0, memory=100 * gib)
    for name in ("needs", "untimed"):
        monkeypatch.setattr(f"bench.sweep.running.{name}", lambda item: 70 * gib if item is large else 20 * gib)
    series.waiting, series.running, series.alone = [large, small[1]], {"a:0": {}}, set()
    assert series._fits("a:0", large) and series._fits("a:0", small[1])
    series.running["a:0"][small[0].key] = small[0]
    assert series._fits("a:0", large) and not series._fits("a:0", small[1])
    series.waiting.remove(large)
    assert series._fits("a:0", small[1]), "none waits any more"
    series.running["a:0"][large.key] = large
    assert not series._fits("a:0", small[1])


def test_large_tasks_meet_where_one_at_a_time_may_be_timed(tmp_path, checkout, monkeypatch):
    gib = 2.0**30
    one, two, three, *_ = items(["level3"], checkout)
    series = Sitting(Store(tmp_path), ["a:0"], tmp_path, [], None, 900.0, memory=130 * gib)
    monkeypatch.setattr("bench.sweep.running.needs", lambda item: 78 * gib)
    monkeypatch.setattr("bench.sweep.running.untimed", lambda item: 42 * gib)
    series.waiting, series.running, series.alone = [two, three], {"a:0": {one.key: one}}, set()
    assert series._fits("a:0", two), "84 while none is timed, 120 while one is"
    series.running["a:0"][two.key] = two
    assert not series._fits("a:0", three)
    series.alone.add(two.key)
    del series.running["a:0"][two.key]
    assert not series._fits("a:0", two), "what found no memory beside others gets all of it"


def test_tasks_without_a_search_have_workers_of_their_own(tmp_path, checkout):
    given: dict[int, set[str]] = {}

    class Watched(Sitting):
        def _start(self, device, number):
            return subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)

        def _solve(self, device, worker, item):
            with self.lock:
                given.setdefault(self._searches(int(threading.current_thread().name)), set()).add(item.task.partition("/")[0])
                self.finished.add(item.key)
            return True

        def _serve(self, device, number):
            threading.current_thread().name = str(number)
            super()._serve(device, number)

    wanted = items(["level3", "level1"], checkout)
    series = Watched(Store(tmp_path), ["a:0"], tmp_path, [], None, 900.0, share=2, no_search=["level3"])
    series.run(wanted)
    assert series.finished == {item.key for item in wanted} and given == {True: {"level1"}, False: {"level3"}}


def test_no_task_is_begun_beside_others_that_have_left_it_too_little(tmp_path, checkout, monkeypatch):
    looked, free = threading.Event(), [0.0]
    running: list[str] = []

    class Watched(Sitting):
        def _start(self, device, number):
            return subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)

        def _solve(self, device, worker, item):
            with self.lock:
                running.append(item.key)
                assert len(running) == 1 or free[0], "the first one is begun whatever is free: nothing of the sitting's could give memory back"
            assert looked.wait(20), "the other worker looks, and waits"
            with self.lock:
                free[0] = 50.0
                running.remove(item.key)
                self.finished.add(item.key)
            return True

    def memory_of(device, which):
        looked.set()
        return free[0]

    for name in ("needs", "untimed"):
        monkeypatch.setattr(f"bench.sweep.running.{name}", lambda item: 10.0)
    monkeypatch.setattr("bench.sweep.running.memory_of", memory_of)
    monkeypatch.setattr("bench.sweep.running.LOOK_SECONDS", 0.0)
    wanted = items(["level3", "level1"], checkout)
    series = Watched(Store(tmp_path), ["a:0"], tmp_path, [], None, 900.0, share=2, memory=90.0)
    series.run(wanted)
    assert series.finished == {item.key for item in wanted}


@pytest.mark.parametrize(
    ("status", "why", "tried_again"),
    [
        ("inconclusive", "the machine is too busy", True),
        ("crashed", "no candidate was confirmed: crashed: OutOfMemoryError when the program was constructed: CUDA out of memory.", True),
        ("wrong_result", "heavy-tailed: out: 0.0% are off (held against PyTorch's own result: no fp64: OutOfMemoryError: CUDA out of memory.)", True),
        ("failed", "not admitted: line 18: a verification needs 7.0 GiB of device memory at its largest moment, and 1.7 are there", True),
        ("crashed", "no candidate was confirmed: crashed: an illegal address", False),
        ("wrong_result", "", False),
    ],
)
def test_what_other_runs_on_the_device_may_be_to_blame_for(status, why, tried_again):
    assert the_hosts({"status": status, "why": why}) is tried_again


def test_tasks_that_are_too_large_are_left_for_another_sitting(tmp_path, checkout, monkeypatch):
    begun: list[list[str]] = []

    def run(series, items):
        begun.append([item.task for item in items])
        series.finished = {item.key for item in items}

    monkeypatch.setattr("bench.sweep.__main__.Sitting.run", run)
    for largest in ("50", "200"):
        given = ["run", str(checkout), "--sets", "level3", "--keep", str(tmp_path / "kept"), "--data-dir", str(tmp_path / "data")]
        arguments, arguments.rest = parser().parse_known_args([*given, "--largest", largest])
        sitting(arguments)
    small, every = map(set, begun)
    assert "level3/2_ShallowWideMLP" not in small and every - small == {"level3/2_ShallowWideMLP"} and "level3/18_Fire" in small


def test_a_sitting_gives_most_of_a_device_away(tmp_path, checkout, monkeypatch):
    seen = []

    def run(series, items):
        seen.append(series.memory / 2**30)
        series.finished = {item.key for item in items}

    monkeypatch.setattr("bench.sweep.__main__.memory_of", lambda device, which: 100.0 * 2**30)
    monkeypatch.setattr("bench.sweep.__main__.Sitting.run", run)
    given = ["run", str(checkout), "--sets", "level3", "--keep", str(tmp_path / "kept"), "--data-dir", str(tmp_path / "data")]
    arguments, arguments.rest = parser().parse_known_args(given)
    sitting(arguments)
    assert seen == [96.0]
