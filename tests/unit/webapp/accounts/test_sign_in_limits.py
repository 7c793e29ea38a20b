"""Guessing passwords is slowed down over all web processes together: the counts are rows of the database."""

from __future__ import annotations

import threading

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from webapp.accounts.models import AuditEntry, CachedValue

PASSWORD = "correct horse staple"
SIGN_IN = reverse("account_login")


def attempt(name: str, password: str, address: str = "10.0.0.1") -> str:
    return Client(REMOTE_ADDR=address).post(SIGN_IN, {"login": name, "password": password}).content.decode()


def test_five_wrong_passwords_close_a_name_for_a_while(people):
    people.alice.set_password(PASSWORD)
    people.alice.save()
    for number in range(5):
        assert "do not belong together" in attempt("alice", "wrong", f"10.0.0.{number}")
    assert "Too many wrong attempts" in attempt("alice", PASSWORD, "10.0.0.9")
    assert AuditEntry.objects.filter(team=people.alice.personal_team, action="sign_in.refused").count() == 5
    assert "do not belong together" in attempt("bob", "wrong", "10.0.0.9")  # others are not closed with it
    CachedValue.objects.all().delete()
    assert attempt("alice", PASSWORD) == ""  # in


def test_ten_wrong_passwords_from_one_address_close_the_address(people):
    for number in range(10):
        attempt(f"nobody-{number}", "wrong")
    assert "Too many wrong attempts" in attempt("nobody-11", "wrong")


def test_names_that_are_not_there_are_not_told_and_not_logged(people):
    for name in ("alice", "nobody"):
        assert "This name and password do not belong together" in attempt(name, "wrong")
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
