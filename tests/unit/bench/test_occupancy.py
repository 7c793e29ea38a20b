"""The GPU memory that processes hold during a sitting is attributed to workers."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from bench import occupancy

PARENT = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'input()']); print(child.pid, flush=True); input(); child.kill()"


@pytest.fixture
def sweep():
    """Yields the pids of a sweep worker, as its command line identifies it, and of its child process."""
    given = [sys.executable, "-c", PARENT, "bench.sweep.device", "--data-dir", "/somewhere/cuda-0-3"]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.pid, int(process.stdout.readline())
        process.communicate("\n")


def test_memory_by_worker(sweep, monkeypatch):
    worker, beneath = sweep
    monkeypatch.setattr(occupancy.shutil, "which", lambda name: f"/bin/{name}")
    memory = occupancy.Memory()
    for own, other in ((700, 300), (900, 100)):
        said = f"{beneath}, {own}\n{worker}, 20\n1, {other}\n4194305, [N/A]\n"
        monkeypatch.setattr(occupancy.subprocess, "run", lambda *_, said=said, **__: SimpleNamespace(stdout=said))
        memory.look(2.04)
    assert memory.looks == [(2.0, {"cuda-0-3": 720, "other": 300}), (2.0, {"cuda-0-3": 920, "other": 100})]
    assert memory.most() == {"cuda-0-3": 920, "other": 300}


def test_without_a_gpu_nothing_is_said(monkeypatch):
    monkeypatch.setattr(occupancy.shutil, "which", lambda name: None)
    memory = occupancy.Memory()
    memory.look(0.0)
    assert memory.looks == [] and memory.most() == {}
