"""How long a tiny kernel usually waits for the GPU, learnt while other judges' processes may be at work."""

from collections import deque
from types import SimpleNamespace

from verifier.devices.cuda import CudaDevice
from verifier.idleness import Watch

QUIET, BESIDE, KEPT_BUSY = 270_000, 1_600_000, 2_200_000  # ns, as seen on an H200


def watch_of(found: CudaDevice, wait: int, restless: bool = False) -> Watch:
    party = SimpleNamespace(device=found, spawned=SimpleNamespace(cpu_ns=lambda: None), gate=SimpleNamespace(restless=restless))
    return Watch(party, waits_ns=[wait] * 12)


def device(learnt: int) -> CudaDevice:
    found = CudaDevice.__new__(CudaDevice)
    found._waits, found._lone_waits = deque([learnt] * 9), deque()
    return found


def test_what_was_learnt_beside_others_hides_no_program_that_keeps_the_gpu_busy():
    for learnt in (QUIET, BESIDE):
        watch = watch_of(device(learnt), KEPT_BUSY)
        assert "leave the GPU alone" in watch.finding(), learnt
        watch.waits_ns = [QUIET] * 12
        assert watch.finding() == ""


def test_where_somebody_else_uses_the_gpu_the_program_is_not_to_blame():
    """A training run, say, which no judge can freeze: a tiny kernel waits as long without any program."""
    found = device(BESIDE)
    found._lone_waits.extend([BESIDE] * 9)
    watch = watch_of(found, KEPT_BUSY)
    assert watch.finding() == "" and "another process keeps the GPU busy" in watch.crowded()
    watch.waits_ns = [6 * BESIDE] * 12  # far longer than without it
    assert "leave the GPU alone" in watch.finding() and watch.crowded() == ""
    found._lone_waits.clear()
    found._lone_waits.extend([QUIET] * 9)  # learnt before the other judges came
    watch = watch_of(found, KEPT_BUSY)
    assert "leave the GPU alone" in watch.finding() and watch.crowded() == ""


def test_nor_where_the_device_was_at_work_before_the_first_call():
    """A kernel of another verifier's frozen process may go on for longer than anybody waits."""
    watch = watch_of(device(QUIET), KEPT_BUSY, restless=True)
    assert watch.finding() == "" and "stood still" in watch.crowded()
    assert watch_of(device(QUIET), QUIET, restless=True).crowded() == ""


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
