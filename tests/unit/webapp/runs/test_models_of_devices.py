"""A run on any GPU stays with the GPU model of its first job, and its jobs go to any free verifier with that model."""

from __future__ import annotations

import pytest
from django.utils import timezone

from tests.unit.webapp.cast import PROGRAM, SOURCE
from verifier.jobs import AdmitJob, VerifyJob
from webapp.fleet.choices import waiting_by_queue
from webapp.fleet.models import Device
from webapp.runs.jobs import named, queue_for, queues_of
from webapp.runs.models import Run, Verification
from webapp.runs.workers import handover
from webapp.runs.workers.handover import Claim
from webapp.runs.workers.journal import DatabaseJournal
from webapp.runs.workers.standing import standing_of
from webapp.runs.workers.verifier_port import QueuedVerifier, model_met

VERIFY = VerifyJob(task_source=SOURCE, program_source=PROGRAM, tier="quick")


def gpu(index: int, model: str) -> Device:
    known = {"kind": "cuda", "device": f"cuda:{index}", "name": model, "model": model, "queue": "verify.cuda", "heartbeat_at": timezone.now()}
    return Device.objects.create(worker=f"w-{index}", **known)


def port(run: Run, device: str = "cuda") -> QueuedVerifier:
    return QueuedVerifier(DatabaseJournal(run.pk, run.team_id, run.lease_epoch), device)


def test_a_verifier_listens_for_itself_its_kind_and_its_model():
    assert queues_of("cuda:1", "NVIDIA H100 80GB HBM3") == ["verify.cuda:1", "verify.cuda", "verify.cuda:model-nvidia-h100-80gb-hbm3"]
    assert queue_for("cuda", "NVIDIA H100 80GB HBM3") in queues_of("cuda:0", "NVIDIA H100 80GB HBM3")
    assert queue_for("cuda", "NVIDIA H200") not in queues_of("cuda:0", "NVIDIA H100 80GB HBM3")
    assert not any(named(model).isdigit() for model in ("1", "cuda:1", ""))


@pytest.mark.django_db
def test_after_its_first_job_a_run_waits_for_that_model_alone(run):
    one, other = gpu(0, "NVIDIA H100"), gpu(1, "NVIDIA H200")
    assert port(run)._queue(run.pk) == "verify.cuda" and model_met(run.pk) == ""
    verification = handover.ask(run.pk, AdmitJob(task_source=SOURCE), key="admit#1", span="admit", candidate=None, queue="verify.cuda", epoch=0)
    handover.start(Claim(verification, 1, 0), other)
    assert port(run)._queue(run.pk) == "verify.cuda:model-nvidia-h200"
    assert port(run, "cuda:0")._queue(run.pk) == "verify.cuda:0", "who names a device gets that one"
    assert port(run)._describe()["device_model"] == "NVIDIA H200" and one.model != other.model


@pytest.mark.django_db
def test_what_a_fork_inherits_says_the_model_too(run):
    Verification.objects.create(run=run, team=run.team, key="k", kind="verify", queue="", state="finished", device_model="NVIDIA H100")
    assert port(run)._queue(run.pk) == "verify.cuda:model-nvidia-h100"


@pytest.mark.django_db
def test_who_waits_for_a_model_counts_with_its_kind_and_sees_its_own_verifiers(run):
    gpu(0, "NVIDIA H100")
    gpu(1, "NVIDIA H100")
    gpu(2, "NVIDIA H200")
    Run.objects.filter(pk=run.pk).update(state="running", device_kind="cuda")
    run.refresh_from_db()
    handover.ask(run.pk, VERIFY, key="a#1", span="a", candidate=None, queue=queue_for("cuda", "NVIDIA H100"), epoch=0)
    handover.ask(run.pk, VERIFY, key="b#1", span="b", candidate=None, queue="verify.cuda:2", epoch=0)
    assert waiting_by_queue() == {"verify.cuda": 2}
    assert standing_of(run).online == 2
