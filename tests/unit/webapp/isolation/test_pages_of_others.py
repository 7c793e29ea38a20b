"""Every page of one team, requested in every role of another team, by a viewer if the page makes a change, and without signing in."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.browser.addresses import patterns
from tests.slowness import quick
from tests.unit.webapp.isolation.tried import CHANGES, NO_SUCH_METHOD, REFUSED, ask, leads_to_sign_in
from tests.unit.webapp.isolation.world import MARK, ids, unfilled
from webapp.accounts.models import ApiToken, AuditEntry, Invitation, Membership
from webapp.arena.models import Arena
from webapp.knowledge.models import Document
from webapp.llm.models import Letter
from webapp.review.models import Thread
from webapp.runs.models import Run
from webapp.tasks.models import Suite, Task

pytestmark = pytest.mark.django_db
PAGES = [p for p in patterns() if not p.name.startswith("api:")]  # the API has a separate test, based on its own document
# Intentionally open to everyone.
PUBLIC = {
    "", "openapi", "api_reference", "account_login", "account_signup", "account_inactive", "mfa_authenticate", "account_reset_password",
    "account_reset_password_done", "account_reset_password_from_key", "account_reset_password_from_key_done", "account_email_verification_sent",
    "account_confirm_email", "fleet:enrol", "accounts:sign_in_link", "accounts:invitation", "accounts:sign_out", "review:shared", "ui:glossary",
}  # fmt: skip
# Things that a viewer may change: only the viewer's own.
VIEWER_MAY = {
    "review:read": "how far one has read",
    "review:mark_read": "one's notifications",
    "review:choose": "what one wants to be told of",
    "accounts:tokens": "a token that may not do more than its owner",
    "accounts:new_team": "a team of one's own",
    "accounts:switch": "where one works",
    "runs:save_filter": "one's own filters of the list",
    "runs:dismiss": "what asks oneself for attention",
    "llm:try": "a word from a model of the installation, as a member of one's personal team",
    "tasks:check": "parsing a text",
    "tasks:module": "parsing a text",
}  # fmt: skip
PERSONAL = ("account_", "mfa_")  # the user's own sign-in methods


def pages(world, of_team: bool):
    """Returns the addresses that the world fills: `test_every_address_can_be_filled` covers the others."""
    return [p for p in PAGES if world.fills(p) is not None and world.of_team(p) == of_team]


def test_every_address_can_be_filled(world):
    assert not unfilled(world), "say in tests/unit/webapp/isolation/world.py which object of team A these name"


@pytest.mark.slow
def test_what_is_tried_is_there(world):
    """Requests the pages as the owner of the team; otherwise, refusing the others would prove nothing."""
    for user in (*world.people.values(), *world.strangers.values()):
        assert user.get_username() in ask(user, "GET", reverse("accounts:account")).body.decode()
    found = {}
    for pattern in pages(world, True):
        statuses = {method: ask(world.people["owner"], method, world.address(pattern), world.data(pattern)).status_code for method in ("GET", "POST")}
        if set(statuses.values()) <= REFUSED | {NO_SUCH_METHOD} or 500 in statuses.values():
            found[pattern.name] = statuses
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("role", ["owner", "member", "viewer"])
def test_nobody_of_another_team_reaches_it(world, role):
    found = {}
    for pattern in pages(world, True):
        for method in ("GET", *CHANGES):
            response = ask(world.strangers[role], method, world.address(pattern), world.data(pattern))
            if response.status_code not in REFUSED | {NO_SUCH_METHOD} or MARK.encode() in response.body:
                found[pattern.name, method] = response.status_code
    assert not found


def test_things_of_one_team_are_not_below_anothers(world):
    """`/runs/<theirs>/artefacts/<ours>`: the container belongs to them, but the object in it does not."""
    containers = {"run_id": world.theirs.pk, "team_id": world.other.pk}
    found = {}
    for pattern in pages(world, True):
        own = {name: value for name, value in containers.items() if name in pattern.parameters}
        if not own or set(pattern.parameters) <= set(own) | {"number", "tab", "seq"}:  # these are numbered within the container
            continue
        if "sides" in pattern.parameters:
            own["sides"] = f"{world.run.pk}:{world.by_parameter['number']}...task"
        for method in ("GET", "POST"):
            response = ask(world.strangers["owner"], method, world.address(pattern, **own), world.data(pattern))
            if response.status_code not in REFUSED | {NO_SUCH_METHOD} or MARK.encode() in response.body:
                found[pattern.name, method] = response.status_code
    assert not found


def test_signed_out_one_is_asked_to_sign_in(world):
    found = {}
    for pattern in pages(world, True) + pages(world, False):
        if pattern.name in PUBLIC:
            continue
        for method in ("GET", "POST"):
            response = ask(None, method, world.address(pattern))
            if not (leads_to_sign_in(response) or response.status_code in REFUSED | {401, NO_SUCH_METHOD}):
                found[pattern.name, method] = response.status_code
    assert not found


def test_public_pages_answer_whoever_asks_and_tell_nothing(world):
    found = {}
    for pattern in (p for p in pages(world, False) if p.name in PUBLIC):
        for method in ("GET", "POST"):
            response = ask(None, method, world.address(pattern))
            if response.status_code >= 500 or MARK.encode() in response.body:
                found[pattern.name, method] = response.status_code
    assert not found


@pytest.mark.slow
def test_a_viewer_changes_nothing(world):
    found = {}
    for pattern in pages(world, True) + pages(world, False):
        if pattern.name in PUBLIC | set(VIEWER_MAY) or pattern.name.startswith(PERSONAL):
            continue
        for method in CHANGES:
            status = ask(world.people["viewer"], method, world.address(pattern), world.data(pattern)).status_code
            if status not in REFUSED | {NO_SUCH_METHOD}:
                found[pattern.name, method] = status
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("role", quick(["viewer", "member", "owner"], 1))
def test_pages_without_an_object_tell_strangers_nothing(world, role):
    """Tests lists, searches, exports and forms, with A's ids in every parameter that a page reads."""
    stranger = world.strangers[role]
    queries = [
        {},
        {"q": MARK.partition("-")[0]},
        dict.fromkeys(QUERY, world.run.pk),
        {"with": f"{world.run.pk}:{world.by_parameter['number']}"},
        dict.fromkeys(QUERY, ",".join(ids(world))),
    ]
    found = {}
    for pattern in pages(world, False):
        if pattern.name in PUBLIC:
            continue
        for query in queries if role == "owner" else queries[:1]:
            response = ask(stranger, "GET", world.address(pattern), query)
            if response.status_code >= 500 or MARK.encode() in response.body:
                found[pattern.name, ",".join(query)] = response.status_code
    assert not found


