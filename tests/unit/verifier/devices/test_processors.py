"""Which processors a GPU's judge and parties have: a part of the host for each GPU, and of that four on which sides are timed."""

import os
from types import SimpleNamespace

import pytest

from verifier.devices import cuda
from verifier.devices.host_cores import by_core, numbers


@pytest.fixture
def host(monkeypatch):
    def of(count):
        monkeypatch.setattr(cuda, "ALLOWED", list(range(count)))

    return of


def test_gpus_share_a_host_without_overlap(host):
    host(32)
    assert cuda.share_of_host(0, 2) == list(range(16)) and cuda.share_of_host(1, 2) == list(range(16, 32))
    assert [cuda.processors(cuda.share_of_host(index, 2)) for index in (0, 1)] == [[2, 3, 4, 5], [18, 19, 20, 21]]
    assert cuda.share_of_host(0, 1) == list(range(32))
    host(33)
    assert cuda.share_of_host(1, 2) == list(range(16, 32)), "whole cores"


def test_a_small_host_is_not_divided(host):
    host(12)
    assert cuda.processors(cuda.share_of_host(0, 2)) == []


def topology(folder, sockets, cores, threads=2):
    """As Linux numbers them: first threads of all cores, then second ones."""
    every = sockets * cores
    for number in range(every * threads):
        core = number % every
        place = folder / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{core // cores}\n")
        (place / "thread_siblings_list").write_text(",".join(str(core + every * thread) for thread in range(threads)) + "\n")


def test_threads_of_a_core_lie_side_by_side_and_so_do_sockets(tmp_path):
    topology(tmp_path, sockets=2, cores=3)
    assert by_core(range(12), tmp_path) == [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]
    assert by_core([11, 3, 5, 0], tmp_path) == [0, 3, 5, 11], "of what a container allows"
    assert by_core([2, 1], tmp_path / "nothing") == [1, 2]
    assert numbers("0-2,8\n") == [0, 1, 2, 8]


def test_nobody_works_on_the_other_thread_of_a_core_on_which_sides_are_timed(host, tmp_path, monkeypatch):
    topology(tmp_path, sockets=2, cores=16)
    monkeypatch.setattr(cuda, "ALLOWED", by_core(range(64), tmp_path))
    cores = [{number % 32 for number in cuda.share_of_host(index, 4)} for index in range(4)]
    assert all(not one & other for at, one in enumerate(cores) for other in cores[:at]), "no core belongs to two GPUs"
    share = cuda.share_of_host(1, 4)
    timed = cuda.processors(share)
    assert len(timed) == 4 and not {number % 32 for number in timed} & {number % 32 for number in share if number not in timed}


@pytest.mark.parametrize(
    ("allowed", "known", "expected"),
    [
        (64, (3, 4), (48, 64)),  # a judge that sees one of four GPUs, as its number 0
        (64, (0, 1), (0, 64)),
        (16, (3, 8), (0, 16)),  # a job that has two cores of ten and one GPU of eight
        (64, None, (0, 64)),  # without NVML
        (4, (0, 1), (0, 4)),
    ],
)
def test_the_part_of_a_gpu_is_by_its_number_on_the_host(host, monkeypatch, allowed, known, expected):
    host(allowed)
    monkeypatch.setattr(cuda.cuda_driver, "gpu_count", lambda: 1)
    device = cuda.CudaDevice.__new__(cuda.CudaDevice)
    device.index, device.nvml = 0, SimpleNamespace(number=lambda: known)
    assert device._share == list(range(*expected))
    assert len(device.timed_on) == (4 if allowed >= 8 else 0)


def test_judges_wait_away_from_where_sides_are_timed(host, monkeypatch):
    host(32)
    device = cuda.CudaDevice.__new__(cuda.CudaDevice)
    device.index, device.nvml = 1, SimpleNamespace(number=lambda: (1, 2))
    taken = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, chosen: taken.append((thread, list(chosen))))
    device.take_processors()
    assert taken == [(0, [16, 17, *range(22, 32)])] and len(device.timed_on) == 4


def test_sides_are_at_their_places_before_they_warm_up(monkeypatch):
    """What a process loads at its first calls is then where it will be timed."""
    from verifier.tournament import Tournament

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

    class Stop(Exception):
        pass

    def warm_up(self, pairs):
        said.append("warm up")
        raise Stop

    monkeypatch.setattr(Tournament, "_warm_up", warm_up)
    monkeypatch.setattr(Tournament, "_tell", lambda self, text: None)
    tournament = Tournament.__new__(Tournament)
    tournament.job = type("Job", (), {"tier": "full"})()
    tournament.trials = type("Trials", (), {"limits": None})()
    with pytest.raises(Stop):
        tournament._measure([Pair()], [], None, 1.0)
    assert said == [("rest", True), ("rest", True), "warm up"]
