"""Least privilege: what web, orchestrator and verifier may do in the database, with Postgres's own reason for each refusal."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from agents.events import NewEvent
from tests.unit.webapp.cast import make_run
from verifier.jobs import AdmitJob, JobResult, StageEvent
from webapp import roles
from webapp.environment import ROLES, ROOT, role_name
from webapp.fleet.management.commands.verifier import unknown_migrations
from webapp.fleet.management.commands.verifier_login import as_role
from webapp.fleet.models import Device
from webapp.runs.jobs import enqueue_run
from webapp.runs.models import Event, Verification
from webapp.runs.trace.append import append
from webapp.runs.workers import handover
from webapp.runs.workers.handover import Claim
from webapp.supervisor.stack import Stack, StackError

TASK = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


@pytest.fixture
def granted(db):
    with connection.cursor() as cursor:
        for role in ROLES:
            cursor.execute(f"DO 'BEGIN CREATE ROLE {role_name(role)} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END'")
    roles.grant()


@contextlib.contextmanager
def being(role: str):
    """Runs everything over the tests' connection in this role."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION AUTHORIZATION DEFAULT")
        cursor.execute(f"SET ROLE {role_name(role)}")
        try:
            yield cursor
        finally:
            connection.cursor().execute("RESET ROLE")


def refusal(role: str, statement: str) -> str:
    with pytest.raises(DatabaseError) as caught, being(role) as cursor, transaction.atomic():
        cursor.execute(statement)
    return str(caught.value).splitlines()[0]


DENIED = [
    ("verifier", "SELECT password FROM accounts_user", "permission denied for table accounts_user"),
    ("verifier", "SELECT * FROM django_session", "permission denied for table django_session"),
    ("verifier", "SELECT * FROM accounts_apitoken", "permission denied for table accounts_apitoken"),
    ("verifier", "SELECT * FROM accounts_signinlink", "permission denied for table accounts_signinlink"),
    ("verifier", "UPDATE runs_run SET outcome = 'improved'", "permission denied for table runs_run"),
    ("verifier", "DELETE FROM runs_event", "permission denied for table runs_event"),
    ("verifier", "UPDATE runs_event SET payload = '{}'", "permission denied for table runs_event"),
    ("verifier", "UPDATE runs_artefactchunk SET data = ''", "permission denied for table runs_artefactchunk"),
    ("verifier", "UPDATE leaderboard_result SET confirmed = true", "permission denied for table leaderboard_result"),
    (
        "verifier",
        "INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('verify.cpu', 'x')",
        "permission denied for table procrastinate_jobs",
    ),
    ("verifier", "CREATE TABLE mine (n int)", "permission denied for schema public"),
    ("verifier", "COPY (SELECT 1) TO PROGRAM 'true'", "permission denied to COPY to or from an external program"),
    ("verifier", "SELECT pg_read_file('/etc/passwd')", "permission denied for function pg_read_file"),
    ("orchestrator", "SELECT * FROM django_session", "permission denied for table django_session"),
    ("orchestrator", "SELECT * FROM accounts_apitoken", "permission denied for table accounts_apitoken"),
    ("orchestrator", "SELECT * FROM mfa_authenticator", "permission denied for table mfa_authenticator"),
    ("orchestrator", "UPDATE accounts_user SET is_superuser = true", "permission denied for table accounts_user"),
    ("orchestrator", "INSERT INTO accounts_membership DEFAULT VALUES", "permission denied for table accounts_membership"),
    ("orchestrator", "COPY (SELECT 1) TO PROGRAM 'true'", "permission denied to COPY to or from an external program"),
    ("web", "DROP TABLE runs_event", "must be owner of table runs_event"),
    ("web", "ALTER TABLE runs_event ADD n int", "must be owner of table runs_event"),
    ("web", "DELETE FROM django_migrations", "permission denied for table django_migrations"),
    ("web", "CREATE ROLE another", "permission denied to create role"),
    ("web", "COPY (SELECT 1) TO PROGRAM 'true'", "permission denied to COPY to or from an external program"),
]


