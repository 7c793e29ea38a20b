"""The processors assigned to a GPU's judge and parties: each GPU gets a share of the host, including four processors for timing."""

import os
from types import SimpleNamespace

import pytest

from verifier.devices import cuda
from verifier.devices.cpu import CpuDevice
from verifier.devices.host_cores import cores, numbers


def flat(share):
    return [processor for core in share for processor in core]


@pytest.fixture
def host(monkeypatch):
    def of(count, hosts=None):
        monkeypatch.setattr(cuda, "CORES", [[number] for number in range(count)])
        monkeypatch.setattr(os, "cpu_count", lambda: hosts or count)

    return of


def test_gpus_share_a_host_without_overlap(host):
    host(32)
    assert flat(cuda.share_of_host(0, 2)) == list(range(16)) and flat(cuda.share_of_host(1, 2)) == list(range(16, 32))
    assert [flat(cuda.timed_cores(cuda.share_of_host(index, 2))) for index in (0, 1)] == [[2, 3, 4, 5], [18, 19, 20, 21]]
    assert flat(cuda.share_of_host(0, 1)) == list(range(32))
    host(33)
    assert flat(cuda.share_of_host(1, 2)) == list(range(16, 32)), "as many for each"


def test_a_small_host_is_not_divided(host):
    host(12)
    assert cuda.timed_cores(cuda.share_of_host(0, 2)) == []


def topology(folder, sockets, cores, threads=2):
    """Numbers the threads as Linux does: the first threads of all cores come first, followed by the second threads."""
    every = sockets * cores
    for number in range(every * threads):
        core = number % every
        place = folder / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{core // cores}\n")
        (place / "thread_siblings_list").write_text(",".join(str(core + every * thread) for thread in range(threads)) + "\n")


def test_threads_of_a_core_lie_side_by_side_and_so_do_sockets(tmp_path):
    topology(tmp_path, sockets=2, cores=3)
    assert cores(range(12), tmp_path) == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]
    assert cores([11, 3, 5, 0], tmp_path) == [[0], [3], [5, 11]], "of what a container allows"
    assert cores([2, 1], tmp_path / "nothing") == [[1], [2]]
    assert numbers("0-2,8\n") == [0, 1, 2, 8]


def test_nobody_works_on_the_other_thread_of_a_core_on_which_sides_are_timed(host, tmp_path, monkeypatch):
    topology(tmp_path, sockets=2, cores=16)
    monkeypatch.setattr(cuda, "CORES", cores(range(64), tmp_path))
    parts = [{number % 32 for number in flat(cuda.share_of_host(index, 4))} for index in range(4)]
    assert all(not one & other for at, one in enumerate(parts) for other in parts[:at]), "no core belongs to two GPUs"
    share = flat(cuda.share_of_host(1, 4))
    timed = flat(cuda.timed_cores(cuda.share_of_host(1, 4)))
    assert len(timed) == 4 and not {number % 32 for number in timed} & {number % 32 for number in share if number not in timed}


def test_one_thread_of_a_core_in_the_set_moves_no_other_core_apart(host, tmp_path, monkeypatch):
    """Covers a container with a static processor set that does not consist of whole cores."""
    topology(tmp_path, sockets=1, cores=16)
    monkeypatch.setattr(cuda, "CORES", cores([16, *range(1, 8), *range(17, 24)], tmp_path))
    share = cuda.share_of_host(0, 1)
    timed = flat(cuda.timed_cores(share))
    assert timed == [2, 18, 3, 19] and not {number % 16 for number in timed} & {number % 16 for number in flat(share) if number not in timed}


@pytest.mark.parametrize(
    ("allowed", "known", "expected"),
    [
        (64, (3, 4), (48, 64)),  # a judge that sees only one of four GPUs, as its number 0
        (64, (0, 1), (0, 64)),
        (64, None, (0, 64)),  # without NVML
        (4, (0, 1), (0, 4)),
        (48, (3, 8), (18, 24)),  # many GPUs on a host with few processors: none is bound, because all would be bound to the same ones
    ],
)
def test_the_part_of_a_gpu_is_by_its_number_on_the_host(host, monkeypatch, allowed, known, expected):
    host(allowed)
    monkeypatch.setattr(cuda.cuda_driver, "gpu_count", lambda: 1)
    device = cuda.CudaDevice.__new__(cuda.CudaDevice)
    device.index, device.nvml = 0, SimpleNamespace(number=lambda: known)
    assert flat(device._share) == list(range(*expected))
    assert len(device.timed_on) == (4 if len(flat(device._share)) >= 8 else 0)


def test_a_job_with_some_of_the_hosts_processors_and_one_of_its_gpus_has_them_all(host, monkeypatch):
    host(16, hosts=160)
    monkeypatch.setattr(cuda.cuda_driver, "gpu_count", lambda: 1)
    device = cuda.CudaDevice.__new__(cuda.CudaDevice)
    device.index, device.nvml = 0, SimpleNamespace(number=lambda: (3, 8))
    assert flat(device._share) == list(range(16)) and len(device.timed_on) == 4


def test_judges_wait_away_from_where_sides_are_timed(host, monkeypatch):
    host(32)
    device = cuda.CudaDevice.__new__(cuda.CudaDevice)
    device.index, device.nvml = 1, SimpleNamespace(number=lambda: (1, 2))
    taken = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, chosen: taken.append((thread, list(chosen))))
    device.take_processors()
    assert taken == [(0, [16, 17, *range(22, 32)])] and len(device.timed_on) == 4


def test_sides_are_at_their_places_before_they_warm_up(monkeypatch):
    """Whatever a process loads in its first calls is then located where it will be timed."""
    from verifier.timing.processes import Round
    from verifier.timing.tournament import Tournament

    said = []

    class Party:
        def rest(self, anew=False):
            said.append(("rest", anew))

    class Caller:
        party = Party()

    class Side:
        caller = Caller()

    class Pair:
        sides = [Side(), Side()]
        program = sides[0]

    class Stop(Exception):
        pass

    def warm_up(self, *given, **named):
        said.append("warm up")
        raise Stop

    class Pool:
        gate = SimpleNamespace(frozen_seconds=lambda: 0.0)

        def at_once(self, work):
            return [one() for one in work]

        def settle(self):
            said.append("nobody imports torch")

    monkeypatch.setattr(Tournament, "_alone", warm_up)
    monkeypatch.setattr(Tournament, "_bring_up", lambda self, round_, subject: [Pair()])
    tournament = Tournament.__new__(Tournament)
    tournament.job, tournament.pool, tournament.waiting = SimpleNamespace(tier="full"), Pool(), 0.0
    with pytest.raises(Stop):
        tournament._round(0, Round(range(1), []), None, [], None)
    assert said == [("rest", True), ("rest", True), "nobody imports torch", "warm up"]


@pytest.mark.parametrize(("allowed", "timed"), [([3], []), ([3, 5], [3]), ([0, 1, 4, 6], [0, 1, 4])])
def test_programs_for_the_cpu_leave_one_processor_to_the_host(monkeypatch, tmp_path, allowed, timed):
    """A program may not use it either: it would seem faster than PyTorch, which has fewer threads."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(allowed))
    device = CpuDevice(tmp_path)
    assert device.timed_on == timed and device.threads == max(len(timed), 1)
    assert device.wide_on == (allowed if timed else []) and device.stands_on == []
