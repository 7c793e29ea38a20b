"""Error pages: they state what happened and what to do, and never show a traceback."""

from __future__ import annotations

import uuid

from django.test import Client
from django.urls import reverse

from webapp.runs.pages import views_list


def test_nothing_here(people):
    for client in (people.client("alice"), Client()):
        answer = client.get("/no/such/page")
        assert answer.status_code == 404 and "Page not found" in answer.content.decode()


def test_a_run_that_does_not_exist_looks_like_one_that_is_not_yours(people):
    answer = people.client("alice").get(reverse("runs:run", args=[uuid.uuid4()]))
    assert answer.status_code == 404 and "no such run" not in answer.content.decode()


def test_a_broken_view_shows_no_traceback(people, monkeypatch):
    def broken(team, listing):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(views_list, "page_of", broken)
    client = people.client("alice")
    client.raise_request_exception = False
    answer = client.get(reverse("runs:list"))
    page = answer.content.decode()
    assert answer.status_code == 500 and "Something went wrong on our side" in page and "secret detail" not in page and "Traceback" not in page


def test_strange_parameters_break_nothing(people):
    client = people.client("alice")
    for url in (reverse("runs:list"), reverse("tasks:list"), reverse("leaderboard:table")):
        for query in ("?q=%00", "?q=%25_%27%22", "?page=-1", "?page=x", "?suite=x&state=x&device=%00&task=%00&class=%2B%2B", "?q=" + "long " * 200):
            assert client.get(url + query).status_code == 200, url + query


def test_a_form_from_before_signing_in_says_so(people):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.alice)
    answer = client.post(reverse("accounts:sign_out"))
    assert answer.status_code == 403 and "This form has expired" in answer.content.decode()


def test_a_request_that_is_too_large_is_refused_in_words(people):
    answer = people.client("alice").post(reverse("tasks:check"), {"kind": "task", "source": "#" * 5_000_000})
    assert answer.status_code == 400 and "at most 512 KiB" in answer.content.decode()


def test_pages_bring_a_policy_that_allows_nothing_inline(people):
    answer = people.client("alice").get(reverse("runs:list"))
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    page = answer.content.decode()
    assert " style=" not in page and "<style" not in page and " onclick=" not in page
    assert all("src=" in tag for tag in page.split("<script")[1:])
