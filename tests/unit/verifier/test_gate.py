"""Judges that share a device: one measures, the others stand still, nobody waits for ever."""

import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from verifier import gate as gates
from verifier.devices.base import DeviceError
from verifier.gate import Gate
from verifier.limits import Limits
from verifier.sandbox import Spawned


class Party:
    def __init__(self):
        self.frozen = False

    def freeze(self):
        self.frozen = True

    def thaw(self):
        self.frozen = False


@pytest.fixture
def judges(tmp_path):
    """Two judges of one device, each with a party."""
    with ExitStack() as ends:
        made = []
        for _ in range(2):
            gate, party = Gate("cuda:0", tmp_path), Party()
            gate.begin(lambda party=party: [party])
            ends.callback(gate.end)
            made.append((gate, party))
        yield made


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def test_the_parties_of_the_others_stand_still_while_one_measures(judges):
    (mine, my_party), (other, its_party) = judges
    until(lambda: other._floor.held)
    with mine.alone():
        assert its_party.frozen and not my_party.frozen
        time.sleep(0.05)
    until(lambda: not its_party.frozen)
    assert other.frozen_seconds() >= 0.05 and mine.frozen_seconds() < 0.05


def test_a_request_that_is_under_way_comes_to_its_end_first(judges):
    (mine, _), (other, _) = judges
    until(lambda: other._floor.held)
    seen: list[str] = []
    done = threading.Event()

    def work():
        with other.working():
            begun.set()
            done.wait()
            seen.append("the request ended")
            other.point()
            seen.append("the next one began")

    begun = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    threading.Timer(0.1, done.set).start()
    with mine.alone():
        seen.append("measured")
        time.sleep(0.05)
    thread.join()
    assert seen == ["the request ended", "measured", "the next one began"]


def test_who_only_waits_delays_nobody(judges):
    (mine, _), (other, its_party) = judges
    until(lambda: other._floor.held)
    answered = threading.Event()

    def work():
        with other.working(), other.idle(), other.idle():
            answered.wait()

    thread = threading.Thread(target=work)
    thread.start()
    with mine.alone():
        assert its_party.frozen
    answered.set()
    thread.join()


def test_two_that_want_to_measure_do_so_one_after_the_other(judges):
    measuring: list[str] = []
    overlaps: list[int] = []

    def measure(gate, party):
        with gate.working():
            for _ in range(8):
                with gate.alone():
                    measuring.append("")
                    overlaps.append(len(measuring) + party.frozen)
                    time.sleep(0.004)
                    measuring.pop()
                gate.point()

    threads = [threading.Thread(target=measure, args=judge) for judge in judges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(overlaps) == 16 and max(overlaps) == 1


def test_one_that_never_lets_go_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(gates, "PATIENCE", 0.05)
    holder, other = Gate("cuda:0", tmp_path), Gate("cuda:0", tmp_path)
    with holder.alone(), pytest.raises(DeviceError, match="kept the device busy"), other.alone():
        pass
    with other.alone():  # and then it can be had
        pass


def test_nothing_is_measured_before_the_device_has_come_to_rest(tmp_path):
    """A frozen process's kernels run on until those that it had launched are done."""
    mine, other = Gate("cuda:0", tmp_path), Gate("cuda:0", tmp_path)
    looks = [False, True, True, False, *[True] * 20]
    mine.begin(list, lambda: looks.pop(0))
    other.begin(list)
    try:
        until(lambda: other._floor.held)
        with mine.alone():
            assert len(looks) == 24 - 4 - gates.CALM
    finally:
        mine.end()
        other.end()


def test_a_judge_knows_whether_there_are_others(tmp_path):
    mine, other = Gate("cuda:0", tmp_path), Gate("cuda:0", tmp_path)
    mine.begin(list)
    try:
        assert not mine.others()
        other.begin(list)
        assert mine.others() and other.others() and mine.others()
    finally:
        other.end()
        assert not mine.others()
        mine.end()


def test_a_device_that_never_rests_is_measured_all_the_same(tmp_path, monkeypatch):
    """A program that keeps it busy is found out by what its neighbours wait, so it must come to that."""
    monkeypatch.setattr(gates, "LONGEST_DRAIN", 0.1)
    looks: list[bool] = []
    mine, other = Gate("cuda:0", tmp_path), Gate("cuda:0", tmp_path)
    mine.begin(list, lambda: bool(looks.append(False)))
    try:
        with mine.alone():
            assert not looks, "alone on the device there is nobody whose work would have to end"
        other.begin(list)
        with mine.alone():
            assert looks
    finally:
        other.end()
        mine.end()


def test_another_device_is_nobodys_concern(tmp_path):
    with Gate("cuda:0", tmp_path).alone(), Gate("cuda:1", tmp_path).alone():
        pass


def test_processes_stand_still_without_a_control_group_too(tmp_path):
    code = f"import time\nwhile True:\n    open({str(tmp_path / 'count')!r}, 'a').write('.')\n    time.sleep(0.002)"
    process = subprocess.Popen([sys.executable, "-c", code])
    spawned = Spawned(process, None, Limits(), None, "", False)
    count = tmp_path / "count"
    try:
        until(lambda: count.exists() and count.stat().st_size > 3)
        spawned.freeze()
        time.sleep(0.05)
        before = count.stat().st_size
        time.sleep(0.05)
        assert count.stat().st_size == before
        spawned.thaw()
        until(lambda: count.stat().st_size > before)
    finally:
        process.kill()
        process.wait()
