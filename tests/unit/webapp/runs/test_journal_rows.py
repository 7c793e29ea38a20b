"""The engine's two ports, implemented over Postgres: journal and verifier."""

from __future__ import annotations

import asyncio
import uuid

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.db import OperationalError

from agents.events import NewEvent
from agents.ports import LeaseLost
from tests.unit.webapp.cast import SOURCE, make_run, make_user
from verifier.jobs import AdmitJob, JobResult
from webapp.fleet.models import Device
from webapp.runs.live.hub import hub
from webapp.runs.models import Event, Verification
from webapp.runs.workers import handover, journal
from webapp.runs.workers.handover import Claim
from webapp.runs.workers.journal import DatabaseJournal, take_lease
from webapp.runs.workers.verifier_port import QueuedVerifier

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
NOTE = NewEvent(kind="note.added", payload={"text": "hello"})


@pytest_asyncio.fixture(autouse=True)
async def closed_hub():
    yield
    await hub().close()


@sync_to_async
def leased() -> DatabaseJournal:
    run = take_lease(make_run(make_user()).pk)
    return DatabaseJournal(run.pk, run.team_id, run.lease_epoch)


async def test_what_is_appended_is_loaded():
    trace = await leased()
    written = await trace.append([NOTE, NOTE])
    assert await trace.load() == written
    assert await trace.since(1) == written[1:]


async def test_a_new_lease_ends_the_old_one():
    old = await leased()
    await old.append([NOTE])
    run = await sync_to_async(take_lease)(uuid.UUID(old.run))
    new = DatabaseJournal(run.pk, run.team_id, run.lease_epoch)
    with pytest.raises(LeaseLost):
        await old.append([NOTE])
    assert [event.seq for event in await new.append([NOTE])] == [2]


async def test_no_lease_on_a_finished_run():
    trace = await leased()
    await trace.append([NewEvent(kind="run.finished", payload={"outcome": "failed", "reason": "", "best": None, "speedup": None})])
    assert await sync_to_async(take_lease)(uuid.UUID(trace.run)) is None


async def test_a_lost_database_is_a_lost_lease(monkeypatch):
    trace = await leased()

    def gone(*arguments, **named):
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(journal, "append", gone)
    with pytest.raises(LeaseLost, match="went away"):
        await trace.append([NOTE])


async def test_wakeups_come_from_other_writers():
    trace = await leased()
    wakeups = trace.wakeups()
    await anext(wakeups)
    other = asyncio.create_task(anext(wakeups))
    await asyncio.sleep(0.1)
    await trace.append([NOTE])
    await asyncio.wait_for(other, 5)
    await wakeups.aclose()


async def test_artefacts_of_a_run():
    trace = await leased()
    ref = await trace.put(b"bytes", "text/plain", "name.txt")
    assert await trace.get(ref.sha) == b"bytes" and ref.bytes == 5


async def test_a_verification_is_waited_for_and_never_asked_twice():
    trace = await leased()
    port = QueuedVerifier(trace, "cpu")
    asked = asyncio.create_task(port.run(AdmitJob(task_source=SOURCE), key="admit#1", span="admit"))
    while not await Verification.objects.aexists():
        await asyncio.sleep(0.02)
    row = await Verification.objects.aget()
    assert row.queue == "verify.cpu"
    device = await Device.objects.acreate(worker="w", kind="cpu", device="cpu", name="CPU", model="cpu", queue="verify.cpu")
    claim = Claim(row.pk, 1, 0)
    await sync_to_async(handover.start)(claim, device)
    await sync_to_async(handover.finish)(claim, JobResult(error="no", timeline=b"t"))
    first = await asyncio.wait_for(asked, 5)
    again = await port.run(AdmitJob(task_source=SOURCE), key="admit#1", span="admit")
    assert first == again and (again.error, again.timeline) == ("no", b"t")
    assert await Event.objects.filter(kind="verification.queued").acount() == 1
    assert (await port.describe())["device_name"] == "CPU"
