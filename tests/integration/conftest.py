from __future__ import annotations

import pytest

from tests.emptied import quick_flush  # noqa: F401
from tests.installation import prepared_database
from tests.ordering import longest_first

django_db_modify_db_settings = prepared_database


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)
