"""Flushes after a test that commits, in a fraction of the usual time: rows are deleted only from the few tables that contain any.

Django's own flush truncates every table, which gives each one a new file, and then recreates content types and permissions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

MADE_BY_MIGRATIONS = ("auth_permission", "django_content_type")  # Django's flush recreates them; here, they are kept unless a test wrote to them


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> Iterator[None]:
    from django.test import TransactionTestCase

    whole = TransactionTestCase._fixture_teardown
    usual: list[tuple] = []

    def flush(case: TransactionTestCase) -> None:
        if _may_leave_triggers_out() and usual == [_counts()]:
            _delete_all_rows()
            return
        whole(case)
        usual[:] = [_counts()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", flush)
        yield


def _may_leave_triggers_out() -> bool:
    """Returns whether triggers may be skipped. They include those of foreign keys, which only a superuser may disable."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        return cursor.fetchone()[0]


def _counts() -> tuple:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"(SELECT count(*) FROM {table}), (SELECT max(id) FROM {table})" for table in MADE_BY_MIGRATIONS))
        return cursor.fetchone()


def _delete_all_rows() -> None:
    from django.db import connection, transaction

    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - set(MADE_BY_MIGRATIONS)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(" UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM \"{table}\")" for table in sorted(tables)))
        for (table,) in cursor.fetchall():
            cursor.execute(f'DELETE FROM "{table}"')
