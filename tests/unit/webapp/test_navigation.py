"""The navigation bar: four destinations, and under Advanced the others that the team uses."""

from __future__ import annotations

import re

from django.urls import reverse
from django.utils import timezone

from tests.unit.webapp.cast import make_run
from webapp.arena.models import Arena
from webapp.knowledge.documents import save
from webapp.llm.models import Letter, Profile

LINK = re.compile(r'<a href="([^"]*)"[^>]*>([^<]*?)\s*<')


def bar(client, path: str = "/") -> tuple[list[str], list[str]]:
    """Returns the labels of the visible destinations, and of those under Advanced."""
    page = client.get(path).content.decode()
    nav = page.partition('<nav id="nav"')[2].partition('<div class="nav-end">')[0]
    before, _, group = nav.partition('<div class="nav-group">')
    return [label for _, label in LINK.findall(before)], [label for _, label in LINK.findall(group)]


def test_four_destinations_and_of_the_rest_what_is_used(people):
    client, team = people.client("alice"), people.alice.personal_team
    assert bar(client) == (["Runs", "Submit", "Leaderboard", "Review"], ["Devices", "All pages"])
    Arena.objects.create(team=team, name="a", created_by=people.alice)
    save(team=team, user=people.alice, title="notes", kind="text", text="warp shuffles")
    Profile.objects.create(name="fast", kind="openai", model="m")
    run = make_run(people.alice)
    Letter.objects.create(
        name="l", team=team, run=run, profile="p", waiting={"request": {"purpose": "coder", "messages": []}}, asked_at=timezone.now()
    )
    assert bar(client)[1] == ["Devices", "Mailbox", "Models", "Arena", "Documents", "All pages"]
    assert "Arena" not in bar(people.client("charlie"))[1]


def test_a_page_that_is_open_is_in_the_bar(people):
    assert bar(people.client("alice"), reverse("compare:compare"))[1] == ["Devices", "Compare", "All pages"]


def test_all_pages_are_listed_and_each_has_its_key_everywhere(people):
    client = people.client("alice")
    listed = client.get(reverse("ui:advanced")).content.decode()
    for name in (
        "compare:compare",
        "arena:list",
        "knowledge:strategies",
        "knowledge:documents",
        "llm:models",
        "llm:mailbox",
        "learning:list",
        "tasks:list",
        "tasks:verify",
    ):
        assert f'href="{reverse(name)}"' in listed
    home = client.get("/").content.decode()
    assert {f'data-key="g {key}"' for key in "rslidbmekohxctvn"} <= set(re.findall(r'data-key="g .+?"', home))


def test_the_address_of_the_runs_leads_to_them(people):
    answer = people.client("alice").get("/runs/", follow=True)
    assert answer.redirect_chain[-1][0] == "/" and answer.status_code == 200
