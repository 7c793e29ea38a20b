"""The usual time that a tiny kernel waits for the GPU is learnt even if other judges' processes are active."""

from collections import deque
from types import SimpleNamespace

from verifier.devices.cuda import CudaDevice
from verifier.timing.idleness import Watch

QUIET, BESIDE, KEPT_BUSY = 270_000, 1_600_000, 2_200_000  # ns, as observed on an H200


def watch_of(found: CudaDevice, wait: int) -> Watch:
    party = SimpleNamespace(device=found, spawned=SimpleNamespace(cpu_ns=lambda: None))
    return Watch(party, waits_ns=[wait] * 12)


def device(learnt: int) -> CudaDevice:
    found = CudaDevice.__new__(CudaDevice)
    found._waits = deque([learnt] * 9)
    return found


def test_what_was_learnt_beside_others_hides_no_program_that_keeps_the_gpu_busy():
    for learnt in (QUIET, BESIDE):
        watch = watch_of(device(learnt), KEPT_BUSY)
        assert "leave the GPU alone" in watch.finding(), learnt
        watch.waits_ns = [QUIET] * 12
        assert watch.finding() == ""


def test_where_the_gpu_works_on_without_the_program_it_is_not_to_blame():
    """Covers, for example, a training run, or a kernel started by another verifier's process that has since been frozen."""
    watch = watch_of(device(QUIET), KEPT_BUSY)
    watch.works_on = True
    assert watch.finding() == "" and "another process keeps it busy" in watch.crowded()
    watch.waits_ns = [QUIET] * 12
    assert watch.finding() == "" and watch.crowded() == "", "nobody had to wait"


def test_a_device_does_not_rest_while_kernels_of_a_neighbour_still_run(monkeypatch):
    for learnt in (QUIET, BESIDE):
        found = device(learnt)
        for wait, rests in ((KEPT_BUSY, False), (QUIET, True)):
            monkeypatch.setattr(found, "wait_ns", lambda wait=wait: wait)
            assert found.rests() is rests, (learnt, wait)


def test_a_wait_is_one_in_a_neighbours_time_slice(monkeypatch):
    """After a pause, the neighbour's time slice has long ended, so a first kernel runs immediately; the neighbour's next slice then begins, and a
    second kernel must wait for it to end."""
    found = device(QUIET)
    waits = iter([QUIET, KEPT_BUSY, QUIET, QUIET // 10])
    monkeypatch.setattr(found, "_one_wait_ns", lambda: next(waits))
    assert found.wait_ns() == KEPT_BUSY and found.wait_ns() == QUIET


def test_nothing_is_usual_before_something_was_learnt():
    found = device(QUIET)
    found._waits.clear()
    assert found.usual_wait_ns() is None