QUERY = (
    "task",
    "from",
    "run",
    "runs",
    "ids",
    "arena",
    "suite",
    "team",
    "candidate",
    "candidates",
    "entry",
    "document",
    "thread",
    "who",
    "a",
    "b",
    "with",
)


def test_ids_of_another_team_in_forms_change_nothing(world):
    a, b = world.team, world.strangers["owner"]
    before = state_of(a)
    source = world.run.task.source
    tries = [
        (reverse("tasks:submit"), {"task": source, "device": "cpu", "precision": "fp32-strict", "mode": "train", "team": str(a.pk)}),
        (
            reverse("tasks:verify"),
            {"task": source, "program": source, "device": "cpu", "precision": "fp32-strict", "mode": "train", "team": str(a.pk)},
        ),
        (reverse("tasks:try"), {"source": source, "device": "cpu", "precision": "fp32-strict", "mode": "train", "team": str(a.pk)}),
        (reverse("arena:start"), {"team": str(a.pk), "tasks": [f"task:{world.run.task_id}", f"suite:{world.run.task.suite_id}"]}),
        (reverse("knowledge:new_document"), {"team": str(a.pk), "kind": "text", "title": "t", "text": "t"}),
        (reverse("accounts:switch"), {"team": str(a.pk)}),
    ]
    for url, data in tries:
        response = ask(b, "POST", url, data)
        assert response.status_code in {200, 302, 400, 403, 404, 422} and MARK.encode() not in response.body, url
        if response.status_code == 302:
            assert url not in (reverse("accounts:switch"),), "a stranger switched into the team"
    assert state_of(a) == before


def state_of(team) -> dict[str, list]:
    """Returns the rows that belong to the team."""
    models = (Run, Task, Suite, Document, Arena, Letter, Thread, Membership, Invitation, ApiToken, AuditEntry)
    return {model.__name__: list(model.objects.filter(team=team).order_by("pk").values()) for model in models}
