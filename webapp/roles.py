"""What web, orchestrator and verifier may do in the database: each has a role of its own, and none of them may change a table's shape.

The embedded Postgres makes the roles at its start (`webapp/supervisor/postgres.py`); on a server of your own `manage.py verifier_login` makes the one
of verifiers. `manage.py prepare` grants, after each migration, as new tables are nobody's.
"""

from __future__ import annotations

from django.apps import apps
from django.db import connection, transaction
from psycopg import sql

from webapp.environment import ROLES, role_name

LOCK = 0x73776772  # one grants at a time
MIGRATIONS = "django_migrations"  # to be read by all: whether the tables are those that a process knows
# Apps that orchestrators write.
WORK = ("runs", "tasks", "leaderboard", "review", "notifications", "fleet", "knowledge", "llm", "arena", "diffs", "procrastinate")
PEOPLE = ("accounts_user", "accounts_team", "accounts_membership")  # which an orchestrator reads: who is told of what

# A verifier takes jobs and writes reports, nothing more: no account, session or token, no other event, no outcome of a run.
VERIFIER = {
    **dict.fromkeys(("runs_run", "runs_event", "runs_verification", "runs_candidate", "runs_artefact", "runs_artefactchunk"), "SELECT"),
    **dict.fromkeys(("tasks_task", "tasks_tryout", "diffs_measureddiff", "diffs_measuredhunk", "procrastinate_periodic_defers"), "SELECT"),
    "fleet_device": "SELECT, INSERT, UPDATE",
    "runs_turn": "SELECT, INSERT, UPDATE",  # whose turn it was last (`webapp/runs/workers/fairness.py`)
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
    "UPDATE (job_id) ON procrastinate_periodic_defers",  # by the trigger of a job that is deleted
)
# Rows, where the table alone says too little. The owner of the tables is not asked, nor are roles with BYPASSRLS (web, orchestrator).
VERIFIER_ROWS = {
    "procrastinate_jobs": ("ALL", "USING (queue_name LIKE 'verify.%')"),
    "runs_event": ("INSERT", "WITH CHECK (kind LIKE 'verification.%')"),
}


def grant() -> None:
    """To those of the roles that the server has, in one transaction; the connection is the owner's."""
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


def _rows(cursor) -> None:
    """Policies are made once: making one waits for everybody who uses the table."""
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
    """Makes the role on a server of your own, or gives it another password. The connection needs CREATEROLE."""
    name = sql.Identifier(role_name(role))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role_name(role)])
        verb = sql.SQL("ALTER" if cursor.fetchone() else "CREATE")
        cursor.execute(sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, name, sql.Literal(password)))
