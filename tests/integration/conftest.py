from __future__ import annotations

import pytest

from tests.ordering import longest_first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)
