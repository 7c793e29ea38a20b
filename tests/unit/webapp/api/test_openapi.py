"""The API matches its OpenAPI document: one pass over all operations, and arbitrary other input."""

from __future__ import annotations

import json
import re
import uuid

import pytest
from ninja.openapi.schema import OpenAPISchema
from openapi_spec_validator import validate

from tests.browser import sample_run
from tests.unit.webapp.api.document import document, judge, operations
from tests.unit.webapp.api.verified import finish
from tests.unit.webapp.cast import PROGRAM, SOURCE
from webapp.accounts.models import Membership
from webapp.api.api import api
from webapp.api.calls.limits import BUCKETS
from webapp.fleet.models import Device
from webapp.llm.models import Profile
from webapp.review import services
from webapp.runs.models import Run

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.mark.slow
def test_the_document_is_valid_openapi():
    validate(document())


def test_no_two_models_share_a_name(monkeypatch):
    """ninja identifies schemas by name alone: if two schemas shared a name, the second would describe the first one's answers."""
    kept: dict[str, set[str]] = {}

    def add(self, definitions: dict) -> None:
        for name, schema in definitions.items():
            fields = set(schema.get("properties", {}))
            assert kept.setdefault(name, fields) == fields, f"two models are called {name}"
        self.schemas.update(definitions)

    monkeypatch.setattr(OpenAPISchema, "add_schema_definitions", add)
    api.get_openapi_schema()
    assert len(kept) > 40


def test_every_operation_is_described():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names)) >= 24
    for _, path, operation in operations():
        assert operation["summary"] and operation["tags"], path
        assert "401" in operation["responses"] or 401 in operation["responses"], path
        assert operation["security"], path
    for name in ("RunRow", "VerificationResult", "CandidateRow", "DeviceRow", "ProblemDetails"):
        fields = document()["components"]["schemas"][name]["properties"].values()
        assert sum("description" in field for field in fields) >= len(fields) / 3, name


@pytest.fixture
def whole(people) -> dict[str, str]:
    """Creates one of everything: a run with candidates, a verification, a task, a device, a model."""
    Device.objects.create(
        worker="w", kind="cpu", device="cpu", name="Example CPU", model="cpu-x86_64-2c", queue="verify.cpu", doctor={"torch": "2.13.0"}
    )
    Profile.objects.create(name="fast", kind="openai", model="m-1")
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    candidate = run.candidates.select_related("verification", "program").get(number=4)
    thread = services.open_thread(people.alice, run, {"kind": "candidate", "candidate": 4}, "two reads of the row")
    return {
        "thread_id": str(thread.pk),
        "run_id": str(run.pk),
        "task_id": str(run.task_id),
        "number": "4",
        "sha": candidate.program.sha,
        "verification_id": str(candidate.verification_id),
    }


