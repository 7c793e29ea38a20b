from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.processes.stack import Browser, Stack, prepared


@pytest.fixture(scope="module")
def stack(tmp_path_factory) -> Iterator[Stack]:
    """One installation for the tests of a module; each starts runs of its own on it."""
    stack = Stack(prepared(tmp_path_factory.mktemp("stack") / "data")).start()
    yield stack
    stack.stop()


@pytest.fixture(scope="module")
def person(stack) -> Browser:
    return stack.browser()