def test_what_no_role_may(granted):
    found = {(role, statement): refusal(role, statement) for role, statement, _ in DENIED}
    assert found == {(role, statement): reason for role, statement, reason in DENIED}


@pytest.fixture
def asked(granted, people):
    """Creates a run with one pending verification, as an orchestrator leaves it."""
    run = make_run(people.alice, state="running")
    enqueue_run(run.pk)
    with being("orchestrator"):
        key = handover.ask(run.pk, AdmitJob(task_source=TASK), key="k", span="s", candidate=None, queue="verify.cpu", epoch=run.lease_epoch)
    return run, Verification.objects.get(pk=key)


def test_a_verifier_takes_a_job_and_writes_its_report(asked):
    run, row = asked
    claim = Claim(row.pk, row.attempt, row.lease_epoch)
    with being("verifier"):
        device = Device.objects.create(worker="w", kind="cpu", device="cpu", name="CPU", model="cpu", queue="verify.cpu")
        assert handover.start(claim, device).kind == "admit"
        handover.report_stages(claim, [StageEvent(stage="admit", status="progress")])
        handover.finish(claim, JobResult(error="no", timeline=b"timeline"))
    row.refresh_from_db()
    assert row.state == "finished" and row.device_id == device.pk and row.result is not None


def test_a_verifier_writes_no_event_of_another_kind(asked):
    run, _ = asked
    for kind in ("run.finished", "decision.made", "candidate.proposed"):
        with (
            pytest.raises(DatabaseError, match='new row violates row-level security policy "stitchwork_verifier" for table "runs_event"'),
            being("verifier"),
        ):
            append(run.pk, [NewEvent(kind=kind, span="s", agent="verifier", payload={})])
    assert not Event.objects.filter(run=run, kind="run.finished").exists()


def test_a_verifier_sees_the_jobs_of_verifiers_alone(asked):
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT queue_name) FROM procrastinate_jobs")
        assert cursor.fetchone() == (2,)
    with being("verifier") as cursor:
        cursor.execute("SELECT DISTINCT queue_name FROM procrastinate_jobs")
        assert cursor.fetchall() == [("verify.cpu",)]
        cursor.execute("DELETE FROM procrastinate_jobs WHERE queue_name = 'orchestrator'")
        assert cursor.rowcount == 0


def test_a_verifier_lives_as_a_worker_of_the_queue(asked):
    with being("verifier") as cursor:
        cursor.execute("SELECT * FROM procrastinate_register_worker_v1()")
        (worker,) = cursor.fetchone()
        cursor.execute("SELECT procrastinate_update_heartbeat_v1(%s)", [worker])
        cursor.execute("SELECT * FROM procrastinate_prune_stalled_workers_v1(30)")
        cursor.execute("SELECT id FROM procrastinate_fetch_job_v2(ARRAY['verify.cpu']::varchar[], %s)", [worker])
        (job,) = cursor.fetchone()
        cursor.execute("SELECT procrastinate_finish_job_v1(%s, 'succeeded', true)", [job])
        cursor.execute("SELECT procrastinate_unregister_worker_v1(%s)", [worker])
        cursor.execute("SELECT id FROM procrastinate_fetch_job_v2(ARRAY['orchestrator']::varchar[], %s)", [worker])
        assert cursor.fetchone() == (None,)


def test_a_verifier_hands_no_job_to_an_orchestrator(asked):
    said = refusal("verifier", "UPDATE procrastinate_jobs SET queue_name = 'orchestrator', task_name = 'run_workflow'")
    assert said == 'new row violates row-level security policy "stitchwork_verifier" for table "procrastinate_jobs"'


def test_grants_may_be_made_again(granted):
    roles.grant()


