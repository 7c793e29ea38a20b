"""Verifiers, and a process that forks parties, for all tests in this folder: there is one of each per worker, which runs all tests in a file (`--dist
loadfile`)."""

from __future__ import annotations

import dataclasses

import pytest
from forked import Nursery
from verifier_bench import LIMITS, PLANTED, Bench, Quick


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("verifier"))
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def open_bench(tmp_path_factory):
    """Yields a verifier without the static stage, so that only the sandbox separates sources from the host. When the judge started, its client's
    environment contained secrets."""
    bench = Bench(tmp_path_factory.mktemp("open"), limits=dataclasses.replace(LIMITS, call=30), without_static=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", PLANTED)
        patch.setenv("STITCH_SECRET", PLANTED)
        bench.wait(bench.verifier.ready())
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def quick(tmp_path_factory, nursery):
    quick = Quick(tmp_path_factory.mktemp("quick"), nursery)
    yield quick
    quick.close()
