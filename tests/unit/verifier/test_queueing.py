"""How long threads wait for a processor, and which repeated calls count."""

from __future__ import annotations

import os
import random
import threading
import time
from types import SimpleNamespace

import pytest

from verifier.confinement.queueing import waited_ns
from verifier.integrity.replays import Replaying, Replays


def test_the_second_figure_of_each_thread_is_summed(tmp_path):
    files = []
    for number in range(2):
        path = tmp_path / str(number)
        path.write_text(f"123 {number + 5} 7\n")
        files.append(os.open(path, os.O_RDONLY))
    gone = os.open(tmp_path, os.O_RDONLY)
    assert waited_ns([*files, gone]) == 11 and waited_ns([]) == 0
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
        before, end = waited_ns([file]), time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        assert waited_ns([file]) > before
    finally:
        os.sched_setaffinity(0, allowed)
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(file)


def test_repeated_calls_that_other_work_disturbed_count_only_where_there_are_no_others():
    assert Replays(plain=[2.0], preempted=[9.0, 9.0]).ms == 2.0 and Replays(preempted=[9.0]).ms == 9.0
    calls = iter([(9e6, True), (2e6, False)])

    def called(values, seed):
        inner, preempted = next(calls)
        return SimpleNamespace(inner=inner, preempted=preempted, outputs=[])

    timed = SimpleNamespace(seed=None, values=None, caller=SimpleNamespace(call=called, party=SimpleNamespace(looking=None)))
    trials = SimpleNamespace(reference=SimpleNamespace(mutated=[], inputs=lambda seed: seed), input_bytes=8)
    replaying = Replaying(timed, trials, random.Random(1), 2.0)
    replaying.call(), replaying.call()
    assert replaying.replays.preempted == [9.0] and replaying.replays.ms == 2.0
