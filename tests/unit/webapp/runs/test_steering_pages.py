"""Notes, edited plans, raised budgets and forks, from the pages."""

from __future__ import annotations

import pytest
from django.urls import reverse

from agents.events import NewEvent
from agents.settings import Settings
from tests.browser import sample_run
from webapp.accounts.models import Membership
from webapp.llm.models import ModelCall, Profile
from webapp.runs import forks
from webapp.runs.models import Candidate, Event, Run, Verification
from webapp.runs.trace.append import append
from webapp.runs.trace.projection import rebuild

PLAN = {
    "summary": "2 groups",
    "steps": [
        {"id": "g1", "title": "softmax", "operators": ["aten._softmax"], "space": "own kernel", "strategies": ["row-cache"], "contract": "same",
         "floor_ms": 0.25, "expected_ms": 0.375, "bound": "memory"},
        {"id": "g2", "title": "matmul", "operators": ["aten.mm"], "space": "library", "strategies": [], "contract": "same", "reason": ""},
    ],
    "floor_ms": 0.5,
}  # fmt: skip


def url(name: str, run: Run) -> str:
    return reverse(f"runs:{name}", args=[run.pk])


def begin(run: Run, *more: NewEvent) -> Run:
    settings = Settings.model_validate(run.settings)
    started = {"task": {"name": "softmax"}, **settings.model_dump(mode="json")}
    append(run.pk, [NewEvent(kind="run.started", payload=started), *more])
    run.refresh_from_db()
    return run


@pytest.fixture
def run(people) -> Run:
    return sample_run.create_run(people.alice)


@pytest.fixture
def planned(run) -> Run:
    waiting = {"reason": "The plan waits for a person's review.", "kind": "review"}
    opened = NewEvent(kind="span.opened", span="plan", payload={"title": "Plan"})
    return begin(run, opened, NewEvent(kind="plan.proposed", span="plan", payload=PLAN), NewEvent(kind="run.paused", payload=waiting))


@pytest.fixture
def played(run) -> Run:
    sample_run.play(run)
    run.refresh_from_db()
    return run


def test_a_note_becomes_an_event(people, planned):
    Run.objects.filter(pk=planned.pk).update(settings={"planner": "big", "coder": "big", "judge": "built-in"})
    answer = people.client("bob").post(url("note", planned), {"to": "coder", "text": " mind the tails\r\n"}, headers={"accept": "application/json"})
    assert answer.status_code == 202
    note = Event.objects.get(run=planned, kind="note.added")
    assert note.payload == {"to": "coder", "text": "mind the tails", "by": "bob"} and note.agent == "person"


def test_the_built_in_compiler_takes_orders_and_refuses_prose(people, planned):
    client = people.client("alice")
    answer = client.post(url("note", planned), {"to": "all", "text": "mind the tails"})
    assert answer.status_code == 400 and "does not read prose" in answer.json()["error"] and "skip STRATEGY" in answer.json()["error"]
    answer = client.post(url("note", planned), {"to": "coder", "text": "skip row-cahe"})
    assert answer.status_code == 400 and "did you mean row-cache" in answer.json()["error"]
    assert client.post(url("note", planned), {"to": "all", "text": "skip row-cache"}, headers={"accept": "application/json"}).status_code == 202
    page = client.get(url("run", planned)).content.decode()
    assert "The built-in compiler plays all agents here." in page and "To the Coder (built-in)" in page


def test_the_page_says_who_reads_notes(people, planned):
    Run.objects.filter(pk=planned.pk).update(settings={"planner": "big", "coder": "big", "judge": "built-in"})
    page = people.client("alice").get(url("run", planned)).content.decode()
    assert "To the Coder (big)" in page and "The built-in compiler (Verifier)" in page
    Run.objects.filter(pk=planned.pk).update(settings={"planner": "big", "coder": "big", "judge": "big"})
    assert "built-in compiler" not in people.client("alice").get(url("run", planned)).content.decode()


@pytest.mark.parametrize("data", [{"text": "  "}, {"text": "x" * 4001}, {"text": "x", "to": "nobody"}])
def test_notes_that_cannot_be_sent_say_why(people, planned, data):
    answer = people.client("alice").post(url("note", planned), {"to": "all", **data})
    assert answer.status_code == 400 and answer.json()["error"]
    assert not Event.objects.filter(kind="note.added").exists()


