"""Two-factor authentication: enabled, used with a password and with a one-time link, never twice with the same code, recovered, disabled."""

from __future__ import annotations

import time
from io import StringIO
from urllib.parse import urlsplit

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, generate_totp_secret, hotp_value
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from webapp.accounts.models import AuditEntry, SignInLink

PASSWORD = "correct horse staple"
SIGN_IN, CODE, ACCOUNT = reverse("account_login"), reverse("mfa_authenticate"), reverse("accounts:account")


def code(secret: str, step: int = 0) -> str:
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + step))


@pytest.fixture
def secret(people) -> str:
    people.alice.set_password(PASSWORD)
    people.alice.save()
    secret = generate_totp_secret()
    TOTP.activate(people.alice, secret)
    return secret


def half_way() -> Client:
    client = Client()
    client.post(SIGN_IN, {"login": "alice", "password": PASSWORD})
    assert client.get(ACCOUNT).status_code == 302  # not signed in yet
    return client


def test_a_password_alone_lets_nobody_in(secret):
    client = half_way()
    assert "This code is wrong" in client.post(CODE, {"code": "000000"}).content.decode()
    client.post(CODE, {"code": code(secret)})
    assert client.get(ACCOUNT).status_code == 200


def test_neither_does_a_one_time_link(people, secret):
    client = Client()
    assert client.get(reverse("accounts:sign_in_link", args=[SignInLink.issue(people.alice)])).headers["Location"] == CODE
    assert client.get(ACCOUNT).status_code == 302
    client.post(CODE, {"code": code(secret)})
    assert client.get(ACCOUNT).status_code == 200
    assert AuditEntry.objects.filter(action="sign_in", detail={"by": "link + mfa"}).exists()


@pytest.mark.parametrize("step", [-1, 0, 1])
def test_a_code_of_a_neighbouring_half_minute_counts_and_none_counts_twice(secret, step):
    used = code(secret, step)
    assert half_way().post(CODE, {"code": used}).status_code == 302
    assert half_way().post(CODE, {"code": used}).status_code == 200
    assert half_way().post(CODE, {"code": f"{used[:3]} {used[3:]}"}).status_code == 200


def test_an_installation_that_lost_its_key_says_what_to_do(people, secret, settings):
    client, inside = half_way(), people.client("alice")
    RecoveryCodes.activate(people.alice)
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another key than the one that the secrets were encrypted by"
    settings.SECRET_KEY_FALLBACKS = [old]
    answer = client.post(CODE, {"code": code(secret)})
    page = answer.content.decode()
    assert answer.status_code == 409 and "signin_link NAME --without-two-factor" in page and "secret_key" in page and secret not in page
    assert inside.get(reverse("mfa_index")).status_code == 409  # this page counts recovery codes
    assert client.get(ACCOUNT).status_code == 302  # still not signed in
    call_command("signin_link", "alice", without_two_factor=True, stdout=StringIO())
    assert inside.get(reverse("mfa_index")).status_code == 200


def test_guessing_codes_is_slowed_down(secret):
    client = half_way()
    for _ in range(5):
        client.post(CODE, {"code": "000000"})
    assert "Too many wrong attempts" in client.post(CODE, {"code": code(secret)}).content.decode()
    assert AuditEntry.objects.filter(action="sign_in.refused", detail={"wrong": "code"}).exists()


def test_the_secret_is_not_in_the_database(secret):
    assert secret not in str(list(Authenticator.objects.values()))


def test_on_in_the_browser_with_recovery_codes_that_work_once(people):
    client = people.client("alice")  # without a password, no further step is required
    page = client.get(reverse("mfa_activate_totp")).content.decode()
    secret = page.partition('id="totp-key">')[2].partition("<")[0]
    answer = client.post(reverse("mfa_activate_totp"), {"code": code(secret)}, follow=False)
    assert answer.headers["Location"] == reverse("mfa_view_recovery_codes")
    people.alice.set_password(PASSWORD)
    people.alice.save()
    codes = Authenticator.objects.get(type="recovery_codes").wrap().get_unused_codes()
    assert len(codes) == 10
    assert half_way().post(CODE, {"code": codes[0]}).status_code == 302
    assert half_way().post(CODE, {"code": codes[0]}).status_code == 200


def test_who_runs_the_machine_can_turn_it_off_for_somebody(people, secret):
    out = StringIO()
    call_command("signin_link", "alice", without_two_factor=True, stdout=out)
    client = Client()
    client.get(urlsplit(out.getvalue().strip()).path)
    assert client.get(ACCOUNT).status_code == 200 and not Authenticator.objects.exists()
    assert AuditEntry.objects.filter(action="two_factor.off", actor=people.alice, via="command").exists()


def test_turning_it_off_asks_who_one_is(people, secret):
    client = half_way()
    client.post(CODE, {"code": code(secret)})
    off = reverse("mfa_deactivate_totp")
    assert client.post(off).headers["Location"].startswith(reverse("account_reauthenticate"))
    assert Authenticator.objects.exists()
    client.post(reverse("account_reauthenticate") + f"?next={off}", {"password": PASSWORD, "next": off})  # then resumes the original request
    assert not Authenticator.objects.exists()
