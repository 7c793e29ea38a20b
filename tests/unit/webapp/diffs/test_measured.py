"""Requesting the effect of each hunk, with a verifier whose answers are set here: who may request it, and what the pages show."""

from __future__ import annotations

import asyncio

import pytest
from django.db import connection
from django.urls import reverse

from tests.unit.webapp.diffs.programs import measured_run
from verifier.jobs import JobResult, StageEvent, VerifyJob
from verifier.report import Comparison, Interval, Report, Timing
from webapp.diffs import measuring, rescue
from webapp.diffs.effects import effect_of, percent
from webapp.diffs.models import MeasuredDiff, MeasuredHunk
from webapp.runs.models import Run

ENVIRONMENT = {"device": "cpu", "device_name": "Example CPU", "device_model": "cpu", "torch": "2", "python": "3", "compiler": "g++"}


@pytest.fixture
def run(people) -> Run:
    return measured_run(people.alice)


def url(run: Run, name: str = "measure", sides: str = "1...2") -> str:
    return reverse(f"diffs:{name}", args=[run.pk, sides])


def answer(job: VerifyJob, speedup: tuple[float, float, float] | None, status: str = "passed", message: str = "") -> JobResult:
    timing = None
    if speedup:
        ratio, low, high = speedup
        sample = {"program_ms": 1.0, "baseline_ms": ratio, "blocks": 1, "program_samples_ms": [[1.0]], "baseline_samples_ms": [[ratio]]}
        comparison = Comparison(baseline="eager", speedup=Interval(ratio=2, low=1.9, high=2.1), **sample)
        rival = Comparison(baseline="rival", speedup=Interval(ratio=ratio, low=low, high=high), **sample)
        timing = Timing(program_ms=1.0, bounded=False, clock_agrees=True, round_trip_ms=0.1, comparisons=[comparison], rival=rival)
    return JobResult(
        report=Report(
            task="t", program="p", tier=job.tier, precision=job.precision, mode=job.mode, status=status, message=message,
            environment=ENVIRONMENT, protection={"sandbox": "process", "layers": []}, timing=timing,
        )
    )  # fmt: skip


class Canned:
    """A verifier's client that reports that removing the wasted work made the program fast, that the copy does not matter, and that the rest is
    wrong."""

    def __init__(self):
        self.jobs: list[VerifyJob] = []

    async def run(self, job: VerifyJob, on_stage) -> JobResult:
        self.jobs.append(job)
        await on_stage(StageEvent(stage="timing", status="started"))
        if "range(40)" in job.program_source:
            return answer(job, (1 / 1.12, 1 / 1.15, 1 / 1.09))
        if "clone" in job.program_source:
            return answer(job, (0.99, 0.97, 1.02))
        return answer(job, None, "wrong_result", "task inputs 1: out[0] differs")


def measure_all(client: Canned) -> None:
    for row in MeasuredHunk.objects.filter(state="queued"):
        asyncio.run(measuring.execute(client, None, row.pk, row.attempt))


def queued(state: str) -> list[tuple[str, int]]:
    """Returns the jobs waiting for hunks in this state; other tests leave jobs for other hunks behind."""
    hunks = list(MeasuredHunk.objects.filter(state=state).values_list("pk", flat=True))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT queue_name, priority FROM procrastinate_jobs WHERE task_name = 'measure_hunk' AND status = 'todo'"
            " AND (args ->> 'hunk_id')::bigint = ANY(%s)",
            [hunks],
        )
        return cursor.fetchall()


