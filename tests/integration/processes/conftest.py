from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.processes.stack import Browser, Stack, prepared


@pytest.fixture(scope="session")
def stack(tmp_path_factory) -> Iterator[Stack]:
    """Yields one installation for all tests that leave it running. Each test starts its own runs on it, and the processes that it kills are
    restarted."""
    stack = Stack(prepared(tmp_path_factory.mktemp("stack") / "data")).start()
    yield stack
    stack.stop()


@pytest.fixture(scope="session")
def person(stack) -> Browser:
    return stack.browser()
