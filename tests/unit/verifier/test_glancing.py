"""Some timed calls are inspected while they run, each at one instant: samples count only if they fall within their call, whose own time is
discarded."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import time
from types import SimpleNamespace

import pytest
import torch

from verifier.build.artefacts import Artefacts
from verifier.integrity.sampling.glancing import ENOUGH, FAINT, Glances, Glancing
from verifier.integrity.sampling.mapped import Kind, Mapped
from verifier.integrity.sampling.native import Sample, Sampler, SamplerError, build_sampler
from verifier.integrity.sampling.observing import within
from verifier.shim.clock import Clock, Leader, Native, SharedPage, build_clock, running
from verifier.timing.blocks import Side
from verifier.timing.call import Call

CALLS, SPIN_NS = 6, 3_000_000
SOURCE = r"""
#include <time.h>
extern "C" void spin(long ns) {
  timespec from, at;
  clock_gettime(CLOCK_MONOTONIC, &from);
  do {
    volatile double x = 1;
    for (int i = 0; i < 2000; ++i) x = x * 0.5 + 1;
    clock_gettime(CLOCK_MONOTONIC, &at);
  } while ((at.tv_sec - from.tv_sec) * 1000000000L + at.tv_nsec - from.tv_nsec < ns);
}
"""


def call(inner: int = 10, span: tuple[int, int] | None = (0, 10), looked: bool = False) -> Call:
    return Call(inner, inner, 0, 0, None, [], [], None, [], in_series=True, span=span, looked=looked)


def test_samples_count_only_between_beginning_and_end_of_their_call():
    samples = [Sample(0, 1, Kind.OWN, at) for at in (5, 15, 25)]
    assert [sample.at for sample in within(samples, [call(span=(0, 10)), call(span=(20, 30))])] == [5, 25]
    assert within(samples, [call(span=None)]) == samples  # only a single call was open


def test_the_time_of_an_inspected_call_does_not_count_beside_others():
    side = Side(None, SimpleNamespace())
    assert side.add([call(10), call(10_000_000, looked=True), call(12)]) == pytest.approx(11e-6)
    assert side.laps.made == 2
    assert side.add([call(14, looked=True)]) == pytest.approx(14e-6)


def test_which_calls_are_inspected_is_chosen_anew_for_each_series():
    glancing = Glancing(SimpleNamespace(mapped=None, sampler=SimpleNamespace(error=0), refresh=lambda seen: None), random.Random(3))
    counted = range(2, 8)
    assert glancing.choose(counted) is None  # the duration of a call is unknown
    glancing.add([call(1000)] * 8, None)
    chosen = [glancing.choose(counted) for _ in range(60)]
    assert {number for one in chosen for number in one.calls} == set(counted) and {len(one.calls) for one in chosen} == {2}
    assert all(0 <= delay < 1000 for one in chosen for delay in one.delays.values())
    alone = [glancing.choose([1]) for _ in range(60)]
    assert 5 < sum(one is not None for one in alone) < 40  # inspection disturbs its time, so not every call is inspected


def test_what_was_seen_in_inspected_calls_is_kept_until_it_is_enough():
    flat = SimpleNamespace(function=lambda address: (0, "mine"), at=lambda address: None)
    sampler = SimpleNamespace(error=0, seen=[])
    glancing = Glancing(SimpleNamespace(mapped=flat, sampler=sampler, refresh=lambda seen: None), random.Random(3))
    for _ in range(ENOUGH):
        assert glancing.wants_more
        sampler.seen = [Sample(0, 1, Kind.OWN, 15), Sample(1, 1, Kind.OWN, 5)]  # the first sample was late: call 1 had already ended
        glancing.add([call(span=(0, 10)), call(span=(11, 12))], Glances(sampler, {0: 5, 1: 0}))
    assert not glancing.wants_more and glancing.result().moments == ENOUGH and glancing.result().share == 1.0


def test_more_is_wanted_where_hardly_any_own_code_was_seen():
    mapped = SimpleNamespace(function=lambda address: None, at=lambda address: None)
    sampler = SimpleNamespace(error=0, seen=[Sample(0, 1, Kind.LIBRARY, 5)])
    glancing = Glancing(SimpleNamespace(mapped=mapped, sampler=sampler, refresh=lambda seen: None), random.Random(3))
    for _ in range(FAINT):
        assert glancing.wants_more
        glancing.add([call()], Glances(sampler, {0: 5}))
    assert not glancing.wants_more
    sampler.error = 1
    assert glancing.choose(range(6)) is None


@pytest.fixture
def party(tmp_path):
    """Serves series whose calls spin in the program's own code."""
    library = tmp_path / "own.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)], input=SOURCE.encode(), check=True)
    native, page = Native(build_clock(tmp_path)), SharedPage()
    mine, theirs = socket.socketpair()
    inputs = torch.zeros(CALLS, 64).share_memory_()
    child = os.fork()
    if not child:
        own, clock = ctypes.CDLL(str(library)), Clock(native)
        clock.open_page(page.descriptor)
        while theirs.recv(1):
            for number in range(CALLS):
                clock.wait(theirs.fileno(), number, inputs[number].data_ptr(), 256)
                own.spin(SPIN_NS)
                clock.ended()
                clock.copied()
    data = library.read_bytes()
    time.sleep(0.3)
    yield SimpleNamespace(pid=child, native=native, page=page, socket=mine, artefacts=Artefacts([("own.so", len(data))], data, 0.0))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    mine.close(), theirs.close()


@pytest.mark.slow
def test_a_process_is_inspected_in_the_chosen_calls_of_a_series_alone(party, tmp_path):
    mapped, leader = Mapped(party.pid, "/nowhere", False, party.artefacts), Leader(party.native, spins=False)
    try:
        sampler = Sampler(build_sampler(tmp_path), party.pid, 5)
    except SamplerError as error:
        pytest.skip(str(error))
    sampler.know(mapped.read())
    seen, chosen = [], {2: SPIN_NS // 2, 4: SPIN_NS // 4}
    for _ in range(10):  # on a busy host, some samples come too late
        leader.begin(party.page.address)
        party.socket.send(b"x")
        with Glances(sampler, chosen).over(party.page) as bell:
            stamped = leader.lead(party.page.address, party.socket.fileno(), [(1, 2)] * CALLS, 20.0, bell=bell, rung=sorted(chosen))
        assert not sampler.error
        spans = [call(span=(one.began, one.ended)) for one in stamped]
        assert len({sample.moment for sample in sampler.seen}) <= len(chosen)
        # a sample that comes too late may hit the following call, which is discarded like one between two calls (`Glancing.add`)
        assert not within(sampler.seen, [one for number, one in enumerate(spans) if not {number, number - 1} & set(chosen)])
        seen += [sample for sample in within(sampler.seen, [spans[number] for number in chosen]) if sample.kind is Kind.OWN]
    assert len(seen) >= 8 and {mapped.function(sample.address)[1] for sample in seen} == {"spin"}
    assert running(0) == 2 and running(3) == 14


def test_a_series_that_ends_early_keeps_nobody_waiting(party, tmp_path):
    try:
        sampler = Sampler(build_sampler(tmp_path), party.pid, 5)
    except SamplerError as error:
        pytest.skip(str(error))
    begin = time.monotonic()
    with Glances(sampler, {2: 10, 4: 10}).over(party.page):
        pass
    assert time.monotonic() - begin < 5 and sampler.seen == []
