"""Signing in with a link and with a password, and setting a password."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from webapp.accounts.models import SignInLink

PASSWORD = "correct horse staple"
ACCOUNT, SIGN_IN = reverse("accounts:account"), reverse("account_login")
SET, CHANGE = reverse("account_set_password"), reverse("account_change_password")


def link(user, **options) -> str:
    return reverse("accounts:sign_in_link", args=[SignInLink.issue(user, **options)])


def test_a_link_signs_in_once(people):
    url = link(people.alice)
    first = Client()
    assert first.get(url).headers["Location"] == reverse("runs:list")
    assert first.get(ACCOUNT).status_code == 200
    answer = Client().get(url)
    assert answer.status_code == 410 and "no longer works" in answer.content.decode()


def test_opening_a_used_link_again_in_the_same_browser_leads_home(people):
    url, client = link(people.alice), Client()
    client.get(url)
    assert client.get(url).status_code == 302


def test_looking_at_a_link_does_not_use_it_up(people):
    url = link(people.alice)
    assert Client().head(url).status_code == 405
    assert Client().get(url).status_code == 302


def test_links_that_are_too_old_replaced_or_invented_do_not_work(people):
    old, replaced = link(people.alice, lifetime=timedelta(seconds=-1)), link(people.bob)
    link(people.bob)
    for url in (old, replaced, reverse("accounts:sign_in_link", args=["invented"])):
        assert Client().get(url).status_code == 410


@pytest.mark.slow
def test_a_person_without_a_password_is_told_and_sets_one(people):
    client = Client()
    client.get(link(people.alice))
    assert "Set a password" in client.get(reverse("runs:list")).content.decode()
    answer = client.post(SET, {"password1": PASSWORD, "password2": PASSWORD}, follow=True)
    assert "Password set" in answer.content.decode()
    assert "Set a password" not in client.get(reverse("runs:list")).content.decode()
    other = Client()
    assert other.post(SIGN_IN, {"login": "alice", "password": PASSWORD}).headers["Location"] == reverse("runs:list")


def test_weak_or_unequal_passwords_are_refused_with_the_reason(people):
    client = people.client("alice")
    for first, second, reason in (
        ("short", "short", "too short"),
        (PASSWORD, "another one entirely", "same password"),
        ("password123", "password123", "common"),
    ):
        answer = client.post(SET, {"password1": first, "password2": second})
        assert answer.status_code == 200 and reason in answer.content.decode()
        people.alice.refresh_from_db()
        assert not people.alice.has_usable_password()


def test_changing_a_password_asks_for_the_present_one_and_signs_others_out(people):
    people.alice.set_password(PASSWORD)
    people.alice.save()
    mine, other = people.client("alice"), people.client("alice")
    changed = {"password1": "another horse staple", "password2": "another horse staple"}
    assert "your current password" in mine.post(CHANGE, {"oldpassword": "wrong", **changed}).content.decode()
    assert mine.post(CHANGE, {"oldpassword": PASSWORD, **changed}).status_code == 302
    assert mine.get(ACCOUNT).status_code == 200
    assert other.get(ACCOUNT).status_code == 302


def test_a_wrong_password_keeps_the_name_and_says_what_to_do(people):
    answer = Client().post(SIGN_IN, {"login": "alice", "password": "wrong"})
    page = answer.content.decode()
    assert "Wrong name or password" in page and 'value="alice"' in page and "one-time link" in page and 'value="wrong"' not in page


def test_signing_in_leads_where_one_wanted_to_go_but_never_elsewhere(people):
    people.alice.set_password(PASSWORD)
    people.alice.save()
    for wanted, lands in (("/devices/", "/devices/"), ("https://elsewhere.example/", "/"), ("//elsewhere.example/", "/")):
        assert Client().post(SIGN_IN, {"login": "alice", "password": PASSWORD, "next": wanted}).headers["Location"] == lands


def test_signing_out_needs_a_post(people):
    client = people.client("alice")
    assert client.get(reverse("accounts:sign_out")).status_code == 405
    client.post(reverse("accounts:sign_out"))
    assert client.get(ACCOUNT).status_code == 302


def test_the_account_shows_ones_teams_only(people):
    page = people.client("bob").get(ACCOUNT).content.decode()
    assert ">alice</a>" in page and ">bob</a>" in page and "charlie" not in page