@pytest.mark.slow
def test_a_pass_over_all_operations(people, alice, whole):
    """Requests everything that can be read or done, and checks each answer against its own description."""
    done = set()

    def call(method: str, path: str, body: dict | None = None, status: int | None = None, of: str | None = None) -> dict | None:
        sent = {"data": json.dumps(body), "content_type": "application/json"} if body is not None else {}
        answer = getattr(alice, method)(f"/api/v1{path}", **sent)
        found = judge(method, f"/api/v1{path.partition('?')[0]}", answer)
        assert status is None or answer.status_code == status, (path, answer.content[:500])
        done.add((method, of or path.partition("?")[0]))
        return found

    for template in [path for method, path, _ in operations() if method == "get" and not path.endswith("/stream")]:
        path = template.removeprefix("/api/v1")
        if path == "/verifications/{run_id}":
            continue
        call("get", path.format(**whole), status=200, of=path)
    call("get", "/runs?state=finished&outcome=improved&workflow=stitch&device=cpu&q=softmax&limit=1", status=200)
    call("get", f"/runs/{whole['run_id']}/events?after=5&limit=3", status=200)
    call("get", "/leaderboard/results?state=unsolved", status=200)
    made = call("post", "/tasks", {"source": SOURCE, "name": "mine"}, status=201, of="/tasks")
    call("post", "/tasks", {"source": SOURCE}, status=200)
    run = call("post", "/runs", {"task": made["id"], "settings": {"budget": {"candidates": 2}}}, status=201, of="/runs")
    call("post", f"/runs/{run['id']}/control", {"action": "pause"}, status=202, of="/runs/{run_id}/control")
    call("post", f"/runs/{run['id']}/control", {"action": "raise-budget", "limits": {"candidates": 9}}, status=202)
    call("post", f"/runs/{run['id']}/notes", {"text": "skip row-cache", "to": "coder"}, status=202, of="/runs/{run_id}/notes")
    call("post", f"/runs/{whole['run_id']}/forks", {"changes": {"budget": {"candidates": 20}}}, status=201, of="/runs/{run_id}/forks")
    thread = call("post", f"/runs/{run['id']}/comments", {"text": "a thought", "place": {"kind": "run"}}, status=201, of="/runs/{run_id}/comments")
    there = f"/runs/{run['id']}/comments/{thread['id']}"
    call("post", f"{there}/replies", {"text": "and another"}, status=201, of="/runs/{run_id}/comments/{thread_id}/replies")
    call("post", f"{there}/resolution", {"resolved": True}, status=200, of="/runs/{run_id}/comments/{thread_id}/resolution")
    started = call("post", "/verifications", {"task_source": SOURCE, "program_source": PROGRAM}, status=201, of="/verifications")
    call("post", "/leaderboard/results", {"task_source": SOURCE, "program_source": PROGRAM + "# ranked\n"}, status=201)
    call("get", f"/verifications/{started['id']}", status=200, of="/verifications/{run_id}")
    for status in ("passed", "wrong_result"):
        started = call("post", "/verifications", {"task_source": SOURCE, "program_source": PROGRAM + f"# {status}\n"}, status=201)
        finish(Run.objects.get(pk=started["id"]), status)
        call("get", f"/verifications/{started['id']}", status=200)
    left = {(method, path.removeprefix("/api/v1")) for method, path, _ in operations()} - done
    assert left == {("get", "/runs/{run_id}/events/stream")}  # tested over a real socket: tests/integration/api


BODIES = [
    None, "", "{", "[]", "null", '"text"', "{}", '{"unknown": 1}', '{"task": "x"}', '{"task": 3, "task_source": []}', "\xff",
    '{"task_source": "\\u0000", "program_source": "\\ud800", "source": "\\ud800", "text": "\\u0000", "action": "\\u0000"}',
    '{"task_source": "x = (", "program_source": "x = (", "source": "x = ("}', '{"settings": {"budget": {"candidates": 1e400}}, "task_source": "x"}',
    '{"action": "explode"}', '{"text": "x", "to": "nobody"}', '{"at": -1}', '{"changes": {"budget": 7}}', '{"changes": {"device": "cuda"}}',
    '{"changes": {"precision": "bf16"}}', '{"limits": {}, "action": "raise-budget"}', '{"at": 99999999999}', "9" * 5000,
]  # fmt: skip


@pytest.mark.slow
def test_no_body_breaks_anything(alice, whole):
    before = Run.objects.count()
    for path in [template.format(**whole) for method, template, _ in operations() if method == "post"]:
        BUCKETS.clear()
        for body in [body for body in BODIES if not (body == "{}" and path.endswith("/forks"))]:  # an unchanged fork at the run's end
            answer = alice.post(path, data=body.encode("utf-8", "surrogatepass") if body is not None else b"", content_type="application/json")
            assert answer.status_code in (400, 409, 422), (path, body, answer.content[:300])
            problem = judge("post", path, answer)
            assert problem["detail"] and (problem["errors"] or problem["hint"] or answer.status_code == 409), (path, body, problem)
    assert Run.objects.count() == before


WRONG = ("x", "-1", "%00", "9" * 40, "é")


def test_unknown_ids_are_not_found(alice, whole):
    nobody = {"run_id": NOBODY, "task_id": NOBODY, "verification_id": NOBODY, "thread_id": "7777", "number": "77", "sha": "0" * 64}
    for method, template, _ in operations():
        BUCKETS.clear()
        for name in [] if template.endswith("/stream") else re.findall(r"{(\w+)}", template):
            for value in (nobody[name], *WRONG):
                path = template.format(**(whole | {name: value}))
                body = {"data": BODY.get(template.rpartition("/")[2], "{}"), "content_type": "application/json"} if method == "post" else {}
                answer = getattr(alice, method)(path, **body)
                assert answer.status_code in (404, 422), (path, answer.status_code, answer.content[:300])
                assert answer.headers["Content-Type"].startswith("application/problem+json") and answer.json()["detail"]


BODY = {
    "control": '{"action": "pause"}', "notes": '{"text": "x"}', "forks": "{}", "comments": '{"text": "x"}', "replies": '{"text": "x"}',
    "resolution": '{"resolved": true}',
}  # fmt: skip


