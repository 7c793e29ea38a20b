"""The tasks that a team keeps."""

from __future__ import annotations

from django.urls import reverse

from tests.unit.webapp.people import make_result
from webapp.tasks.models import Suite

LIST = reverse("tasks:list")


def test_tasks_are_seen_by_the_team_only(people):
    task = make_result(people.alice, published=True).task
    page = reverse("tasks:task", args=[task.pk])
    for name, seen in (("alice", True), ("bob", True), ("charlie", False)):
        client = people.client(name)
        assert ("cell-title" in client.get(LIST).content.decode()) == seen
        assert client.get(page).status_code == (200 if seen else 404)


def test_search_looks_into_names_and_sources(people):
    make_result(people.alice)
    client = people.client("alice")
    for text, found in (("softmax", True), ("torch.softmax dim=1", True), ("layer_norm", False)):
        assert ("cell-title" in client.get(LIST, {"q": text}).content.decode()) == found, text


def test_suites_filter(people):
    task = make_result(people.alice).task
    suite = Suite.objects.create(team=people.alice.personal_team, name="KernelBench level 1", slug="kernelbench-1")
    client = people.client("alice")
    assert "cell-title" in client.get(LIST, {"suite": "none"}).content.decode()
    assert "No task matches" in client.get(LIST, {"suite": str(suite.pk)}).content.decode()
    task.suite = suite
    task.save()
    assert "cell-title" in client.get(LIST, {"suite": str(suite.pk)}).content.decode()


def test_a_task_shows_its_source_its_runs_and_what_to_do_with_it(people):
    run = make_result(people.alice)
    page = people.client("alice").get(reverse("tasks:task", args=[run.task_id])).content.decode()
    assert 'id="L10"' in page and reverse("runs:run", args=[run.pk]) in page and f"?task={run.task_id}" in page


def test_a_source_is_shown_as_text(people):
    run = make_result(people.alice)
    run.task.source += "# <script>alert(1)</script>\n"
    run.task.save()
    assert "<script>alert" not in people.client("alice").get(reverse("tasks:task", args=[run.task_id])).content.decode()
