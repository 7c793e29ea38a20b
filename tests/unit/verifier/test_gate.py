"""Judges that share a device: one measures while the others are frozen, and nothing waits forever."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from verifier.confinement import spawned as processes
from verifier.confinement.spawned import Spawned
from verifier.devices.base import DeviceError
from verifier.judge import gate as gates
from verifier.judge.gate import Gate
from verifier.limits import Limits


class Party:
    def __init__(self):
        self.frozen = False

    def freeze(self):
        self.frozen = True

    def thaw(self):
        self.frozen = False


@pytest.fixture
def judges(tmp_path):
    """Two judges on one device, each with a party."""
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


@pytest.mark.slow
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
    with other.alone():  # after that, it is available
        pass


def test_nothing_is_measured_before_the_device_has_come_to_rest(tmp_path):
    """Kernels launched by a process before it was frozen run to completion."""
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
    """A program that keeps the device busy is exposed by its neighbours' waits, so a measurement must take place."""
    monkeypatch.setattr(gates, "LONGEST_DRAIN", 0.1)
    looks: list[bool] = []
    mine, other = Gate("cuda:0", tmp_path), Gate("cuda:0", tmp_path)
    mine.begin(list, lambda: bool(looks.append(False)))
    try:
        with mine.alone():
            assert not looks, "alone on the device there is nobody whose work would have to end"
        other.begin(list)
        with mine.alone():
            assert looks and not mine.rests(0.05)
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


def test_a_request_that_is_let_come_to_its_end_is_not_frozen_meanwhile(judges):
    """Otherwise, a hanging request's time limit would never expire while another judge waits for it."""
    (mine, _), (other, its_party) = judges
    until(lambda: other._floor.held)
    done, seen = threading.Event(), []

    def work():
        with other.working():
            before = other.frozen_seconds()
            begun.set()
            until(lambda: not other._open)
            time.sleep(0.2)
            seen.append(other.frozen_seconds() - before)
        done.set()

    begun = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    with mine.alone():
        assert done.is_set() and its_party.frozen
    thread.join()
    assert seen == [0.0]


def at_work(gate, match):
    """Starts a judge's thread that is working and then requests the device; `ended` is set when the request is refused with a message like
    `match`."""
    begun, ended = threading.Event(), threading.Event()

    def work():
        with gate.working():
            begun.set()
            until(lambda: not gate._open)  # another judge has already requested it
            with pytest.raises(DeviceError, match=match), gate.alone():
                pass
            ended.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    begun.wait()
    return thread, ended


def test_one_that_never_lets_go_is_an_error_at_work_too(judges, monkeypatch):
    (holder, _), (other, _) = judges
    until(lambda: other._floor.held)
    monkeypatch.setattr(gates, "PATIENCE", 0.4)
    thread, ended = at_work(other, "kept the device busy")
    with holder.alone():
        assert ended.wait(5)
    thread.join(5)


def test_who_waits_for_several_one_after_the_other_is_patient_with_each(tmp_path, monkeypatch):
    monkeypatch.setattr(gates, "PATIENCE", 0.3)
    last, crowd = Gate("cuda:0", tmp_path), [Gate("cuda:0", tmp_path) for _ in range(4)]
    done = []

    def measure(gate, next_one):
        with gate.alone():
            if next_one is not None:
                next_one.start()
            time.sleep(0.15)
        done.append(gate)

    monkeypatch.setattr(last, "_take_turn", lambda take=last._take_turn: len(done) == len(crowd) and take())  # its turn comes last
    threads: list[threading.Thread] = []
    for gate in reversed(crowd):
        threads.append(threading.Thread(target=measure, args=(gate, threads[-1] if threads else None)))
    threads[-1].start()
    until(lambda: crowd[0]._turn.held)
    with last.alone():
        assert len(done) == len(crowd)
    for thread in threads:
        thread.join()


def test_who_is_called_off_waits_no_longer(judges):
    (holder, _), (other, _) = judges
    until(lambda: other._floor.held)
    called_off = threading.Event()
    other.called_off = called_off.is_set
    thread, ended = at_work(other, "called off")
    with holder.alone():
        assert not ended.wait(0.1)
        called_off.set()
        assert ended.wait(2)
    thread.join(5)


def test_a_party_that_is_started_meanwhile_stands_still_too(tmp_path):
    mine, other = Gate("cuda:0", tmp_path), Gate("cuda:0", tmp_path)
    parties = [Party()]
    mine.begin(list)
    other.begin(lambda: list(parties))
    try:
        until(lambda: other._floor.held)
        with mine.alone():
            parties.append(Party())
            until(lambda: all(party.frozen for party in parties))
        until(lambda: not any(party.frozen for party in parties))
    finally:
        mine.end()
        other.end()


def test_two_that_look_for_others_at_once_see_each_other(judges):
    wrong: list[bool] = []

    def look(gate):
        for _ in range(300):
            if not gate.others():
                wrong.append(True)

    threads = [threading.Thread(target=look, args=(gate,)) for gate, _ in judges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not wrong


def test_a_lock_file_of_somebody_else_is_said(tmp_path):
    (tmp_path / f"stitchwork-{os.getuid()}-cuda-0.judges").mkdir()
    with pytest.raises(DeviceError, match="cannot be opened"):
        Gate("cuda:0", tmp_path).begin(list)


def test_what_a_party_starts_while_it_is_stopped_stands_still_too(monkeypatch):
    lists, told = [[10], [10, 11], [10, 11, 12], [10, 11, 12], [10, 11, 12]], []
    group = SimpleNamespace(freeze=lambda frozen: False, pids=lambda: lists.pop(0))
    monkeypatch.setattr(processes.os, "kill", lambda pid, number: told.append((pid, number)))
    Spawned(SimpleNamespace(pid=10), None, Limits(), group, "", False).freeze()
    assert told == [(10, signal.SIGSTOP), (11, signal.SIGSTOP), (12, signal.SIGSTOP)] and len(lists) == 1


def test_a_full_disk_stops_nobody(judges, monkeypatch):
    """The name of the turn's holder is written only to inform waiting judges."""
    (first, _), (second, _) = judges

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("verifier.judge.gate.os.pwrite", full)
    for gate in (first, second, first):
        with gate.alone():
            pass


def test_one_at_a_time_has_room_and_who_waits_for_it_holds_up_no_measurement(judges):
    (mine, _), (other, its_party) = judges
    waited, told, looks = [], [], []
    other._wait = looks.append

    def works():
        with other.working(), other.room(lambda: told.append(True)) as seconds:
            waited.append(seconds)

    thread = threading.Thread(target=works)
    with mine.room(lambda: told.append(False)):
        thread.start()
        until(lambda: told)
        with mine.alone():
            assert its_party.frozen and not waited
        seen = len(looks)
        until(lambda: len(looks) > seen + 2)
        assert not waited
    thread.join(5)
    assert told == [True] and waited and waited[0] > 0
    with mine.room():
        pass


def test_waiting_for_room_ends_where_the_job_is_called_off(judges):
    (mine, _), (other, _) = judges
    other.called_off = lambda: True
    with mine.room(), pytest.raises(DeviceError, match="called off"), other.room():
        pass
    with other.room():
        pass


def test_alone_on_a_device_there_is_room(tmp_path):
    with Gate("cpu", tmp_path).room() as seconds:
        assert seconds == 0.0 and not list(tmp_path.iterdir())