def settings_of(role: str, tmp_path, **environment: str) -> dict:
    code = (
        "import json; from django.conf import settings as s; d = s.DATABASES['default'];"
        "print(json.dumps([d['USER'], s.SECRET_KEY, s.EMAIL_HOST, s.EMAIL_HOST_PASSWORD]))"
    )
    kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    given = kept | {"DATA_DIR": str(tmp_path), "STITCHWORK_ROLE": role, "DJANGO_SETTINGS_MODULE": "webapp.settings", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=given, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(zip(("user", "key", "mail", "password"), json.loads(done.stdout), strict=True))


PLANTED = {"SECRET_KEY": "planted-key", "EMAIL_HOST": "mail", "EMAIL_PASSWORD": "planted-password"}


def test_each_process_is_itself_in_the_database(tmp_path):
    assert settings_of("web", tmp_path, **PLANTED) == {"user": "stitchwork_web", "key": "planted-key", "mail": "mail", "password": "planted-password"}


def test_a_verifier_has_neither_the_key_of_pages_nor_a_password_of_mail(tmp_path):
    found = settings_of("verifier", tmp_path, **PLANTED)
    assert found["user"] == "stitchwork_verifier" and "planted" not in str(found) and found["mail"] == ""
    assert not (tmp_path / "secret_key").exists()


def test_the_supervisor_keeps_secrets_from_verifiers(tmp_path, monkeypatch):
    for name, secret in (PLANTED | {"OPENAI_API_KEY": "planted"}).items():
        monkeypatch.setenv(name, secret)
    stack = Stack(tmp_path, port=1, host="127.0.0.1", only=["web", "orchestrator", "verifier"], debug=False)
    assert "planted" not in str(stack._environment_of("verifier-cuda-0").values())
    assert stack._environment_of("verifier-cuda-0")["STITCHWORK_ROLE"] == "verifier"
    assert stack._environment_of("web")["SECRET_KEY"] == "planted-key"


def test_a_gpu_host_needs_a_role_on_the_database_of_the_pages(tmp_path, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    stack = Stack(tmp_path / "data", port=1, host="127.0.0.1", only=["verifier"], debug=False)
    with pytest.raises(StackError, match="verifiers alone need DATABASE_URL: `manage.py verifier_login`"):
        stack.run()
    assert not (tmp_path / "data").exists()


def test_a_gpu_host_signs_nobody_in_and_makes_no_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DATABASE_URL", "postgresql://stitchwork_verifier:x@127.0.0.1:1/none")
    stack = Stack(tmp_path / "data", port=1, host="127.0.0.1", only=["verifier"], debug=False)
    monkeypatch.setattr(stack, "_prepare", lambda: pytest.fail("it migrates"))
    monkeypatch.setattr(stack, "_start", lambda child: stack.request_stop())
    stack.run()
    assert capsys.readouterr().out.startswith("ready: verifier-") and "sign-in" not in capsys.readouterr().out


def test_the_url_of_a_verifier_names_the_same_database():
    assert (
        as_role("postgresql://owner:secret@db.example:5433/x?sslmode=require", "v", "p/w") == "postgresql://v:p%2Fw@db.example:5433/x?sslmode=require"
    )


def test_a_verifier_elsewhere_waits_for_the_tables_of_its_version(granted, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere")
    with being("verifier"):
        assert unknown_migrations() == 0
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'runs' AND name = '0002_append'")
    with being("verifier"), pytest.raises(CommandError, match=r"lacks tables of this version \(1 migrations\): a verifier creates none"):
        call_command("verifier", device="cpu")


def test_the_login_of_verifiers(granted, monkeypatch, capsys):
    monkeypatch.setenv("DATABASE_URL", "postgresql://owner:secret@db/x")
    call_command("verifier_login")
    printed = capsys.readouterr().out
    assert printed.startswith("postgresql://stitchwork_verifier:") and printed.endswith("@db/x\n") and "secret" not in printed
    monkeypatch.delenv("DATABASE_URL")
    with pytest.raises(CommandError, match="the embedded Postgres listens to this machine alone"):
        call_command("verifier_login")
