"""`SANDBOX=none` is permitted only for a single account on loopback; every refusal gives the reason."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.test import RequestFactory
from django.urls import reverse

from tests.unit.webapp.cast import make_run
from webapp.accounts import teams, tokens
from webapp.accounts.management.commands import prepare
from webapp.accounts.models import ApiToken, Invitation
from webapp.environment import ROOT
from webapp.leaderboard.models import EVERYONE
from webapp.leaderboard.visibility import set_visibility
from webapp.review import shares
from webapp.supervisor.stack import Stack, StackError


@pytest.fixture
def waived(monkeypatch):
    monkeypatch.setenv("SANDBOX", "none")


def test_nobody_is_invited_and_nothing_is_published(people, waived):
    request = RequestFactory().post("/")
    request.user = people.alice
    team, run = people.alice.personal_team, make_run(people.alice, state="finished")
    for what, attempt in {
        "invitations": lambda: teams.invite(request, team, "member", days=1, most_uses=1),
        "tokens": lambda: tokens.issue(people.alice, team, "t", ["read"]),
        "shared links": lambda: shares.make(people.alice, run, place="", days=7, comments=False),
        "published results": lambda: set_visibility(run, EVERYONE),
    }.items():
        with pytest.raises(PermissionDenied, match=f"There are no {what} while SANDBOX=none: .* for one account"):
            attempt()
    client = people.client("alice")
    assert client.post(reverse("runs:publish", args=[run.pk])).status_code == 403
    run.refresh_from_db()
    assert not run.published and not ApiToken.objects.exists() and not Invitation.objects.exists()


def test_a_token_from_before_opens_nothing(people, monkeypatch):
    _, text = tokens.issue(people.alice, people.alice.personal_team, "t", ["read"])
    assert tokens.authenticate(f"Bearer {text}") is not None
    monkeypatch.setenv("SANDBOX", "none")
    assert tokens.authenticate(f"Bearer {text}") is None


def test_every_page_says_so(people, client, waived):
    for page in (people.client("alice").get(reverse("runs:list")), client.get(reverse("account_login"))):
        assert "SANDBOX=none" in page.content.decode() and "one account on this machine" in page.content.decode()


def test_nobody_signs_up(monkeypatch, tmp_path):
    code = "from django.conf import settings; print(settings.SIGN_UP_OPEN)"
    given = {"PATH": "/usr/bin:/bin", "DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "webapp.settings", "OPEN_SIGN_UP": "1", "SANDBOX": "none"}
    assert subprocess.run([sys.executable, "-c", code], env=given, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5"])
def test_it_listens_to_this_machine_alone(tmp_path, waived, host):
    stack = Stack(tmp_path / "data", port=1, host=host, only=["web"], debug=False)
    with pytest.raises(StackError, match=f"SANDBOX=none is for one account on this machine: {host} would let others in"):
        stack.run()


def test_an_installation_of_several_does_not_start(people, waived, monkeypatch):
    monkeypatch.setattr(prepare, "collect", lambda: None)
    monkeypatch.setattr(prepare.roles, "grant", lambda: None)
    with pytest.raises(CommandError, match="SANDBOX=none is for one account, and this installation has 2 more"):
        call_command("prepare")
