from __future__ import annotations

import pytest

from tests.unit.webapp.people import People


@pytest.fixture
def people(db) -> People:
    return People.make()
