from __future__ import annotations

from html import unescape
from io import StringIO
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command

from tests.unit.webapp.cast import make_user
from webapp.accounts.models import SignInLink, User


def printed(*arguments: str) -> str:
    out = StringIO()
    call_command("signin_link", *arguments, stdout=out)
    return out.getvalue().strip()


def test_the_link_signs_in_once(db, client, monkeypatch):
    monkeypatch.setenv("PORT", "8123")
    make_user("ada")
    link = printed()
    assert link.startswith("http://127.0.0.1:8123/sign-in/")
    path = urlsplit(link).path
    assert client.get(path).status_code == 302 and client.get("/").status_code == 200
    client.logout()
    assert client.get(path).status_code == 410


def test_a_fresh_link_replaces_the_one_before(db, client):
    make_user("ada")
    first, second = printed(), printed("ada")
    assert client.get(urlsplit(first).path).status_code == 410
    assert client.get(urlsplit(second).path).status_code == 302


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, ".venv/bin/python manage.py signin_link"),
        ({"PORT": "8000"}, ".venv/bin/python manage.py signin_link"),
        ({"DATA_DIR": "/srv/with space", "PORT": "8123"}, "DATA_DIR='/srv/with space' PORT=8123 .venv/bin/python manage.py signin_link"),
        ({"DATABASE_URL": "postgresql://u:secret@h/d"}, "DATABASE_URL=… .venv/bin/python manage.py signin_link"),
        ({"BASE_URL": "https://a.example"}, "BASE_URL=https://a.example .venv/bin/python manage.py signin_link"),
    ],
)
def test_the_page_prints_what_has_to_be_typed_here(db, client, monkeypatch, given: dict, line: str):
    for name in ("DATA_DIR", "PORT", "BASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert line in unescape(client.get("/sign-in/").content.decode())
    far = unescape(client.get("/sign-in/", REMOTE_ADDR="203.0.113.9").content.decode())
    assert ">.venv/bin/python manage.py signin_link<" in far


def test_only_a_hash_is_kept(db):
    token = SignInLink.issue(make_user("ada"))
    assert token not in str(SignInLink.objects.values())


def test_behind_a_proxy(db, monkeypatch):
    monkeypatch.setenv("BASE_URL", "https://stitchwork.example/")
    make_user("ada")
    assert printed().startswith("https://stitchwork.example/sign-in/")


def test_who_is_not_there_is_named(db):
    make_user("ada")
    with pytest.raises(CommandError, match="no user 'eve'; there are: ada"):
        printed("eve")


def test_the_first_link_makes_the_first_user(db):
    printed()
    user = User.objects.get()
    assert user.personal_team.members.get() == user and not user.has_usable_password()