def test_who_may_not_steer(people, planned):
    Membership.objects.filter(user=people.bob).update(role=Membership.VIEWER)
    for name in ("note", "plan", "budget", "fork"):
        assert people.client("bob").post(url(name, planned), {"text": "x"}).status_code == 403, name
        assert people.client("charlie").post(url(name, planned), {"text": "x"}).status_code == 404, name


def steps(*given: dict, **more) -> dict[str, str]:
    data = {"step-TOTAL_FORMS": str(len(given)), "step-INITIAL_FORMS": "2", "summary": "2 groups", **more}
    for index, step in enumerate(given):
        data |= {f"step-{index}-{name}": str(value) for name, value in step.items()}
    return data


G1 = {"id": "g1", "title": "softmax", "space": "own kernel", "strategies": "row-cache", "contract": "same", "reason": "", "ORDER": 1}
G2 = {"id": "g2", "title": "matmul", "space": "library", "strategies": "", "contract": "same", "reason": "", "ORDER": 2}


def test_a_plan_is_edited_and_the_run_goes_on(people, planned):
    client = people.client("alice")
    page = client.get(url("plan", planned)).content.decode()
    assert 'value="softmax"' in page and "Save and continue" in page and "fuse-pointwise" in page
    assert "floor <b>250 µs</b>, bound by memory" in page and "expected 375 µs" in page and "on this device: 500 µs" in page
    new = {"title": "and a third", "space": "pytorch", "strategies": "", "ORDER": 0}
    answer = client.post(url("plan", planned), steps({**G1, "strategies": "row-cache, vectorise"}, {**G2, "DELETE": "on"}, new, resume="1"))
    assert answer.status_code == 302
    edited = Event.objects.get(run=planned, kind="plan.edited").payload
    assert [(step["title"], step["strategies"]) for step in edited["steps"]] == [("and a third", []), ("softmax", ["row-cache", "vectorise"])]
    assert edited["steps"][1]["operators"] == ["aten._softmax"] and edited["floor_ms"] == 0.5 and edited["by"] == "alice"
    assert (edited["steps"][1]["floor_ms"], edited["steps"][1]["bound"]) == (0.25, "memory") and "floor_ms" not in edited["steps"][0]
    assert Event.objects.filter(run=planned, kind="control.requested").last().payload["action"] == "resume"


def test_a_plan_left_as_it_is_is_only_approved(people, planned):
    people.client("alice").post(url("plan", planned), steps({**G1}, {**G2}, {"space": "own kernel"}, resume="1"))
    assert not Event.objects.filter(run=planned, kind="plan.edited").exists()
    assert Event.objects.filter(run=planned, kind="control.requested").count() == 1


def test_a_plan_that_cannot_be_worked_by_is_kept_as_typed_with_the_reason(people, planned):
    answer = people.client("alice").post(url("plan", planned), steps({**G1, "title": ""}, {**G2, "title": "typed"}))
    assert answer.status_code == 422 and "Not saved" in answer.content.decode() and 'value="typed"' in answer.content.decode()
    assert not Event.objects.filter(kind__in=("plan.edited", "control.requested")).exists()


def test_a_plan_that_programs_follow_is_closed(people, played):
    client = people.client("alice")
    assert "Programs follow this plan already" in client.get(url("plan", played)).content.decode()
    assert client.post(url("plan", played), steps({**G1})).status_code == 409


def test_limits_are_raised_while_a_run_goes_on(people, planned):
    client = people.client("alice")
    client.post(url("budget", planned), {"candidates": "20", "minutes": "60"})
    asked = Event.objects.get(run=planned, kind="control.requested").payload
    assert asked["action"] == "raise-budget" and asked["limits"] == {"candidates": 20, "seconds": 3600}
    assert client.post(url("budget", planned), {"candidates": "2"}).status_code == 422
    assert "Raise at least one limit" in client.post(url("budget", planned), {}).content.decode()
    assert forks.settings_now(planned).budget.candidates == 20


