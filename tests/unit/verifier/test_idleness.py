"""When a runner counts as keeping the machine busy while others are timed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from verifier.timing import idleness
from verifier.timing.idleness import Watch


class Clock:
    now = 0

    def monotonic_ns(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(idleness, "time", clock)
    return clock


def watched(used, waits=None):
    """Returns a watch on a party with the given sequences of processor times and GPU waiting times."""
    used = iter(used)
    device = SimpleNamespace(usual_wait_ns=lambda: 20_000, waits=iter(waits or []))
    return Watch(SimpleNamespace(device=device, spawned=SimpleNamespace(cpu_ns=lambda: next(used))))


def windows(watch, clock, count, nanoseconds):
    for _ in range(count):
        watch.waited(next(watch.party.device.waits, None))
        watch.open()
        clock.now += nanoseconds
        watch.close()
        clock.now += nanoseconds


def test_a_runner_at_rest_is_fine(clock):
    watch = watched([5] * 40)
    windows(watch, clock, 20, 2_000_000)
    assert watch.finding() == ""


def test_one_late_tick_is_no_crime(clock):
    watch = watched([0, 2_500_000, *[2_500_000] * 18])
    windows(watch, clock, 10, 100_000)
    assert watch.finding() == ""


@pytest.mark.parametrize("phase", [at / 10 for at in range(10)])
def test_a_thread_whose_time_is_counted_by_the_tick_is_found(clock, phase):
    """All checks may begin at the same point between two ticks, and a shorter check may contain no tick."""
    tick, look = round(idleness.TICK_SECONDS * 1e9), round(idleness.LOOK_SECONDS * 1e9)
    begins = [(at * 7 + phase) * tick for at in range(8)]
    counts = [int(moment // tick) * tick for begin in begins for moment in (begin, begin + look)]
    watch = watched(counts)
    for _ in begins:
        watch.open()
        clock.now += look
        watch.close()
    assert "of a processor" in watch.finding()


def test_a_busy_thread_is_found(clock):
    used = [at * 1_000_000 for at in range(40)]
    watch = watched(used)
    windows(watch, clock, 20, 1_000_000)
    assert "100% of a processor" in watch.finding()


def test_what_runs_between_the_windows_does_not_count(clock):
    used = [(at + 1) // 2 * 10_000_000 for at in range(40)]  # 0, 10, 10, 20, 20: grows while a window is open
    watch = watched(used)
    windows(watch, clock, 20, 1_000_000)
    assert watch.finding()
    watch = watched([at // 2 * 10_000_000 for at in range(40)])  # 0, 0, 10, 10: grows while none is open
    windows(watch, clock, 20, 1_000_000)
    assert watch.finding() == ""


def test_a_gpu_that_is_taken_is_found(clock):
    assert "waited 2.00 ms for the GPU, usually 0.02" in _gpu(clock, [2_000_000] * 12).finding()
    assert _gpu(clock, [30_000] * 12).finding() == ""
    assert _gpu(clock, [2_000_000, 2_000_000, *[30_000] * 10]).finding() == ""
    assert _gpu(clock, [2_000_000] * 7).finding() == ""  # too few to draw a conclusion


def _gpu(clock, waits):
    watch = watched([0] * 40, waits)
    windows(watch, clock, 12, 1_000_000)
    return watch


def test_a_host_that_tells_nothing_accuses_nobody(clock):
    watch = watched([None] * 40)
    windows(watch, clock, 20, 1_000_000)
    assert watch.finding() == "" and watch.open_ns == 0


def test_a_party_stands_still_from_the_look_to_its_turn(clock):
    watch = watched([0, 5_000_000, 7_000_000, 9_000_000])
    done = []
    watch.party.spawned.freeze, watch.party.spawned.thaw = (lambda: done.append("freeze")), (lambda: done.append("thaw"))
    watch.go()  # the party does not stay frozen
    watch.open()
    clock.now += 2_000_000
    watch.stop()
    assert watch.still and done == ["freeze"] and (watch.used_ns, watch.open_ns) == (5_000_000, 2_000_000)
    watch.go()
    watch.go()
    assert not watch.still and done == ["freeze", "thaw"]


def test_a_gpu_that_is_taken_only_until_the_party_stands_still_is_found(clock):
    watch = watched([0] * 40)
    for _ in range(idleness.GPU_LOOKS):
        watch.open(2_000_000)
        watch.close()
        watch.waited(30_000)
    assert "waited 2.00 ms" in watch.finding()


class Host:
    """A clock on which sleeping passes time, and a thread that works whenever `works` says so."""

    def __init__(self, works):
        self.now, self.works, self.used = 0, works, 0

    def monotonic_ns(self):
        return self.now

    def sleep(self, seconds):
        for _ in range(round(seconds * 1e4)):
            self.used += 100_000 * self.works(self.now)
            self.now += 100_000


def paused(monkeypatch, works, times):
    host = Host(works)
    monkeypatch.setattr(idleness, "time", host)
    device = SimpleNamespace(usual_wait_ns=lambda: None, settle=lambda: None, wait_ns=lambda: None)
    spawned = SimpleNamespace(cpu_ns=lambda: host.used, freeze=lambda: None, thaw=lambda: None)
    watch = Watch(SimpleNamespace(device=device, spawned=spawned))
    for _ in range(times):
        idleness.pause([watch], looks=True)
        host.now += 1_000_000_000 - host.now % 1_000_000_000  # the next turn begins at a whole second
    return watch


def test_threads_that_fall_asleep_late_on_a_busy_host_are_idle(monkeypatch):
    until = round((idleness.SETTLE_SECONDS + idleness.LOOK_SECONDS) * 1e9) + 4_000_000
    assert paused(monkeypatch, lambda now: now % 1_000_000_000 < until, 8).finding() == ""


@pytest.mark.parametrize("works", [lambda now: True, lambda now: now // 3_000_000 % 2 == 0, lambda now: now // 1_000_000 % 4 == 0])
def test_threads_that_never_fall_asleep_are_found(monkeypatch, works):
    assert "of a processor" in paused(monkeypatch, works, 8).finding()
