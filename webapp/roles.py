"""Grants database privileges to the web, orchestrator and verifier processes. Each has its own role, and no role can change a table's schema.

The embedded Postgres creates the roles at start-up (`webapp/supervisor/postgres.py`). On your own server, `manage.py verifier_login` creates the
verifiers' role. `manage.py prepare` grants privileges after each migration, because new tables have none.
"""

from __future__ import annotations

from django.apps import apps
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg import sql

from webapp.environment import ROLES, role_name

LOCK = 0x73776772  # lock key, so that only one process grants privileges at a time
MIGRATIONS = "django_migrations"  # every role may read this table, to check whether its code matches the current schema
# Apps whose tables orchestrators may write to.
WORK = ("runs", "tasks", "leaderboard", "review", "notifications", "fleet", "knowledge", "llm", "arena", "diffs", "procrastinate")
PEOPLE = ("accounts_user", "accounts_team", "accounts_membership")  # an orchestrator reads these to find out whom to notify

# A verifier only takes jobs and writes reports. It cannot see accounts, sessions or tokens, write other events, or set the outcome of a run.
VERIFIER = {
    **dict.fromkeys(("runs_run", "runs_event", "runs_verification", "runs_candidate", "runs_artefact", "runs_artefactchunk"), "SELECT"),
    **dict.fromkeys(("tasks_task", "tasks_tryout", "diffs_measureddiff", "diffs_measuredhunk", "procrastinate_periodic_defers"), "SELECT"),
    "fleet_device": "SELECT, INSERT, UPDATE",
    "runs_turn": "SELECT, INSERT, UPDATE",  # when each owner last had a turn (`webapp/runs/workers/fairness.py`)
    "procrastinate_workers": "SELECT, INSERT, UPDATE, DELETE",
    "procrastinate_jobs": "SELECT, UPDATE, DELETE",
    "procrastinate_events": "SELECT, INSERT",
}
VERIFIER_ALSO = (
    "INSERT ON runs_event, runs_artefact, runs_artefactchunk",
    "UPDATE (last_seq) ON runs_run",
    "UPDATE (verification_id) ON runs_candidate",
    "UPDATE (device_name) ON diffs_measureddiff",
    "UPDATE ON runs_verification, tasks_tryout, diffs_measuredhunk",
    "UPDATE (job_id) ON procrastinate_periodic_defers",  # needed by the trigger on deleted jobs
)
# Row policies for cases in which table privileges are too coarse. They don't apply to the owner of the tables or to roles with BYPASSRLS (web,
# orchestrator).
VERIFIER_ROWS = {
    "procrastinate_jobs": ("ALL", "USING (queue_name LIKE 'verify.%')"),
    "runs_event": ("INSERT", "WITH CHECK (kind LIKE 'verification.%')"),
}


def grant() -> None:
    """Grants privileges to all roles that exist on the server, in one transaction. The connection must belong to the tables' owner."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [[role_name(role) for role in ROLES]])
        known = {name for (name,) in cursor.fetchall()}
        for role in ROLES:
            if role_name(role) in known:
                for statement in [*_none(role), *STATEMENTS[role]()]:
                    cursor.execute(statement)
        if role_name("verifier") in known:
            _rows(cursor)


def _none(role: str) -> list[str]:
    name = role_name(role)
    return [f"REVOKE ALL ON ALL {kind} IN SCHEMA public FROM {name}" for kind in ("TABLES", "SEQUENCES")] + [
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name}",
        f"GRANT SELECT ON {MIGRATIONS} TO {name}",
    ]


def _web() -> list[str]:
    name = role_name("web")
    return [
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}",
        f"REVOKE INSERT, UPDATE, DELETE ON {MIGRATIONS} FROM {name}",
    ]


def _orchestrator() -> list[str]:
    name = role_name("orchestrator")
    written = [model._meta.db_table for app in WORK for model in apps.get_app_config(app).get_models(include_auto_created=True)]
    return [f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(written)} TO {name}", f"GRANT SELECT ON {', '.join(PEOPLE)} TO {name}"]


def _verifier() -> list[str]:
    name = role_name("verifier")
    granted = [*(f"{rights} ON {table}" for table, rights in VERIFIER.items()), *VERIFIER_ALSO]
    return [f"GRANT {what} TO {name}" for what in granted]


STATEMENTS = {"web": _web, "orchestrator": _orchestrator, "verifier": _verifier}


def _rows(cursor: CursorWrapper) -> None:
    """Creates a policy only if it is missing, because creating one has to wait for everybody who is using the table."""
    name = role_name("verifier")
    for table, (command, rule) in VERIFIER_ROWS.items():
        cursor.execute("SELECT count(*) FROM pg_policies WHERE schemaname = 'public' AND tablename = %s AND policyname LIKE 'stitchwork%%'", [table])
        if cursor.fetchone()[0] == 2:
            continue
        for policy in ("stitchwork", "stitchwork_verifier"):
            cursor.execute(f"DROP POLICY IF EXISTS {policy} ON {table}")
        cursor.execute(f"CREATE POLICY stitchwork ON {table} USING (true) WITH CHECK (true)")
        cursor.execute(f"CREATE POLICY stitchwork_verifier ON {table} AS RESTRICTIVE FOR {command} TO {name} {rule}")
        cursor.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")


def log_in(role: str, password: str) -> None:
    """Creates the role on your own server, or changes its password. The connection needs CREATEROLE."""
    name = sql.Identifier(role_name(role))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role_name(role)])
        verb = sql.SQL("ALTER" if cursor.fetchone() else "CREATE")
        cursor.execute(sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, name, sql.Literal(password)))
