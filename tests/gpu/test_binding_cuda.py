"""On a real GPU, parties run where the judge puts them, whatever they request."""

import os

import pytest

from verifier.build.artefacts import NONE
from verifier.confinement.binding import threads_of
from verifier.devices import cuda_driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]

MOVES = """import os
import threading

import torch
import torch.nn as nn


def move():
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), range(os.cpu_count()))


move()
threading.Thread(target=move).start()


class ModelNew(nn.Module):
    def forward(self, x):
        move()
        return torch.relu(x)
"""


def test_a_party_is_where_the_judge_puts_it(tmp_path):
    from verifier.devices.opening import open_device
    from verifier.judge.pool import Pool
    from verifier.limits import Limits

    device = open_device("cuda:0", tmp_path)
    if not device.timed_on:
        pytest.skip("fewer than 8 processors of the host for each GPU: parties are bound to none")
    pool = Pool(device, Limits(), spares=0)
    try:
        party = pool.take("runner")
        for wide in (False, True, False):
            party.binding.spread(wide)
            expected = set(device.wide_on if wide else device.timed_on)
            threads = {thread for process in party.spawned.members() for thread in threads_of(process)}
            assert len(threads) > 3 and {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset(expected)}
        party.import_program(MOVES, NONE, 60)
        party.binding.stand_on(2)
        main = party.spawned.main_pid()
        assert os.sched_getaffinity(main) == {device.timed_on[2]}
        others = set(threads_of(main)) - {main}
        assert all(os.sched_getaffinity(thread) <= set(device.timed_on) for thread in others), "nor did the import move any of them"
    finally:
        pool.close()
