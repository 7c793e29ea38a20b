"""Control groups for parties if this host allows them; otherwise, a message that names what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from verifier.confinement import cgroup, layers, spawned

here = pytest.mark.skipif(not cgroup.version(), reason="no cgroup with limits can be made on this host")


@pytest.fixture
def group():
    made = cgroup.Cgroup.create(cgroup.version(), 256 << 20, 20)
    yield made
    made.kill()
    made.remove()


def inside(group, source: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", source], preexec_fn=group.enter, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@here
def test_memory_ends_at_its_limit(group):
    process = inside(group, "b = bytearray(1)\nwhile True: b += bytearray(16 << 20)")
    assert process.wait(60) == -9
    assert group.out_of_memory()
    assert group.peak_bytes() > 200 << 20


@here
def test_processes_end_at_their_limit_and_all_die(group):
    source = "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\n"
    process = inside(group, source + "except OSError: print(n, flush=True)\ntime.sleep(60)")
    assert int(process.stdout.readline()) == 19
    assert len(group.pids()) == 20
    group.kill()
    process.wait(10)
    deadline = time.monotonic() + 5
    while group.pids() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert group.pids() == [] and group.remove()


@here
def test_processor_time_of_children_counts(group):
    if group.cpu_ns() is None:
        pytest.skip("no accounting of processor time")
    before = group.cpu_ns()
    inside(group, "import os\npid = os.fork()\nif pid == 0:\n    for _ in range(10**7): pass\nelse: os.wait()").wait(60)
    assert group.cpu_ns() - before > 10_000_000


@pytest.mark.slow
def test_processor_time_without_a_group():
    class Without:
        group = None
        process = subprocess.Popen([sys.executable, "-c", "import os\nos.fork()\nwhile True: pass"])

    try:
        time.sleep(1)
        first = spawned.Spawned.cpu_ns(Without)
        time.sleep(0.5)
        assert spawned.Spawned.cpu_ns(Without) > first > 0
        assert len(spawned.family_of(Without.process.pid)) == 2
    finally:
        for pid in reversed(spawned.family_of(Without.process.pid)):
            os.kill(pid, 9)
        Without.process.wait()


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(cgroup, "version", lambda: "")
    found = layers.protection()
    assert any("cgroup" in layer and ("Delegate=yes" in layer or "writable" in layer) for layer in found.missing)
    assert "memory and processes counted by the judge" in found.layers


def test_a_layer_that_a_party_could_not_put_on_is_missing(monkeypatch):
    monkeypatch.setattr(layers, "_failed", {})
    monkeypatch.setattr(layers.landlock, "supported", lambda: True)
    assert any(layer.startswith("Landlock") for layer in layers.protection().layers)
    layers.layer_failed("landlock", "EINVAL")
    found = layers.protection()
    assert not any(layer.startswith("Landlock") for layer in found.layers)
    assert any("refused the rules (EINVAL)" in layer for layer in found.missing)


def test_a_process_that_does_not_die_is_remembered(monkeypatch):
    """Uses a stand-in for a process that a driver keeps alive: it runs, and the test never kills it."""
    monkeypatch.setattr(spawned, "_unkillable", {os.getpid(), 2**22 + 1})
    assert spawned.survivors() == [os.getpid()]