def test_the_plan_says_what_it_would_take(people, run):
    page = people.client("alice").get(url(run)).content.decode()
    assert "Measure 3 of 5 hunks" in page and "4 jobs of" in page
    assert "only comments, documentation or white space differ" in page and "nothing sets self.dimension" in page
    assert "No verifier for cpu is online" in page and "a guess" in page
    assert not MeasuredDiff.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_each_hunk_is_measured_and_stands_at_its_head(people, run):
    client = people.client("alice")
    started = client.post(url(run), {"tier": "quick"}).content.decode()
    assert "2 of 6 done" in started and "hx-trigger" in started
    assert queued("queued") == [("verify.cpu", -10)] * 4, "behind what runs wait for"
    canned = Canned()
    measure_all(canned)
    assert {job.tier for job in canned.jobs} == {"quick"} and all("self.dimension" in job.rival_source for job in canned.jobs)
    measured = MeasuredDiff.objects.get()
    said = {row.number: effect_of(row).text for row in measured.hunks.all()}
    assert said[0] == "+12 % [+9.0, +15] in the older program"
    assert said[1] == "no effect"
    assert said[2].startswith("cannot be reverted alone: uses what only")
    assert said[3] == "+12 % [+9.0, +15] without this hunk"
    assert said[4].startswith("no effect: +1.0 % [−2.0, +3.1]")
    assert said[5] == "cannot be reverted alone: wrong result"
    shown = client.get(reverse("diffs:measured", args=[run.pk, measured.pk])).content.decode()
    assert "6 of 6 done" in shown and "hx-trigger" not in shown and "out[0] differs" in shown
    page = client.get(reverse("diffs:diff", args=[run.pk, "1...2"])).content.decode()
    assert 'data-hunk-head="3"' in page and "+12 % [+9.0, +15] without this hunk" in page


@pytest.mark.django_db(transaction=True)
def test_results_are_kept_and_what_was_cancelled_can_be_measured_later(people, run):
    client = people.client("bob")
    client.post(url(run), {"tier": "quick"})
    canned = Canned()
    first = MeasuredHunk.objects.filter(state="queued").first()
    asyncio.run(measuring.execute(canned, None, first.pk, first.attempt))
    measured = MeasuredDiff.objects.get()
    answered = client.post(reverse("diffs:cancel", args=[run.pk, measured.pk]))
    assert answered.status_code == 200, answered.content.decode()
    assert queued("cancelled") == [] and measured.hunks.filter(state="cancelled").count() == 3
    late = measured.hunks.filter(state="cancelled").first()
    asyncio.run(measuring.execute(canned, None, late.pk, late.attempt))
    late.refresh_from_db()
    assert late.state == "cancelled" and len(canned.jobs) == 1, "a cancelled hunk costs nothing"
    again = client.post(url(run), {"tier": "quick"}).content.decode()
    assert "3 of 6 done" in again and MeasuredDiff.objects.count() == 1
    measure_all(canned)
    assert len(canned.jobs) == 4, "what was known is not measured again"


@pytest.mark.django_db(transaction=True)
def test_a_verifier_that_dies_is_made_up_for(people, run):
    people.client("alice").post(url(run), {"tier": "quick"})
    row = MeasuredHunk.objects.filter(state="queued").first()
    for attempt in range(1, rescue.MOST_ATTEMPTS + 1):
        assert measuring.begin(row.pk, attempt, None) is not None
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM procrastinate_jobs WHERE (args ->> 'hunk_id')::bigint = %s", [row.pk])
        assert rescue.rescue_hunks() == 1
        measuring.finish(row.pk, attempt, JobResult(error="too late"))
    row.refresh_from_db()
    assert row.status == "infrastructure_error" and "died 3 times" in row.message
    assert rescue.rescue_hunks() == 0


def test_who_may_ask(people, run):
    assert people.client("charlie").get(url(run)).status_code == 404
    run.published = True
    run.save()
    assert people.client("charlie").get(url(run)).status_code == 403
    assert people.client("charlie").post(url(run), {"tier": "quick"}).status_code == 403
    measured = people.client("alice").post(url(run), {"tier": "full"}) and MeasuredDiff.objects.get()
    assert people.client("charlie").get(reverse("diffs:measured", args=[run.pk, measured.pk])).status_code == 200
    assert people.client("charlie").post(reverse("diffs:cancel", args=[run.pk, measured.pk])).status_code == 403


def test_what_cannot_be_measured_says_why(people, run):
    client = people.client("alice")
    assert "The reference has not passed" in client.get(url(run, sides="task...2")).content.decode()
    run.verifications.filter(candidate_number=1).update(status="wrong_result")
    assert "only two programs that passed" in client.post(url(run), {"tier": "quick"}).content.decode()
    run.verifications.filter(candidate_number=1).update(status="passed")
    assert "Choose quick or full" in client.post(url(run), {"tier": "slow"}).content.decode()


def test_ratios_in_words():
    assert (percent(1.124), percent(0.95), percent(1.0), percent(2.5)) == ("+12", "−5.0", "+0.0", "+150")
