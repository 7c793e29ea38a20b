"""Features that callers rely on: permissions, cursors, idempotency keys, limits, and the verdict as one object."""

from __future__ import annotations

import json
import threading

import pytest
from django.db import connection
from django.test import Client

from tests.browser import sample_run
from tests.unit.webapp.api.verified import finish, refuse
from tests.unit.webapp.cast import PROGRAM, SOURCE, make_run
from webapp.accounts import tokens
from webapp.accounts.models import ApiToken, AuditEntry
from webapp.api.calls import limits
from webapp.api.calls.idempotency import once
from webapp.api.models import IdempotencyKey
from webapp.fleet.models import Device
from webapp.runs.models import Event, Run

API = "/api/v1"


def post(client: Client, path: str, body: dict, **headers: str):
    return client.post(f"{API}{path}", json.dumps(body), content_type="application/json", headers=headers)


def test_without_a_token_or_with_a_bad_one_nothing_is_answered(people, db):
    revoked = tokens.issue(people.alice, people.alice.personal_team, "t", ["read"])[1]
    ApiToken.objects.update(revoked_at="2020-01-01T00:00:00Z")
    for header in ({}, {"Authorization": "Bearer sw_x"}, {"Authorization": "Basic YTpi"}, {"Authorization": f"Bearer {revoked}"}):
        answer = Client(headers=header).get(f"{API}/me")
        assert answer.status_code == 401 and "Bearer" in answer.headers["WWW-Authenticate"] and answer.json()["hint"]


def test_a_session_reads_and_needs_the_csrf_token_to_change_something(people):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(people.alice)
    me = browser.get(f"{API}/me").json()
    assert me["user"] == "alice" and me["token"] is None and me["scopes"] == ["read", "submit", "verify", "admin"]
    assert post(browser, "/tasks", {"source": SOURCE}).status_code == 403
    browser.get("/")
    csrf = next(cookie.value for name, cookie in browser.cookies.items() if "csrf" in name)
    assert post(browser, "/tasks", {"source": SOURCE}, **{"X-CSRFToken": csrf}).status_code == 201


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [("read", {"runs", "me", "devices"}), ("verify", {"me", "devices", "verify"}), ("submit", {"me", "devices", "submit"})],
)
def test_a_scope_opens_what_it_says_and_no_more(people, caller, scope, allowed):
    client = caller(people.alice, scope)
    answers = {
        "runs": client.get(f"{API}/runs"),
        "me": client.get(f"{API}/me"),
        "devices": client.get(f"{API}/devices"),
        "submit": post(client, "/runs", {"task_source": SOURCE}),
        "verify": post(client, "/verifications", {"task_source": SOURCE, "program_source": PROGRAM}),
    }
    assert {name for name, answer in answers.items() if answer.status_code < 300} == allowed
    for name in set(answers) - allowed:
        assert answers[name].status_code == 403 and "lacks the scope" in answers[name].json()["detail"]


def test_a_token_sees_its_own_team_alone(people, caller):
    run = make_run(people.alice)
    assert caller(people.bob, team=people.alice.personal_team).get(f"{API}/runs/{run.pk}").status_code == 200
    assert caller(people.bob).get(f"{API}/runs/{run.pk}").status_code == 404  # Bob is in both teams, but this token is only for one
    assert caller(people.bob).get(f"{API}/runs").json()["runs"] == []


def test_a_published_run_is_read_by_everyone_and_steered_by_its_team(people, caller):
    run = make_run(people.alice, published=True)
    stranger = caller(people.charlie)
    detail = stranger.get(f"{API}/runs/{run.pk}").json()
    assert detail["id"] == str(run.pk) and detail["can_act"] is False
    assert post(stranger, f"/runs/{run.pk}/control", {"action": "cancel"}).status_code == 403
    assert stranger.get(f"{API}/runs").json()["runs"] == []
    assert [row["id"] for row in stranger.get(f"{API}/runs?published=true").json()["runs"]] == [str(run.pk)]


def test_pages_of_runs_are_whole_while_new_ones_arrive(people, alice):
    made = [str(make_run(people.alice).pk) for _ in range(7)]
    seen, cursor = [], ""
    while True:
        page = alice.get(f"{API}/runs", {"limit": 3, "cursor": cursor}).json()
        seen += [row["id"] for row in page["runs"]]
        make_run(people.alice)
        if not (cursor := page["next"]):
            break
    assert seen == made[::-1]


