"""How long a tiny kernel usually waits for the GPU, learnt while other judges' processes may be at work."""

from collections import deque
from types import SimpleNamespace

from verifier.devices.cuda import CudaDevice
from verifier.idleness import Watch

QUIET, BESIDE, KEPT_BUSY = 270_000, 1_600_000, 2_200_000  # ns, as seen on an H200


def device(learnt: int) -> CudaDevice:
    found = CudaDevice.__new__(CudaDevice)
    found._waits, found._lone_waits = deque([learnt] * 9), deque()
    return found


def test_what_was_learnt_beside_others_hides_no_program_that_keeps_the_gpu_busy():
    for learnt in (QUIET, BESIDE):
        watch = Watch(SimpleNamespace(device=device(learnt), spawned=SimpleNamespace(cpu_ns=lambda: None)), waits_ns=[KEPT_BUSY] * 12)
        assert "leave the GPU alone" in watch.finding(), learnt
        watch.waits_ns = [QUIET] * 12
        assert watch.finding() == ""


def test_where_somebody_else_uses_the_gpu_the_program_is_not_to_blame():
    """A training run, say, which no judge can freeze: a tiny kernel waits as long without any program."""
    found = device(BESIDE)
    found._lone_waits.extend([BESIDE] * 9)
    watch = Watch(SimpleNamespace(device=found, spawned=SimpleNamespace(cpu_ns=lambda: None)), waits_ns=[KEPT_BUSY] * 12)
    assert watch.finding() == "" and "another process keeps the GPU busy" in watch.crowded()
    watch.waits_ns = [6 * BESIDE] * 12  # far longer than without it
    assert "leave the GPU alone" in watch.finding() and watch.crowded() == ""
    found._lone_waits.clear()
    found._lone_waits.extend([QUIET] * 9)  # learnt before the other judges came
    watch = Watch(SimpleNamespace(device=found, spawned=SimpleNamespace(cpu_ns=lambda: None)), waits_ns=[KEPT_BUSY] * 12)
    assert "leave the GPU alone" in watch.finding() and watch.crowded() == ""


def test_nor_kernels_of_a_neighbour_that_still_run(monkeypatch):
    for learnt in (QUIET, BESIDE):
        found = device(learnt)
        for wait, rests in ((KEPT_BUSY, False), (QUIET, True)):
            monkeypatch.setattr(found, "wait_ns", lambda wait=wait: wait)
            assert found.rests() is rests, (learnt, wait)


def test_nothing_is_usual_before_something_was_learnt():
    found = device(QUIET)
    found._waits.clear()
    assert found.usual_wait_ns() is None
