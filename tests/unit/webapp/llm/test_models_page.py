"""Profiles as announced by the orchestrator, trying one out, and what has been spent. No key is ever in the database or on a page."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from agents.events import NewEvent
from agents.llm import open_models
from tests.unit.webapp.cast import make_run
from webapp.llm import jobs
from webapp.llm.announce import announce
from webapp.llm.models import Announcement, ModelCall, Profile
from webapp.runs.trace.append import append
from webapp.runs.trace.projection import rebuild

PAGE = reverse("llm:models")
KEY = "sk-planted-0123456789"
PROFILES = """
[profiles.by-hand]
kind = "mailbox"

[profiles.fast]
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
model = "some-model"
api_key_env = "SOME_KEY"
prices = { input = 1.25, output = 10.0 }
limits = { concurrency = 4, tokens_per_minute = 200000, retries = 0 }
"""


@pytest.fixture
def models(tmp_path):
    (tmp_path / "llm.toml").write_text(PROFILES)
    return open_models({"DATA_DIR": str(tmp_path), "SOME_KEY": KEY})


def page(people, name: str = "alice") -> str:
    return people.client(name).get(PAGE).content.decode()


def test_without_an_orchestrator_the_page_says_so(people):
    assert "No orchestrator has reported its profiles" in page(people)
    Announcement.objects.create(pk=1, at=timezone.now() - timedelta(minutes=5))
    assert "No orchestrator responds" in page(people)


def test_profiles_are_shown_with_limits_and_prices_but_never_a_key(people, models):
    announce(models)
    shown = page(people)
    for said in ("by-hand", "fast", "some-model", "SOME_KEY", "$1.25 in, $10.0 out", "4 at a time", "200\u202f000 tokens a minute", "not tried yet"):
        assert said in shown, said
    assert ">set<" in shown.replace("</span>set", "</span>>set<") and KEY not in shown
    del models.environment["SOME_KEY"]
    announce(models)
    assert "not set" in page(people)
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(p::text, ' ') FROM llm_profile p")
        assert KEY not in cursor.fetchone()[0]


def test_a_file_that_cannot_be_used_is_shown_with_its_place(people, models, tmp_path):
    announce(models)
    (tmp_path / "llm.toml").write_text('[profiles.fast]\nkind = "openai"\nbase_url = "ftp://x"\nmodel = "m"\n')
    announce(models)
    shown = page(people)
    assert "The profiles can't be used" in shown and "key base_url" in shown and not Profile.objects.exists()
    (tmp_path / "llm.toml").write_text("")
    announce(models)
    assert "No profiles yet" in page(people)


def test_a_try_is_a_job_of_the_orchestrator(people, models, transactional_db):
    announce(models)
    answer = people.client("alice").post(reverse("llm:try", args=["fast"]), headers={"HX-Request": "true"})
    assert "trying" in answer.content.decode()
    people.client("alice").post(reverse("llm:try", args=["fast"]))
    with connection.cursor() as cursor:
        cursor.execute("SELECT queue_name, args::text FROM procrastinate_jobs WHERE task_name = 'try_profile'")
        assert cursor.fetchall() == [("orchestrator", '{"profile": "fast"}')], "twice is once"
    context = SimpleNamespace(additional_context={"orchestrator": SimpleNamespace(models=models)})
    for name in ("fast", "by-hand"):
        asyncio.run(jobs.try_model.func(context, name))
    shown = page(people)
    assert "does not work" in shown and "works" in shown and "trying" not in shown and KEY not in shown


def test_only_members_try_and_only_what_there_is(people, models):
    announce(models)
    assert people.client("alice").post(reverse("llm:try", args=["none"])).status_code == 404


def exchange(run, dollars: float | None, usage: dict | None = None, kind: str = "llm.completed") -> None:
    payload = {
        "key": "k", "profile": "fast", "purpose": "coder/repair", "model": "m", "usage": usage, "dollars": dollars, "seconds": 2.0,
        "spent": {"calls": 1, "tokens": 30},
    }  # fmt: skip
    append(run.pk, [NewEvent(kind=kind, span="step-1", agent="coder", payload=payload)])


def test_spending_is_counted_from_the_trace_by_team_and_month(people):
    run = make_run(people.alice)
    append(run.pk, [NewEvent(kind="run.started", payload={})])
    exchange(run, 0.25, {"input_tokens": 1000, "output_tokens": 234})
    exchange(run, 0.5, {"input_tokens": 2000, "output_tokens": 1})
    exchange(run, None, kind="llm.failed")
    assert [(c.agent, c.purpose, c.failed, c.input_tokens) for c in ModelCall.objects.order_by("seq")] == [
        ("coder", "coder/repair", False, 1000), ("coder", "coder/repair", False, 2000), ("coder", "coder/repair", True, None),
    ]  # fmt: skip
    rebuild(run.pk)
    assert ModelCall.objects.count() == 3
    shown = page(people, "bob")
    assert "$0.7500" in shown and "3\u202f000" in shown and "235" in shown and timezone.now().strftime("%B %Y") in shown
    assert "No run of your teams has used a language model yet" in page(people, "charlie")


def test_what_a_person_answered_has_no_usage(people):
    run = make_run(people.alice)
    exchange(run, None)
    assert page(people).count("unknown") >= 2