def test_settings_are_kept_as_they_were_sent(people, alice):
    budget = {"candidates": 3, "seconds": 120, "verifier_seconds": 60}
    answer = post(
        alice, "/runs", {"task_source": SOURCE, "title": "mine", "settings": {"precision": "bf16", "mode": "eval", "target": 2, "budget": budget}}
    )
    run = Run.objects.get(pk=answer.json()["id"])
    assert answer.status_code == 201 and answer.json()["page"].endswith(f"/runs/{run.pk}/")
    assert (run.title, run.precision, run.settings["mode"], run.settings["target"]) == ("mine", "bf16", "eval", 2.0)
    assert run.settings["budget"]["candidates"] == 3 and run.created_by == people.alice and run.team == people.alice.personal_team


@pytest.mark.parametrize(
    ("body", "place", "said"),
    [
        ({"task_source": SOURCE, "settings": {"device": "cuda"}}, "body.settings.device", "no verifier with a GPU"),
        ({"task_source": SOURCE, "settings": {"device": "cpu:7"}}, "body.settings.device", "match"),
        ({"task_source": SOURCE, "settings": {"budget": {"candidates": 0}}}, "body.settings.budget.candidates", "greater than"),
        ({"task_source": SOURCE, "settings": {"colour": 1}}, "body.settings.colour", "Extra"),
        ({"task_source": "import torch\nclass Model(:\n"}, "body.task_source", "syntax error"),
        ({}, "body", "either"),
        ({"task_source": SOURCE, "task": "00000000-0000-4000-8000-000000000000"}, "body", "either"),
        ({"task": "00000000-0000-4000-8000-000000000000"}, "body.task", "no such task"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(alice, body, place, said):
    answer = post(alice, "/runs", body)
    fault = answer.json()["errors"][0]
    assert answer.status_code == 422 and fault["where"] == place and said in fault["message"], answer.json()
    assert not Run.objects.exists()


def test_a_syntax_error_has_its_line(alice):
    fault = post(alice, "/tasks", {"source": "import torch\nx = = 1\n"}).json()["errors"][0]
    assert (fault["line"], fault["column"]) == (2, 5) and fault["hint"]


def test_a_model_that_is_not_there_is_refused(alice):
    answer = post(alice, "/runs", {"task_source": SOURCE, "settings": {"coder": "nobody"}})
    assert answer.status_code == 422 and "no LLM profile 'nobody'" in answer.json()["detail"]


def test_line_ends_make_no_other_task(alice):
    made = [post(alice, "/tasks", {"source": source}) for source in (SOURCE, SOURCE.replace("\n", "\r\n"))]
    assert [answer.status_code for answer in made] == [201, 200] and made[0].json()["id"] == made[1].json()["id"]


# --- Creating once


def test_the_same_call_with_one_key_creates_once(alice):
    body = {"task_source": SOURCE, "program_source": PROGRAM}
    first, second = (post(alice, "/verifications", body, **{"Idempotency-Key": "k-1"}) for _ in range(2))
    assert first.status_code == second.status_code == 201 and first.json() == second.json()
    assert second.headers["Idempotent-Replayed"] == "true" and "Idempotent-Replayed" not in first.headers
    assert Run.objects.count() == 1
    assert post(alice, "/verifications", body, **{"Idempotency-Key": "k-2"}).json()["id"] != first.json()["id"]


def test_a_key_used_for_something_else_is_a_mistake(alice):
    post(alice, "/tasks", {"source": SOURCE}, **{"Idempotency-Key": "k"})
    answer = post(alice, "/runs", {"task_source": SOURCE}, **{"Idempotency-Key": "k"})
    assert answer.status_code == 409 and "another request" in answer.json()["detail"] and not Run.objects.exists()


def test_a_refused_call_leaves_its_key_free(alice):
    assert post(alice, "/tasks", {"source": "x = ("}, **{"Idempotency-Key": "k"}).status_code == 422
    assert post(alice, "/tasks", {"source": SOURCE}, **{"Idempotency-Key": "k"}).status_code == 201


def test_keys_are_kept_for_a_day(alice, people):
    post(alice, "/tasks", {"source": SOURCE}, **{"Idempotency-Key": "old"})
    IdempotencyKey.objects.update(created_at="2020-01-01T00:00:00Z")
    post(alice, "/tasks", {"source": SOURCE}, **{"Idempotency-Key": "new"})
    assert [row.key for row in IdempotencyKey.objects.all()] == ["new"]


@pytest.mark.django_db(transaction=True)
def test_two_calls_at_once_with_one_key_create_once(people, rf):
    from pydantic import BaseModel

    class Answer(BaseModel):
        number: int

    made, answers, inside = [], [], threading.Event()

    def create():
        made.append(1)
        inside.set()
        return 201, Answer(number=len(made))

    def call():
        request = rf.post("/api/v1/runs", data="{}", content_type="application/json", headers={"Idempotency-Key": "k"})
        request.user = people.alice
        answers.append(once(request, people.alice.personal_team, create))
        connection.close()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(made) == 1 and [json.loads(answer.content) for answer in answers] == [{"number": 1}] * 4


# --- Limits


def test_who_calls_too_often_is_told_when_to_come_back(people, caller, monkeypatch):
    monkeypatch.setattr(limits, "READING", limits.Rate(burst=3, per_second=0.5))
    client, other = caller(people.alice), caller(people.alice)
    assert [client.get(f"{API}/me").status_code for _ in range(4)] == [200, 200, 200, 429]
    answer = client.get(f"{API}/me")
    assert answer.headers["Retry-After"] == "2" and "event stream" in answer.json()["hint"]
    assert other.get(f"{API}/me").status_code == 200  # each token has its own limit


def test_a_bucket_fills_up_again():
    rate, buckets = limits.Rate(burst=2, per_second=1), limits.Buckets()
    assert [buckets.take("a", rate, 0.0), buckets.take("a", rate, 0.0)] == [0, 0]
    assert buckets.take("a", rate, 0.25) == pytest.approx(0.75)
    assert buckets.take("a", rate, 1.0) == 0 and buckets.take("a", rate, 100.0) == 0


# --- Steering


def test_steering_becomes_events_and_is_on_record(people, alice):
    run = sample_run.create_run(people.alice)
    sample_run.play(run, stop_after=10)
    for action in ("pause", "resume", "cancel"):
        assert post(alice, f"/runs/{run.pk}/control", {"action": action}).status_code == 202
    assert post(alice, f"/runs/{run.pk}/control", {"action": "raise-budget", "limits": {"candidates": 40}}).status_code == 202
    assert post(alice, f"/runs/{run.pk}/notes", {"text": "skip row-cache", "to": "coder"}).status_code == 202
    refused = post(alice, f"/runs/{run.pk}/notes", {"text": "hello", "to": "coder"})
    assert refused.status_code == 422 and "does not read prose" in refused.content.decode()  # the compiler plays the Coder
    told = [(event.kind, event.payload.get("action") or event.payload["text"]) for event in Event.objects.filter(run=run, seq__gt=10).order_by("seq")]
    assert told == [("control.requested", name) for name in ("pause", "resume", "cancel", "raise-budget")] + [("note.added", "skip row-cache")]
    entry = AuditEntry.objects.get(action="budget.raised")
    assert entry.actor == people.alice and entry.via.startswith("token ")
    lowered = post(alice, f"/runs/{run.pk}/control", {"action": "raise-budget", "limits": {"candidates": 1}})
    assert lowered.status_code == 422 and lowered.json()["errors"][0]["where"] == "body.limits"


def test_a_fork_goes_on_with_other_settings(people, alice):
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    answer = post(alice, f"/runs/{run.pk}/forks", {"at": 20, "changes": {"budget": {"candidates": 33}}})
    forked = Run.objects.get(pk=answer.json()["id"])
    assert answer.status_code == 201 and forked.events.order_by("seq").last().kind == "run.forked"
    assert answer.json()["settings"]["budget"]["candidates"] == 33 and forked.settings["budget"]["verifier_seconds"] == 600
    kept = post(alice, f"/runs/{run.pk}/forks", {"changes": {"device": "cpu", "precision": "bf16"}})
    assert kept.status_code == 409 and "precision" in kept.json()["detail"]


def test_a_run_that_has_ended_is_forked_and_not_steered(people, alice):
    run = make_run(people.alice, state="finished")
    answer = post(alice, f"/runs/{run.pk}/control", {"action": "pause"})
    assert answer.status_code == 409 and "Fork" in answer.json()["hint"]


# --- Verifications


def verified(alice, status: str = "passed", **changes) -> dict:
    made = post(alice, "/verifications", {"task_source": SOURCE, "program_source": PROGRAM, "tier": "full"}).json()
    finish(Run.objects.get(pk=made["id"]), status, **changes)
    return alice.get(f"{API}/verifications/{made['id']}").json()


def test_a_program_that_passed(alice):
    result = verified(alice)
    assert (result["done"], result["passed"], result["verdict"], result["faster"], result["tier"]) == (True, True, "passed", True, "full")
    assert result["speedup"]["low"] < result["speedup"]["speedup"] < result["speedup"]["high"] and result["device_name"].startswith("AMD")
    report = alice.get(f"{API}/runs/{result['id']}/reports/{result['report']}").json()
    assert report["status"] == "passed" and report["trials"]


def test_a_wrong_program_says_where(alice):
    result = verified(alice, "wrong_result")
    assert result["passed"] is False and result["speedup"] is None and result["failed_trials"][0]["name"] == "heavy-tailed"
    assert "failed_trials" in result["next"] and result["message"].startswith("wrong on heavy-tailed inputs")


def test_a_refused_program_says_which_line(alice):
    finding = {"rule": "static.torch", "severity": "refuse", "message": "calls torch.softmax", "line": 7}
    result = verified(alice, "rejected", trials=[], findings=[finding])
    assert result["verdict"] == "rejected" and result["findings"][0]["line"] == 7 and "findings" in result["next"]


def test_a_task_that_is_not_admitted_is_no_verdict_on_the_program(alice):
    made = post(alice, "/verifications", {"task_source": SOURCE, "program_source": PROGRAM}).json()
    refuse(Run.objects.get(pk=made["id"]), {"line": 9, "message": "get_inputs() gave no tensor", "hint": "return a list of tensors"})
    result = alice.get(f"{API}/verifications/{made['id']}").json()
    assert (result["done"], result["passed"], result["verdict"]) == (True, False, "not_measured")
    assert result["problems"] == [{"line": 9, "column": None, "message": "get_inputs() gave no tensor", "hint": "return a list of tensors"}]


def test_a_token_for_verifying_follows_its_verification_and_nothing_else(people, caller, alice):
    only = caller(people.alice, "verify")
    made = post(only, "/verifications", {"task_source": SOURCE, "program_source": PROGRAM}).json()
    finish(Run.objects.get(pk=made["id"]))
    assert only.get(f"{API}/verifications/{made['id']}").json()["passed"]
    assert only.get(f"{API}/runs/{made['id']}/events").json()["done"]
    assert only.get(f"{API}/runs/{made['id']}/candidates/1/report").status_code == 200
    other = make_run(people.alice)
    assert only.get(f"{API}/runs/{other.pk}/events").status_code == 403 and only.get(f"{API}/runs/{other.pk}").status_code == 403
    assert only.get(f"{API}/verifications/{other.pk}").status_code == 404


def test_the_queue_is_told(people, alice):
    Device.objects.create(worker="w", kind="cpu", device="cpu", name="Example CPU", model="cpu", queue="verify.cpu")
    made = post(alice, "/verifications", {"task_source": SOURCE, "program_source": PROGRAM}).json()
    run = Run.objects.get(pk=made["id"])
    for owner, key in ((make_run(people.alice), "a"), (run, "b")):
        owner.verifications.create(team=owner.team, key=key, kind="verify", queue="verify.cpu")
    assert alice.get(f"{API}/verifications/{made['id']}").json()["ahead"] == 1
    assert alice.get(f"{API}/devices").json()["kinds"][0] == {"kind": "cpu", "online": 1, "waiting": 2, "usable": True}


# --- Artefacts


def test_an_artefact_of_another_run_of_the_team_is_not_in_this_one(people, alice):
    from webapp.runs import artefacts

    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    listed = alice.get(f"{API}/runs/{run.pk}/artefacts").json()["artefacts"]
    answer = alice.get(f"{API}/runs/{run.pk}/artefacts/{listed[0]['sha']}")
    assert answer.status_code == 200 and len(answer.content) == listed[0]["bytes"]
    assert alice.get(f"{API}/runs/{run.pk}/artefacts/{listed[0]['sha']}", headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304
    other = artefacts.put(run.team_id, b"of another run", "text/html").sha
    assert alice.get(f"{API}/runs/{run.pk}/artefacts/{other}").status_code == 404
    timelines = alice.get(f"{API}/runs/{run.pk}/timelines").json()["timelines"]
    assert timelines[0]["candidate"] is None and {t["sha"] for t in timelines} <= {row["sha"] for row in listed}
