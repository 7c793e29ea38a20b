"""One world for a whole file: each request runs in a savepoint that is then rolled back."""

from __future__ import annotations

import pytest
from django.db import transaction

from tests.unit.webapp.isolation.tried import sign_in
from tests.unit.webapp.isolation.world import World, make_world


@pytest.fixture(scope="module")
def world(django_db_setup, django_db_blocker) -> World:
    with django_db_blocker.unblock(), transaction.atomic():
        made = make_world()
        for user in (*made.people.values(), *made.strangers.values()):
            sign_in(user)
        yield made
        made.clear()
        transaction.set_rollback(True)
