"""The hand-over: requested once, claimed by the right process, and finished once, whichever process dies."""

from __future__ import annotations

import json
import uuid

import pytest
from django.db import connection

from agents.events import NewEvent
from tests.unit.webapp.cast import PROGRAM, SOURCE
from verifier.jobs import AdmitJob, JobResult, StageEvent, VerifyJob
from verifier.source import sha256
from webapp.fleet.models import Device
from webapp.runs import artefacts
from webapp.runs.models import Event, Run, Verification
from webapp.runs.trace.append import append
from webapp.runs.workers import handover
from webapp.runs.workers.handover import Claim, ClaimLost
from webapp.runs.workers.rescue import rescue


@pytest.fixture
def device(db) -> Device:
    return Device.objects.create(worker="w-cpu", kind="cpu", device="cpu", name="CPU", model="cpu", queue="verify.cpu")


def ask(run: Run, key: str = "check#1", job=None) -> uuid.UUID:
    job = job or AdmitJob(task_source=SOURCE)
    return handover.ask(run.pk, job, key=key, span="check", candidate=None, queue="verify.cpu", epoch=run.lease_epoch)


def kinds(run: Run) -> list[str]:
    return list(Event.objects.filter(run=run).order_by("seq").values_list("kind", flat=True))


def queued() -> list[dict]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT args, queue_name FROM procrastinate_jobs WHERE task_name = 'verify' AND status = 'todo' ORDER BY id")
        return [dict(json.loads(args), queue=queue) for args, queue in cursor.fetchall()]


def die(queue: str = "verify.cpu") -> None:
    """Makes a worker take a job and never respond again."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT worker_id FROM procrastinate_register_worker_v1()")
        (worker,) = cursor.fetchone()
        cursor.execute("SELECT id FROM procrastinate_fetch_job_v2(ARRAY[%s]::varchar[], %s)", [queue, worker])
        cursor.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute' WHERE id = %s", [worker])


def test_a_job_carries_an_id_an_attempt_and_an_epoch(run):
    verification = ask(run)
    assert queued() == [{"verification_id": str(verification), "attempt": 1, "epoch": 0, "queue": "verify.cpu"}]


def test_asking_again_under_the_same_key_is_the_same_verification(run):
    assert ask(run) == ask(run)
    assert len(queued()) == 1 and kinds(run) == ["verification.queued"]


def test_the_tier_is_known_from_the_start_and_kept_when_it_is_queued_again(run, device):
    verification = ask(run, job=VerifyJob(task_source=SOURCE, program_source=PROGRAM, tier="quick"))
    row = Verification.objects.get(pk=verification)
    events = Event.objects.filter(run=run, kind="verification.queued").order_by("seq")
    assert row.tier == events[0].payload["tier"] == "quick" and row.status == ""
    handover.verifier_died(handover.Claim(verification, 1, row.lease_epoch))
    assert [event.payload["tier"] for event in events.all()] == ["quick", "quick"] and Verification.objects.get(pk=verification).tier == "quick"


def test_stages_and_verdict(run, device):
    claim = Claim(ask(run), 1, 0)
    job = handover.start(claim, device)
    assert job == AdmitJob(task_source=SOURCE)
    handover.report_stages(claim, [StageEvent(stage="static", status="started")])
    handover.finish(claim, JobResult(error="no compiler", timeline=b"abc"))
    assert kinds(run) == ["verification.queued", "verification.stage", "verification.stage", "verification.finished"]
    row = Verification.objects.get(pk=claim.verification)
    assert (row.state, row.status, row.device) == ("finished", "infrastructure_error", device)
    result = handover.result_of(claim.verification)
    assert result.error == "no compiler" and result.timeline == b"abc"


def test_no_verdict_twice(run, device):
    claim = Claim(ask(run), 1, 0)
    handover.start(claim, device)
    handover.finish(claim, JobResult(error="first"))
    with pytest.raises(ClaimLost):
        handover.finish(claim, JobResult(error="second"))
    assert kinds(run).count("verification.finished") == 1


def test_a_verifier_that_was_given_up_writes_nothing(run, device):
    old = Claim(ask(run), 1, 0)
    handover.start(old, device)
    handover.verifier_died(old)
    for step in (
        lambda: handover.report_stages(old, [StageEvent(stage="build", status="started")]),
        lambda: handover.finish(old, JobResult(error="late")),
        lambda: handover.start(old, device),
    ):
        with pytest.raises(ClaimLost):
            step()
    new = Claim(old.verification, 2, 1)
    handover.start(new, device)
    handover.finish(new, JobResult(error="in time"))
    assert handover.result_of(new.verification).error == "in time"


def test_a_dead_verifier_is_asked_once_more_and_then_it_is_the_hosts_fault(run):
    verification = ask(run)
    die()
    rescue(5)
    assert [(job["attempt"], job["epoch"]) for job in queued()] == [(2, 1)]
    die()
    rescue(5)
    assert queued() == []
    row = Verification.objects.get(pk=verification)
    assert (row.state, row.status) == ("finished", "infrastructure_error")
    assert "died 2 times" in handover.result_of(verification).error
    assert kinds(run).count("verification.finished") == 1


def test_a_living_worker_is_left_alone(run):
    ask(run)
    with connection.cursor() as cursor:
        cursor.execute("SELECT worker_id FROM procrastinate_register_worker_v1()")
        cursor.execute("SELECT id FROM procrastinate_fetch_job_v2(ARRAY['verify.cpu']::varchar[], %s)", [cursor.fetchone()[0]])
    rescue(5)
    assert queued() == [] and kinds(run) == ["verification.queued"]


def test_a_verification_without_a_job_is_queued_again_under_a_new_epoch(run):
    ask(run)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM procrastinate_jobs WHERE task_name = 'verify'")
    rescue(5)
    assert [(job["attempt"], job["epoch"]) for job in queued()] == [(1, 1)]


def test_a_run_without_a_job_is_queued_again_and_a_finished_one_is_not(run):
    assert rescue(5) == 1
    assert rescue(5) == 0
    append(run.pk, [NewEvent(kind="run.finished", payload={"outcome": "cancelled", "reason": "", "best": None, "speedup": None})])
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM procrastinate_jobs")
    assert rescue(5) == 0


def test_the_end_of_a_run_stops_its_verifications(run, device):
    claim = Claim(ask(run), 1, 0)
    append(run.pk, [NewEvent(kind="run.finished", payload={"outcome": "cancelled", "reason": "", "best": None, "speedup": None})])
    assert queued() == []
    with pytest.raises(ClaimLost):
        handover.start(claim, device)
    assert "stopped" in handover.result_of(claim.verification).error


def test_the_request_is_kept_whole(run, device):
    job = VerifyJob(task_source=SOURCE, program_source=PROGRAM, tier="full")
    claim = Claim(ask(run, job=job), 1, 0)
    assert handover.start(claim, device) == job
    request = Verification.objects.get(pk=claim.verification).request
    assert sha256(artefacts.read(request)) == request.sha
