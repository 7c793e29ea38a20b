"""Guessing passwords is slowed down across all web processes, because the counts are rows in the database."""

from __future__ import annotations

import threading
from ipaddress import ip_network

import pytest
from django.conf import settings
from django.core import signing
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from webapp.accounts.models import AuditEntry, CachedValue
from webapp.accounts.sign_in import known_browser

PASSWORD = "correct horse staple"
SIGN_IN = reverse("account_login")


def attempt(name: str, password: str, address: str = "10.0.0.1", browser: Client | None = None, **headers: str) -> str:
    answer = (browser or Client()).post(SIGN_IN, {"login": name, "password": password}, REMOTE_ADDR=address, headers=headers)
    return answer.content.decode()


@pytest.fixture
def alice(people):
    people.alice.set_password(PASSWORD)
    people.alice.save()
    return people.alice


def test_five_wrong_passwords_close_a_name_for_that_address(people, alice):
    for _ in range(5):
        assert "Wrong name or password" in attempt("alice", "wrong")
    assert "Too many wrong attempts" in attempt("alice", PASSWORD)
    assert AuditEntry.objects.filter(team=alice.personal_team, action="sign_in.refused").count() == 5
    assert "Wrong name or password" in attempt("bob", "wrong")  # other people are not locked out as well
    CachedValue.objects.all().delete()
    assert attempt("alice", PASSWORD) == ""  # signed in


def test_a_stranger_closes_nobodys_name(alice):
    """However many addresses an attacker uses, Alice can still sign in from a different one."""
    for number in range(12):
        for _ in range(6):
            attempt("alice", "wrong", f"10.0.0.{number}")
    assert "Too many wrong attempts" in attempt("alice", PASSWORD, "10.0.0.3")
    assert attempt("alice", PASSWORD, "10.9.9.9") == ""


def test_a_network_of_addresses_of_version_six_is_one(alice):
    for number in range(5):
        attempt("alice", "wrong", f"2001:db8:1:2::{number + 1}")
    assert "Too many wrong attempts" in attempt("alice", PASSWORD, "2001:db8:1:2::99")
    assert attempt("alice", PASSWORD, "2001:db8:9:9::1") == ""


def test_a_stranger_closes_a_proxy_to_nobody(settings, alice):
    """If the proxy is configured, each person has a separate address; addresses that a client claims in front of the proxy are not trusted."""
    settings.TRUSTED_PROXIES = [ip_network("10.0.0.1")]
    for number in range(40):
        attempt(f"nobody-{number}", "wrong", **{"X-Forwarded-For": f"7.7.7.{number}, 6.6.6.6"})
    assert "Too many" in attempt("alice", PASSWORD, **{"X-Forwarded-For": "8.8.8.8, 6.6.6.6"})
    assert attempt("alice", PASSWORD, **{"X-Forwarded-For": "6.6.6.6, 8.8.8.8"}) == ""


def test_a_browser_that_she_has_used_before_stays_open_where_nobody_configured_the_proxy(people, alice):
    browser = Client()
    assert attempt("alice", PASSWORD, browser=browser) == ""
    browser.cookies.pop(settings.SESSION_COOKIE_NAME)
    for number in range(40):
        attempt(f"nobody-{number % 20}", "wrong")
        attempt("alice", "wrong")
    assert "Too many" in attempt("alice", PASSWORD)
    assert "Too many" in attempt("bob", "wrong", browser=browser)  # the browser's exemption counts only for her name
    for _ in range(5):
        assert "Wrong name or password" in attempt("alice", "wrong", browser=browser)
    assert "Too many wrong attempts" in attempt("alice", PASSWORD, browser=browser)  # and guessing does not become easier in that browser


def test_a_known_browser_cannot_be_made_up(alice):
    browser = Client()
    browser.cookies[known_browser.COOKIE] = signing.dumps({"alice": "x"}, salt="another")
    for _ in range(5):
        attempt("alice", "wrong")
    assert "Too many wrong attempts" in attempt("alice", PASSWORD, browser=browser)


def test_ten_wrong_passwords_from_one_address_close_the_address(people):
    for number in range(10):
        attempt(f"nobody-{number}", "wrong")
    assert "Too many wrong attempts" in attempt("nobody-11", "wrong")


def test_names_that_are_not_there_are_not_told_and_not_logged(people):
    for name in ("alice", "nobody"):
        assert "Wrong name or password" in attempt(name, "wrong")
    assert not AuditEntry.objects.filter(target="nobody").exists()


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_adds():
    won = []

    def add() -> None:
        from django.db import connection

        won.append(cache.add("lock", 1, 30))
        connection.close()

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 1


def test_the_cache_keeps_json_for_a_time(db):
    cache.set("list", [1.5, "x"], 30)
    assert cache.get("list") == [1.5, "x"] and cache.get("other", "none") == "none"
    cache.set("gone", 1, timeout=-1)
    assert cache.get("gone") is None and cache.add("gone", 2, 30) and cache.get("gone") == 2
    cache.set("kept", {"a": None}, timeout=None)
    assert cache.get("kept") == {"a": None} and not cache.add("kept", 1, None)
    assert cache.touch("list", 60) and not cache.touch("other") and cache.delete("list") and not cache.delete("list")
    assert cache.incr("gone") == 3
    cache.clear()
    assert not CachedValue.objects.exists()
    with pytest.raises(TypeError):
        cache.set("object", object())
