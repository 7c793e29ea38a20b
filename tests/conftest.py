"""Provides the tests with a database: a copy of one that is migrated once for all of them."""

from __future__ import annotations

import gc
import os

import pytest

from tests import touched
from tests.emptied import quick_flush  # noqa: F401
from tests.installation import prepared_database
from tests.served import until_at_rest

django_db_modify_db_settings = prepared_database

os.environ.setdefault("STITCH_MOST_PREEMPTED", "1")  # tests run side by side, so every host is busy; the effects of a busy host have their own tests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--touched", action="store_true", help="leave out the tests that guard nothing that the commit touched (tests/touched.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--touched"):
        touched.leave_out(config, items)


def pytest_report_header(config: pytest.Config) -> str | None:
    return touched.header() if config.getoption("--touched") else None


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A phase in which nothing changed has no tests to run; this is not a failure."""
    if session.config.getoption("--touched") and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_finish() -> None:
    """Freezes everything imported so far, so that the garbage collector need not scan PyTorch's modules again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """Closes connections that asynchronous tests left open in their threads; otherwise, the database could not be dropped."""
    yield
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")


@pytest.fixture
def transactional_db(transactional_db):
    """Flushes once no server is running a query."""
    yield
    until_at_rest()
