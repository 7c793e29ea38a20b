"""A missing layer is reported, and without a control group the judge itself does the counting. These tests use a pool in this process, whose builder
imports programs."""

from __future__ import annotations

import time

import pytest

from verifier.confinement import cgroup, landlock, layers, sandbox, spawned
from verifier.devices.cpu import CpuDevice
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool
from verifier.limits import GIB, Limits


@pytest.fixture
def pool(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "version", lambda: "")
    pool = Pool(CpuDevice(tmp_path), Limits(build=40, memory=2 * GIB, processes=30), spares=0)
    yield pool
    pool.close()


def build(pool: Pool, source: str) -> PartyFailure:
    """Returns the failure that ends the builder when it imports `source`."""
    builder = pool.take("builder")
    assert builder.spawned.group is None
    try:
        with pytest.raises(PartyFailure) as caught:
            builder.ask("build", {"source": source, "variables": {}, "artefacts": [], "headers": ""}, 40, max_raw=1 << 20)
        return caught.value
    finally:
        pool.give_back(builder)


def test_a_fork_bomb_is_counted_and_ends(pool):
    pool.limits = Limits(build=40, memory=64 * GIB, processes=30)  # pages shared by parent and child are counted for both
    failure = build(pool, "import os, time\nwhile True:\n    if os.fork() == 0:\n        time.sleep(60)\n    time.sleep(0.002)\n")
    assert failure.kind == "memory" and "more than 30 processes" in failure.message
    time.sleep(0.5)
    assert spawned.survivors() == []


@pytest.mark.slow
def test_memory_past_the_data_limit_is_counted_and_ends(pool, monkeypatch):
    monkeypatch.setattr(pool.device, "kind", "cuda")  # the parties have no limit on data, because CUDA reserves address space
    monkeypatch.setattr(pool.device, "binds", lambda role: [])
    failure = build(pool, "kept = []\nwhile True:\n    kept.append(b'x' * (32 << 20))\n")
    assert failure.kind == "memory" and f"{pool.limits.of_builder().memory / GIB:.1f} GiB of memory" in failure.message


def test_processor_time_is_read_from_the_clocks(pool):
    builder = pool.take("builder")
    try:
        first = builder.spawned.cpu_ns()
        with pytest.raises(PartyFailure):
            builder.ask("build", {"source": "while True: pass\n", "variables": {}, "artefacts": [], "headers": ""}, 2, max_raw=1 << 20)
        assert first is not None and first > 0
    finally:
        pool.give_back(builder)


@pytest.mark.skipif(not landlock.supported(), reason="no Landlock to refuse")
def test_rules_that_the_kernel_refuses_are_said_to_be_missing(pool, monkeypatch):
    genuine = sandbox.rules

    def odd(*rest, **more):
        rules = genuine(*rest, **more)
        return {**rules, "read": [*rules["read"], "/proc/self/ns/user"]}  # not in a file system that Landlock could cover

    monkeypatch.setattr(sandbox, "rules", odd)
    monkeypatch.setattr(layers, "_failed", {})
    assert any(layer.startswith("Landlock") for layer in layers.protection().layers)
    pool.give_back(pool.take("builder"))
    found = layers.protection()
    assert any(layer.startswith("Landlock: the kernel supports it but refused the rules") for layer in found.missing)
    assert not any(layer.startswith("Landlock") for layer in found.layers)
