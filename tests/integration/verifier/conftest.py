"""One verifier for all tests of this folder."""

from __future__ import annotations

import pytest
from verifier_bench import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("verifier"))
    yield bench
    bench.wait(bench.verifier.close())
    bench.loop.close()