def test_a_run_that_ran_out_goes_on_as_a_fork_at_the_refusal(people, planned):
    refused = {"key": "step-1#1", "name": "budget.refused", "value": {"unit": "candidates", "spent": 8, "limit": 8}}
    append(planned.pk, [NewEvent(kind="effect.completed", span="step-1", payload=refused)])
    append(planned.pk, [NewEvent(kind="run.finished", payload={"outcome": "out_of_budget", "reason": "8 programs"})])
    client = people.client("alice")
    assert "Continue with this budget" in client.get(url("budget", planned)).content.decode()
    answer = client.post(url("budget", planned), {"candidates": "12"})
    forked = Run.objects.exclude(pk=planned.pk).get()
    assert answer.headers["Location"] == url("run", forked)
    events = list(Event.objects.filter(run=forked).order_by("seq"))
    assert [e.seq for e in events] == list(range(1, len(events) + 1)) and events[-1].kind == "run.forked"
    assert not any(e.kind in ("effect.completed", "run.finished") for e in events)
    assert events[-1].payload["changed"] == {"budget": Settings.model_validate(forked.settings).budget.model_dump()}
    assert forked.settings["budget"]["candidates"] == 12 and forked.state == "running" and not forked.imported


def test_a_run_is_forked_at_a_candidate_with_other_settings(people, played):
    Profile.objects.create(name="fast", kind="openai", model="m")
    client = people.client("bob")
    page = client.get(url("fork", played), {"candidate": "2"}).content.decode()
    assert "Event" in page and "fast (m)" in page
    typed = {"workflow": "stitch", "llm": "fast", "candidates": "9", "minutes": "30", "verifier_minutes": "10", "calls": "12"}
    at = Event.objects.filter(run=played, kind="candidate.proposed").order_by("seq")[1].seq
    answer = client.post(url("fork", played), {**typed, "at": str(at)})
    assert answer.status_code == 302, answer.content.decode()
    forked = Run.objects.exclude(pk=played.pk).get()
    event = Event.objects.get(run=forked, kind="run.forked")
    assert event.payload["from"] == {"run": str(played.pk), "seq": at} and event.payload["by"] == "bob"
    assert {"planner", "coder", "judge", "budget"} <= event.payload["changed"].keys() and forked.settings["coder"] == "fast"
    assert list(Candidate.objects.filter(run=forked).values_list("number", flat=True)) == [1, 2]
    assert not Verification.objects.filter(run=forked).exclude(state="finished").exists()
    before = {v.pk for v in Verification.objects.filter(run=played)}
    assert not before & {v.pk for v in Verification.objects.filter(run=forked)}
    assert forked.created_by == people.bob and forked.team == played.team
    rows = list(Candidate.objects.filter(run=forked).values("number", "sha", "verification__status"))
    rebuild(forked.pk)
    assert list(Candidate.objects.filter(run=forked).values("number", "sha", "verification__status")) == rows
    assert client.get(url("run", forked)).status_code == 200


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at": "99999"}, "no event 99999"),
        ({"at": "soon"}, "no event 0"),
        ({"llm": "nobody"}, "Select a valid choice"),
        ({"candidates": "0"}, "greater than or equal to 1"),
        ({"language": "triton"}, "Triton need a GPU"),
        ({"planner": "fast", "llm": "built-in"}, "name a profile as the coder"),
    ],
)
def test_forks_that_are_not_possible_say_why(people, played, change, said):
    Profile.objects.create(name="fast", kind="openai", model="m")
    typed = {"workflow": "stitch", "llm": "built-in", "candidates": "9", "minutes": "30", "verifier_minutes": "10", "at": "5"}
    answer = people.client("alice").post(url("fork", played), {**typed, **change})
    assert answer.status_code == 422 and said in answer.content.decode()
    assert Run.objects.count() == 1


def test_what_the_parents_models_cost_is_not_counted_twice(people, run):
    done = {"key": "plan#1", "profile": "fast", "attempts": 1, "usage": None, "dollars": 0.5, "seconds": 1.0, "spent": {"calls": 1, "tokens": 10}}
    begin(
        run,
        NewEvent(kind="llm.completed", span="plan", agent="planner", payload=done),
        NewEvent(kind="span.closed", span="plan", payload={"seconds": 1}),
    )
    forked = forks.fork_run(run, 3, forks.settings_now(run), user=people.alice)
    assert ModelCall.objects.filter(run=run).count() == 1 and not ModelCall.objects.filter(run=forked).exists()
