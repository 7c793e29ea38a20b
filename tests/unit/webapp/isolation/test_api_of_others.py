"""Every operation of the API on one team's objects, as the OpenAPI document lists them: with another team's tokens and sessions in every role, with
tokens of insufficient scope, as a viewer, and anonymously."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.webapp.isolation.tried import REFUSED, ask
from tests.unit.webapp.isolation.world import MARK, OPEN_PARAMETERS, World
from webapp.accounts.models import Membership
from webapp.accounts.tokens import SCOPES
from webapp.api.api import api
from webapp.api.calls.limits import BUCKETS
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
READS, SUBMITS = {"read", "admin"}, {"submit", "admin"}
# If the scope is not "read" for reading and "submit" for changes, any one of these suffices.
SCOPES_OF = {
    "verify_program": {"verify", "admin"},
    "submit_result": {"verify", "admin"},
    "get_verification": {"read", "verify", "admin"},
    "get_report": {"read", "verify", "admin"},
    "get_candidate_report": {"read", "verify", "admin"},
    "list_events": {"read", "verify", "admin"},
    "list_devices": set(SCOPES),
    "me": set(SCOPES),
}
STREAMED = {"stream_events"}  # not served by Django: see test_sockets_of_others.py
UNAUTHORISED = 401


def operations() -> list[tuple[str, str, str]]:
    """Returns (id, method, path) for each operation."""
    return [
        (operation["operationId"], method.upper(), path)
        for path, methods in api.get_openapi_schema()["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] not in STREAMED
    ]


def bodies(world: World) -> dict[str, dict[str, Any]]:
    """Returns the body that each changing operation expects, with A's ids wherever it takes an id."""
    program = world.run.task.source.replace("class Model(", "class ModelNew(")
    return {
        "verify_program": {"task": str(world.run.task_id), "program_source": program},
        "submit_result": {"task": str(world.run.task_id), "program_source": program},
        "create_task": {"source": world.run.task.source.replace("rms", "rms2"), "name": "t"},
        "start_run": {"task": str(world.run.task_id), "title": "t"},
        "control_run": {"action": "cancel"},
        "send_note": {"text": "skip row-cache"},
        "open_thread": {"place": {"kind": "run"}, "text": "t"},
        "reply_to_thread": {"text": "t"},
        "resolve_thread": {"resolved": True},
        "fork_run": {"at": 3, "changes": {"seed": 2}},
    }


def address(world: World, path: str) -> str:
    named = re.findall(r"{(\w+)}", path)
    lacking = [name for name in named if name not in world.by_parameter | OPEN_PARAMETERS]
    assert not lacking, f"say in tests/unit/webapp/isolation/world.py which object of team A {path} names by {', '.join(lacking)}"
    return path.format(**{name: world.by_parameter[name] for name in named})


def call(world: World, operation: tuple[str, str, str], user=None, token: str = "") -> Any:
    BUCKETS.clear()
    name, method, path = operation
    known = bodies(world)
    assert method == "GET" or name in known, f"say in {__file__} what {name} wants to be sent"
    return ask(user, method, address(world, path), known.get(name), token=token, json=method != "GET")


def of_team(operation: tuple[str, str, str]) -> bool:
    return "{" in operation[2]


@pytest.mark.slow
def test_what_is_tried_is_there(world):
    token = world.token(world.people["owner"], world.team)
    Run.objects.filter(pk=world.run.pk).update(workflow="verify")  # so that it is also a verification
    found = {op[0]: call(world, op, token=token).status_code for op in operations()}
    assert not {name: status for name, status in found.items() if status in REFUSED | {UNAUTHORISED, 500}}


@pytest.mark.slow
@pytest.mark.parametrize("role", ["owner", "member", "viewer"])
def test_no_token_or_session_of_another_team_reaches_it(world, role):
    stranger = world.strangers[role]
    token = world.token(stranger, world.other)
    found = {}
    for operation in operations():
        ways = {"token": {"token": token}, "session": {"user": stranger}}
        for way in ways if of_team(operation) or role == "owner" else ["token"]:
            response = call(world, operation, **ways[way])
            told = MARK.encode() in response.body
            if told or response.status_code == 500 or (of_team(operation) and response.status_code not in REFUSED):
                found[operation[0], way] = response.status_code
    assert not found


def test_ids_of_another_team_in_a_body_are_no_ids(world):
    token = world.token(world.strangers["owner"], world.other)
    for operation in operations():
        if operation[0] in ("verify_program", "submit_result", "start_run"):
            response = call(world, operation, token=token)
            assert response.status_code == 422 and b"no such task" in response.body


def test_a_token_is_for_its_own_team_alone(world):
    """If a person is in both teams, a token for one of them gives no access to the other."""
    both = world.people["owner"]
    Membership.objects.create(team=world.other, user=both, role="owner")
    token = world.token(both, world.other)
    found = {op[0]: call(world, op, token=token).status_code for op in operations() if of_team(op)}
    assert not {name: status for name, status in found.items() if status not in REFUSED}


@pytest.mark.parametrize("scope", [scope for scope in (*SCOPES, "") if scope != "admin"])
def test_a_scope_that_is_too_small_is_refused(world, scope):
    token = world.token(world.people["owner"], world.team, scope)
    wrong = {}
    for operation in operations():
        needed = SCOPES_OF.get(operation[0], READS if operation[1] == "GET" else SUBMITS)
        if scope in needed or operation[0] == "me":
            continue
        status = call(world, operation, token=token).status_code
        if status not in REFUSED:
            wrong[operation[0]] = status
    assert not wrong


def test_a_viewer_changes_nothing(world):
    viewer = world.people["viewer"]
    token = world.token(viewer, world.team)
    found = {}
    for operation in operations():
        if operation[1] != "GET":
            for way, response in (("token", call(world, operation, token=token)), ("session", call(world, operation, viewer))):
                if response.status_code not in REFUSED:
                    found[operation[0], way] = response.status_code
    assert not found


def test_without_a_token_or_with_a_bad_one_one_is_nobody(world):
    for operation in operations():
        assert call(world, operation).status_code == UNAUTHORISED, operation
        assert call(world, operation, token="sw_invented").status_code == UNAUTHORISED, operation


def test_a_removed_members_token_is_dead_at_once(world):
    member = world.people["member"]
    token = world.token(member, world.team)
    me = next(op for op in operations() if op[0] == "me")
    assert call(world, me, token=token).status_code == 200
    member.membership_set.filter(team=world.team).delete()
    assert call(world, me, token=token).status_code == UNAUTHORISED
