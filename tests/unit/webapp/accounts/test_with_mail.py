"""Additional features of an installation that sends mail."""

from __future__ import annotations

import re
from smtplib import SMTPServerDisconnected

import pytest
from django.core import mail
from django.test import Client
from django.urls import reverse

from webapp.accounts.models import AuditEntry, User

PASSWORD = "correct horse staple"
FORGOTTEN = reverse("account_reset_password")


@pytest.fixture
def with_mail(settings):
    settings.MAIL = True
    settings.ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*", "password2*"]
    settings.ACCOUNT_EMAIL_VERIFICATION = "optional"
    settings.ACCOUNT_EMAIL_NOTIFICATIONS = True


def link_in(message) -> str:
    return re.search(r"http://testserver(/\S+)", message.body)[1]


def test_without_mail_nothing_of_it_is_offered(people):
    assert Client().get(FORGOTTEN).status_code == 404
    assert "forgotten" not in Client().get(reverse("account_login")).content.decode()
    assert people.client("alice").get(reverse("account_email")).status_code == 404


def test_a_forgotten_password_is_set_anew_by_a_link_that_works_once(people, with_mail):
    people.alice.email = "alice@example.org"
    people.alice.save()
    client = Client()
    assert FORGOTTEN in client.get(reverse("account_login")).content.decode()
    assert client.post(FORGOTTEN, {"email": "alice@example.org"}).headers["Location"] == reverse("account_reset_password_done")
    link = link_in(mail.outbox[0])
    form = client.get(link).headers["Location"]
    assert "New password" in client.get(form).content.decode()
    client.post(form, {"password1": PASSWORD, "password2": PASSWORD})
    people.alice.refresh_from_db()
    assert people.alice.check_password(PASSWORD)
    assert AuditEntry.objects.filter(action="password.changed", target="alice").exists()
    assert "no longer works" in Client().get(link, follow=True).content.decode()


def test_an_unknown_address_is_answered_alike(people, with_mail):
    assert Client().post(FORGOTTEN, {"email": "nobody@example.org"}).headers["Location"] == reverse("account_reset_password_done")


def test_an_address_is_added_and_confirmed(people, with_mail):
    client, page = people.client("alice"), reverse("account_email")
    client.post(page, {"email": "alice@example.org", "action_add": ""})
    assert "isn't confirmed yet" in client.get(page).content.decode()
    link = link_in(mail.outbox[0])
    assert "It is mine" in client.get(link).content.decode()
    client.post(link)
    assert "confirmed" in client.get(page).content.decode()
    assert User.objects.get(pk=people.alice.pk).email == "alice@example.org"


def test_an_address_that_is_taken_makes_no_second_account(people, with_mail, settings):
    settings.SIGN_UP_OPEN = True
    people.alice.email = "alice@example.org"
    people.alice.save()
    given = {"username": "eve", "email": "alice@example.org", "password1": PASSWORD, "password2": PASSWORD}
    answer = Client(raise_request_exception=False).post(reverse("account_signup"), given)
    assert answer.status_code < 500
    assert User.objects.filter(email="alice@example.org").count() == 1 or not User.objects.get(username="eve").emailaddress_set.filter(verified=True)


@pytest.mark.parametrize("failure", [ConnectionRefusedError(111, "refused"), TimeoutError(), SMTPServerDisconnected("gone")])
def test_a_mail_server_that_is_away_keeps_nobody_out(people, with_mail, monkeypatch, failure):
    def refuse(*arguments, **named):
        raise failure

    people.alice.email = "alice@example.org"
    people.alice.set_password(PASSWORD)
    people.alice.save()
    monkeypatch.setattr(mail.EmailMultiAlternatives, "send", refuse)
    monkeypatch.setattr(mail.EmailMessage, "send", refuse)
    client = Client()
    answer = client.post(reverse("account_login"), {"login": "alice", "password": PASSWORD}, follow=True)
    assert answer.status_code == 200 and answer.redirect_chain[-1][0] == reverse("runs:list")
    answer = Client().post(FORGOTTEN, {"email": "alice@example.org"}, follow=True)
    assert answer.status_code == 200 and "no mail was sent" in answer.content.decode()