QUERIES = [
    *("runs?cursor=x", "runs?cursor=%00", "runs?cursor=MjAyNi0wMS0wMXxub25l", "runs?limit=0", "runs?limit=9999999999999999999999"),
    *("runs?state=lost", "runs?task=x", "runs?q=%00", "tasks?cursor=%F0%9F%98%80", "tasks?suite=%00", "tasks?limit=x"),
    *("leaderboard?p=-1", "leaderboard?p=nan", "leaderboard?device=%00", "leaderboard/results?offset=-1", "leaderboard/results?state=x"),
    *("leaderboard/results?task=%00", "leaderboard/results?entry=99999999999999999999999"),
]


def test_bad_queries_are_named_at_their_place(alice):
    for query in QUERIES:
        answer = alice.get(f"/api/v1/{query}")
        problem = judge("get", f"/api/v1/{query.partition('?')[0]}", answer)
        assert answer.status_code == 422, (query, problem)
        assert problem["errors"][0]["where"].startswith("query."), problem


def test_parameters_that_do_not_exist_are_named_with_those_that_do(alice, client, whole):
    for method, template, operation in operations():
        if template.endswith("/stream"):
            continue
        known = [parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"]
        path = template.format(**whole)
        BUCKETS.clear()
        body = {"data": BODY.get(path.rpartition("/")[2], "{}"), "content_type": "application/json"} if method == "post" else {}
        answer = getattr(alice, method)(f"{path}?limt=3&limt=4&%00=", **body)
        problem = judge(method, path, answer)
        assert answer.status_code == 422, path
        assert [fault["where"] for fault in problem["errors"]] == ["query.\0", "query.limt"], path
        assert problem["hint"] == (f"Known here: {', '.join(known)}." if known else "This operation takes none."), path
        assert getattr(client, method)(f"{path}?limt=3", **body).status_code == 401, path


def test_events_take_no_bad_cursor(alice, whole):
    for query in ("after=-1", "after=x", "after=99999999999999999999", "limit=0", "limit=1001"):
        answer = alice.get(f"/api/v1/runs/{whole['run_id']}/events?{query}")
        assert answer.status_code == 422 and judge("get", f"/api/v1/runs/{whole['run_id']}/events", answer)


def test_what_does_not_exist_is_a_problem_and_no_page(alice):
    for path in ("/api/v1/", "/api/v1/nothing", "/api/v2/runs", "/api/v1/runs/x/y/z"):
        for method in ("get", "post", "delete"):
            answer = getattr(alice, method)(path)
            assert answer.status_code == 404 and answer.json()["status"] == 404, (method, path)


def test_the_document_and_its_page_need_nobody(client):
    assert client.get("/api/v1/openapi.json").json()["openapi"].startswith("3.1")


def test_a_viewer_may_look_and_change_nothing(people, caller, whole):
    Membership.objects.filter(user=people.bob, team=people.alice.personal_team).update(role=Membership.VIEWER)
    viewer = caller(people.bob, team=people.alice.personal_team)
    for method, template, _ in operations():
        path = template.format(**whole)
        if method == "get" and not path.endswith("/stream") and "verifications" not in path:
            assert viewer.get(path).status_code == 200, path
        elif method == "post":
            both = {"task_source": SOURCE, "program_source": PROGRAM}
            body = {"verifications": both, "results": both, "tasks": {"source": SOURCE}, "runs": {"task_source": SOURCE}}
            body |= {name: json.loads(text) for name, text in BODY.items()}
            answer = viewer.post(path, json.dumps(body[path.rpartition("/")[2]]), content_type="application/json")
            assert answer.status_code == 403 and judge("post", path, answer)["detail"], path


def test_nothing_of_a_team_is_seen_from_outside(people, caller, whole):
    stranger = caller(people.charlie)
    for method, template, _ in operations():
        if "{" not in template or template.endswith("/stream"):
            continue
        body = {"data": BODY.get(template.rpartition("/")[2], "{}"), "content_type": "application/json"} if method == "post" else {}
        answer = getattr(stranger, method)(template.format(**whole), **body)
        assert answer.status_code == 404, template
    for path in ("runs", "tasks", "runs?published=true"):
        assert not any(stranger.get(f"/api/v1/{path}").json().get(name) for name in ("runs", "tasks"))
    assert str(uuid.UUID(whole["run_id"])) not in stranger.get("/api/v1/leaderboard/results?state=").content.decode()
