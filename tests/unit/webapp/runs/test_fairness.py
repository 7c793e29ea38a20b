"""The queue takes turns between teams, then people, then runs: one person's hundred runs never keep another's waiting."""

from __future__ import annotations

import json
import uuid

from django.db import connection
from procrastinate.contrib.django import app

from agents.events import NewEvent
from tests.unit.webapp.cast import make_run, make_user
from webapp.runs.control import request_control
from webapp.runs.jobs import ORCHESTRATOR, enqueue_run, enqueue_verification
from webapp.runs.models import Run, Verification
from webapp.runs.trace.append import append
from webapp.runs.workers.rescue import rescue


def fetch(*queues: str) -> str | None:
    """Returns what the next worker with a free slot gets: the run's id, or the job's name if it does not belong to a run."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT task_name, args FROM procrastinate_fetch_job_v2(%s::varchar[], NULL)", [list(queues)])
        name, arguments = cursor.fetchone()
    if name == "verify":
        return str(Verification.objects.get(pk=arguments_of(arguments)["verification_id"]).run_id)
    return arguments_of(arguments)["run_id"] if name == "run_workflow" else name


def arguments_of(found) -> dict:
    return json.loads(found) if isinstance(found, str) else found


def queued(user, count: int) -> list[str]:
    runs = [make_run(user) for _ in range(count)]
    for run in runs:
        enqueue_run(run.pk)
    return [str(run.pk) for run in runs]


def asked(run: str, count: int = 1, queue: str = "verify.cuda") -> None:
    of = Run.objects.get(pk=run)
    for _ in range(count):
        row = Verification.objects.create(team_id=of.team_id, run=of, key=str(uuid.uuid4()), kind="verify", queue=queue)
        enqueue_verification(row.pk, queue, 1, 0)


def test_of_two_teams_one_with_a_hundred_runs_waiting_the_others_run_begins_with_the_next_free_place(db):
    queued(make_user("many"), 100)
    for _ in range(30):
        fetch(ORCHESTRATOR)
    (run,) = queued(make_user("few"), 1)
    assert fetch(ORCHESTRATOR) == run


def test_people_of_a_team_take_turns_and_a_team_has_no_more_turns_for_having_more_people(db):
    first, other = make_user("first"), make_user("other")
    second = make_user("second")
    mine = queued(first, 4)
    theirs = queued(second, 4)
    Run.objects.filter(pk__in=theirs).update(team=first.personal_team)
    others = queued(other, 4)
    taken = [fetch(ORCHESTRATOR) for _ in range(8)]
    assert sum(run in others for run in taken) == 4
    assert sum(run in mine for run in taken) == sum(run in theirs for run in taken) == 2


def test_verifications_of_a_devices_two_queues_take_turns_by_run_too(db):
    user = make_user("one")
    long, short = queued(user, 2)
    asked(long, 5)
    asked(short, 1, "verify.cuda:1")
    assert fetch("verify.cuda:1", "verify.cuda") == long, "it came first"
    assert fetch("verify.cuda:1", "verify.cuda") == short


def test_one_at_a_time_the_turn_of_long_ago_decides(db):
    many, few = queued(make_user("many"), 1)[0], queued(make_user("few"), 1)[0]
    asked(many, 6)
    taken = []
    for _ in range(4):
        asked(few)
        taken.append(fetch("verify.cuda"))
        with connection.cursor() as cursor:  # it ended, so no one is working on it
            cursor.execute("UPDATE procrastinate_jobs SET status = 'succeeded' WHERE status = 'doing'")
    assert taken == [many, few, many, few]


def test_what_belongs_to_no_run_is_not_starved_and_priority_goes_first(db):
    queued(make_user("many"), 3)
    fetch(ORCHESTRATOR)
    app.configure_task("mail", queue=ORCHESTRATOR).defer()
    assert fetch(ORCHESTRATOR) == "mail"
    app.configure_task("urgent", queue=ORCHESTRATOR, priority=5).defer()
    assert fetch(ORCHESTRATOR) == "urgent"


def test_a_lock_holds_and_nothing_is_handed_out_twice(db):
    (run,) = queued(make_user("one"), 1)
    assert fetch(ORCHESTRATOR) == run
    enqueue_run(uuid.UUID(run))
    assert fetch(ORCHESTRATOR) is None and fetch("verify.cpu") is None


def test_a_paused_run_holds_no_place_until_somebody_resumes_or_cancels_it(db):
    user = make_user("one")
    run = make_run(user)
    append(run.pk, [NewEvent(kind="run.started", payload={}), NewEvent(kind="run.paused", agent="engine", payload={"reason": "paused by a person"})])
    run.refresh_from_db()
    assert run.state == "paused" and rescue(60.0) == 0 and fetch(ORCHESTRATOR) is None
    request_control(run, "raise-budget", by=user, limits={"calls": 9})
    assert fetch(ORCHESTRATOR) is None
    request_control(run, "resume", by=user)
    assert fetch(ORCHESTRATOR) == str(run.pk)


def test_where_the_job_of_a_resumed_run_was_lost_it_is_taken_up_again(db):
    user = make_user("one")
    run = make_run(user)
    append(run.pk, [NewEvent(kind="run.started", payload={}), NewEvent(kind="run.paused", agent="engine", payload={"reason": "paused by a person"})])
    request_control(run, "resume", by=user)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM procrastinate_jobs")
    assert rescue(60.0) == 1 and fetch(ORCHESTRATOR) == str(run.pk)
