"""How long threads wait for a processor, and which repeated calls are counted."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from verifier.confinement.queueing import longest_ns, waits_ns
from verifier.integrity.replays import Replaying, Replays
from verifier.judge.session import Values
from verifier.layout import Spec
from verifier.timing.series import Form


def test_a_call_is_delayed_by_the_thread_that_waits_longest(tmp_path):
    files = []
    for number in range(2):
        path = tmp_path / str(number)
        path.write_text(f"123 {number + 5} 7\n")
        files.append(os.open(path, os.O_RDONLY))
    gone = os.open(tmp_path, os.O_RDONLY)
    before = waits_ns([*files, gone])
    assert before == {files[0]: 5, files[1]: 6} and waits_ns([]) == {}
    (tmp_path / "0").write_text("130 25 8\n")
    (tmp_path / "1").write_text("130 13 8\n")
    assert longest_ns(before, waits_ns(files)) == 20 and longest_ns({}, before) == 0
    for file in [*files, gone]:
        os.close(file)


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel does not count it")
def test_threads_on_one_processor_wait_for_each_other():
    file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    allowed, child = os.sched_getaffinity(0), os.fork()
    if not child:
        os.sched_setaffinity(0, {min(allowed)})
        while True:
            pass
    try:
        os.sched_setaffinity(0, {min(allowed)})
        before, end = waits_ns([file]), time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        assert longest_ns(before, waits_ns([file])) > 0
    finally:
        os.sched_setaffinity(0, allowed)
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(file)


def test_repeated_calls_that_other_work_disturbed_count_only_where_there_are_no_others():
    assert Replays(plain=[2.0], preempted=[9.0, 9.0]).ms == 2.0 and Replays(preempted=[9.0]).ms == 9.0
    calls = iter([(9e6, True), (2e6, False)])

    def turn(uses, in_series):
        inner, preempted = next(calls)
        return [SimpleNamespace(inner=inner, preempted=preempted, outputs=[])]

    replaying = Replaying(*of(turn), random.Random(1), 2.0)
    replaying.turn(), replaying.turn()
    assert replaying.replays.preempted == [9.0] and replaying.replays.ms == 2.0


def of(turn):
    values = Values({"l": [{"t": 0}]}, [Spec.of(torch.zeros(4))], [torch.zeros(4)])
    caller = SimpleNamespace(turn=turn, party=SimpleNamespace(looking=None))
    reference = SimpleNamespace(mutated=[], inputs=lambda seed: Values(values.tree, values.specs, [torch.rand(4)]))
    return SimpleNamespace(seed=7, values=values, caller=caller), SimpleNamespace(reference=reference, input_bytes=8)


def test_calls_that_are_inspected_have_the_form_of_the_timed_ones():
    """A program can distinguish single calls from those of a series by their spacing, their seeds, and the location of their inputs."""
    made = []

    def turn(uses, in_series):
        made.append((uses, in_series))
        return [SimpleNamespace(inner=1e6, preempted=False, outputs=[]) for use in uses if use.counted]

    replaying = Replaying(*of(turn), random.Random(1), 2.0, Form(2, 6))
    replaying.before()
    assert len(replaying.turn(contextlib.nullcontext(), again=True)) == 6
    assert all(in_series and [use.counted for use in uses] == [False] * 2 + [True] * 6 for uses, in_series in made)
    same = [number for number, use in enumerate(made[-1][0]) if use.values is replaying.draws[0][0] and not use.changes]
    assert len(same) == 2 and same[0] >= 2 and len(replaying.replays.again) == 2
    assert len(replaying.replays.looked_at) == 6 and len(replaying.replays.plain) >= 3


def test_calls_under_the_recorder_must_be_like_the_timed_call():
    """A program that senses the recorder differs under it alone; a sum by atomics differs from call to call."""
    outputs: list[float] = []

    def turn(uses, in_series):
        return [SimpleNamespace(inner=1e6, preempted=False, outputs=[torch.full((4,), outputs.pop())]) for use in uses if use.counted]

    def said(recorded, plain, then=1.0):
        outputs[:] = [*plain[::-1], *recorded[::-1]]
        timed, trials = of(turn)
        timed.outputs = [torch.full((4,), then)]
        replaying = Replaying(timed, trials, random.Random(1), 2.0, Form(0, 2))
        replaying.turn(again=True, recorded=True)
        return replaying.differs()

    assert "under the recorder, the timed call gives other outputs" in said([1.25, 1.25], [1.0, 1.0])
    assert said([1.0, 1.0], [1.0, 1.0]) == "" and said([1.25, 1.0], [1.0, 1.0]) == ""
    assert said([1.25, 1.5], [1.0, 1.75]) == ""
