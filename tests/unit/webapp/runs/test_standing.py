"""The queue position of a waiting run: it follows from the order, turn by turn, in which the queue takes jobs."""

from __future__ import annotations

from django.urls import reverse

from agents.events import KINDS, NewEvent
from tests.unit.webapp.cast import make_run
from webapp.fleet.models import Device
from webapp.review.places import event_words, label
from webapp.runs import jobs
from webapp.runs.models import Run, Verification
from webapp.runs.trace.append import append
from webapp.runs.workers.standing import Waiting, places_before


def job(number: int, owner: str, priority: int = 0) -> Waiting:
    team, person, run = owner.split("/")
    return Waiting(number, priority, (team, person, run))


def place(jobs: list[Waiting], mine: int, last: dict[str, float] | None = None) -> int:
    return places_before(jobs, last or {}, lambda waiting: waiting.job == mine)


def test_teams_then_people_then_runs_take_turns():
    waiting = [job(number, "a/alice/r1") for number in range(1, 6)] + [job(6, "b/bob/r2"), job(7, "a/anna/r3")]
    assert [place(waiting, mine) for mine in (1, 6, 7, 2)] == [0, 1, 2, 3]
    assert place(waiting, 6, {"a": 5.0, "a/alice": 5.0}) == 0
    assert place(waiting, 1, {"a": 5.0, "a/alice": 5.0}) == 2
    assert place([*waiting, job(8, "//", priority=1)], 1) == 1


def asked(run: Run, key: str) -> Verification:
    queue = jobs.queue_for("cpu")
    append(run.pk, [NewEvent(kind="verification.queued", payload={"key": key, "job": "verify", "candidate": 1, "queue": queue})])
    found = Verification.objects.get(run=run, key=key)
    jobs.enqueue_verification(found.pk, queue, 1, 0)
    return found


def test_a_run_that_waits_is_told_its_place(people):
    first, second = make_run(people.alice), make_run(people.alice)
    Run.objects.update(state="running")
    for run, key in ((first, "one"), (first, "two"), (second, "one")):
        asked(run, key)
    Device.objects.create(worker="w", kind="cpu", device="cpu", name="A CPU", model="cpu", queue="verify.cpu")

    def told(run: Run) -> dict:
        return people.client("alice").get(reverse("runs:standing", args=[run.pk])).json()

    assert told(first) == {"what": "verifier", "before": 0, "at_work": 0, "seconds": None, "online": 1, "device": "cpu", "needs_sandbox": ""}
    assert told(second)["before"] == 1
    Verification.objects.filter(run=second).update(state="running")
    assert told(second)["what"] == ""
    assert people.client("charlie").get(reverse("runs:standing", args=[first.pk])).status_code == 404


def test_a_run_whose_verifier_needs_a_sandbox_is_told_what_to_do(people):
    run, fix = make_run(people.alice), "bubblewrap is not installed: apt-get install bubblewrap"
    Run.objects.update(state="running")
    asked(run, "one")
    kept = {"kind": "cpu", "device": "cpu", "name": "A CPU", "model": "cpu", "queue": "verify.cpu"}
    Device.objects.create(worker="w", doctor={"unusable": f"needs a sandbox: {fix}", "needs_sandbox": fix}, **kept)

    def told() -> dict:
        return people.client("alice").get(reverse("runs:standing", args=[run.pk])).json()

    assert (told()["online"], told()["needs_sandbox"]) == (0, fix)
    Device.objects.create(worker="v", **kept)
    assert (told()["online"], told()["needs_sandbox"]) == (1, ""), "another verifier takes its jobs"


def test_a_run_that_no_orchestrator_has_taken_waits_for_one(people):
    run = make_run(people.alice)
    jobs.enqueue_run(run.pk)
    answer = people.client("alice").get(reverse("runs:standing", args=[run.pk])).json()
    assert (answer["what"], answer["before"]) == ("orchestrator", 0)


def test_every_kind_of_event_has_words():
    assert all(event_words(kind) not in ("", "an entry") for kind in KINDS)
    assert label({"kind": "event", "seq": 129, "label": "verification.queued"}) == "a queued verification (event 129)"
