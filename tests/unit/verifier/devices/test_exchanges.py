"""The cost of exchanges between blocks is measured once per GPU, and programs are judged even if it is missing."""

import subprocess
from types import SimpleNamespace

import pytest

from verifier.devices import cuda_exchanges
from verifier.passes import native

FACTS = SimpleNamespace(model="h100", uuid="GPU-0123456789abcdef", arch="sm_90", multiprocessors=132)


class Kernels:
    """A GPU that cannot hold clusters of 16. A round takes 0.25 us in a cluster and 1 us across the grid, and a launch takes 5 us."""

    def __init__(self, *_):
        self.launched = []

    def resident(self, size):
        return {2: 66, 4: 32, 8: 16}.get(size, 0)

    def in_clusters(self, reads, size, count, rounds):
        return 5e-6 + 0.25e-6 * rounds

    def across_grid(self, rounds):
        return 5e-6 + 1e-6 * rounds

    round_seconds = cuda_exchanges.Exchanges.round_seconds
    _torch = None


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(cuda_exchanges, "best_seconds", lambda torch, call, calls: call())
    monkeypatch.setattr(cuda_exchanges, "Exchanges", Kernels)


def test_the_time_of_a_launch_cancels_out_and_sizes_that_do_not_fit_are_left_out(gpu, tmp_path):
    found = cuda_exchanges.exchanges(None, tmp_path, "cuda:0", 132)
    assert found["clusters_8"] == 16 and "clusters_16" not in found
    assert found["cluster_us_2"] == pytest.approx(0.25) and found["grid_us"] == pytest.approx(1.0)
    assert found["cluster_read_gbs"] == pytest.approx(16 * 8 * 32768 / 0.25e-6 / 1e9, rel=1e-3)


def compiled(folder):
    native.library_path(folder, "nvcc", "sm_90", native.EXCHANGES).write_bytes(b"")


def test_figures_are_measured_once_the_kernels_are_compiled_and_then_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_exchanges, "measured_apart", lambda *_: {"clusters_2": 66.0})
    assert cuda_exchanges.known(tmp_path, "nvcc", FACTS, "cuda:0") == {}
    compiled(tmp_path)
    found = cuda_exchanges.known(tmp_path, "nvcc", FACTS, "cuda:0")
    monkeypatch.setattr(cuda_exchanges, "measured_apart", None)
    assert found["clusters_2"] == 66 and cuda_exchanges.known(tmp_path, "nvcc", FACTS, "cuda:0") == found


def test_kernels_that_do_not_run_leave_the_figures_out_and_are_tried_once(tmp_path, monkeypatch):
    compiled(tmp_path)
    assert cuda_exchanges.known(tmp_path, "nvcc", FACTS, "cuda:0") == {}  # the process fails: the file is no library
    monkeypatch.setattr(cuda_exchanges, "measured_apart", None)
    assert cuda_exchanges.known(tmp_path, "nvcc", FACTS, "cuda:0") == {}


@pytest.mark.parametrize("error", [OSError("no interpreter"), subprocess.TimeoutExpired("it", 60)])
def test_a_process_that_hangs_or_does_not_start_gives_no_figures(tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(cuda_exchanges.subprocess, "run", fails)
    assert cuda_exchanges.measured_apart(tmp_path, "cuda:0", 132) == {}
