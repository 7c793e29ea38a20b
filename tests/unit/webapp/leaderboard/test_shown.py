"""Pages for a single task and for a single result, badges, and what a team makes visible to people without an account."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from django.test import Client
from django.urls import reverse

from tests.unit.webapp.cast import PROGRAM, SOURCE
from tests.unit.webapp.ranked import make_ranked, make_suite
from webapp.accounts.models import Membership
from webapp.leaderboard.models import Listing, Opening, Result
from webapp.leaderboard.shown.badge import COLOURS, badge, badge_of
from webapp.leaderboard.shown.headlines import of_result
from webapp.leaderboard.shown.task_page import baselines, ranked
from webapp.runs.models import Candidate, Run

pytestmark = pytest.mark.django_db
PUBLIC = ("table", "cells", "results")


def pages(run: Run) -> list[str]:
    result = Result.objects.get(run=run)
    named = [("task", run.task_id), ("shown", run.pk), ("badge", run.pk), ("entry", result.entry_id)]
    return [*(reverse(f"leaderboard:{name}") for name in PUBLIC), *(reverse(f"leaderboard:{name}", args=[of]) for name, of in named)]


def seen_by_anybody(run: Run) -> set[str]:
    """Pages that can be viewed without an account and that name the task."""
    found = set()
    for address in pages(run):
        answer = Client().get(address)
        assert answer.status_code in (200, 302, 404), address
        if answer.status_code == 200 and run.task.name in answer.content.decode():
            found.add(address)
    return found


def test_the_first_figure_is_over_the_best_baseline_by_name(people):
    row = Result.objects.select_related("provenance").get(run=make_ranked(people.alice, "softmax", 2.0))
    found = of_result(row)
    assert (found.outcome, found.against) == ("faster", "a CUDA graph of eager")
    assert found.first.ratio == pytest.approx(2.0 / 1.5)
    assert found.eager.ratio == pytest.approx(2.0)
    row.provenance.best_baseline, row.provenance.comparisons = "eager", {"eager": {}}
    alone = of_result(row)
    assert alone.provisional and alone.outcome == "promising" and alone.against == "eager"
    assert of_result(Result.objects.get(run=make_ranked(people.alice, "gelu", None))).outcome == "none"


def test_pages_lead_with_the_best_baseline_and_eager_comes_second(people):
    make_ranked(people.alice, "softmax", 3.0)
    client = people.client("alice")
    text = client.get(reverse("leaderboard:results")).content.decode()
    assert text.index("over a CUDA graph of eager") < text.index(">3.00×<")
    board = client.get(reverse("leaderboard:table"))
    assert board.context["filters"].against == "best"
    assert client.get(reverse("leaderboard:table"), {"against": "eager"}).context["filters"].query == "against=eager"


def test_a_task_has_its_ranking_record_and_baselines(people):
    for ratio in (2.0, 1.8, 3.0):
        make_ranked(people.alice, "softmax", ratio)
    questioned = make_ranked(people.alice, "softmax", 9.0)
    Candidate.objects.filter(run=questioned).update(verdict="hack")
    make_ranked(people.alice, "softmax", None)
    flagged = make_ranked(people.alice, "softmax", 8.0, flags=["trivial"])
    response = people.client("alice").get(reverse("leaderboard:task", args=[questioned.task_id]))
    found = response.context["found"]
    eager = [(line.rank, line.record, line.result.eager and round(line.result.eager, 6)) for line in found.lines]
    assert eager[:3] == [(1, True, 3.0), (2, True, 2.0), (3, False, 1.8)]
    assert {rank for rank, _, _ in eager[3:]} == {None} and not any(record for _, record, _ in eager[3:])
    assert flagged.pk in {line.result.run_id for line in found.lines}
    assert [(line.name, line.ms, line.best) for line in found.baselines] == [
        ("a CUDA graph of eager", 2.0, True), ("torch.compile", 2.4, False), ("eager", 3.0, False),
    ]  # fmt: skip
    points = response.context["pictures"]["points"]
    assert [point["record"] for point in points] == [True, False, True]
    assert json.dumps(points)
    assert ranked([]) == [] and baselines([]) == []


def test_a_setup_is_chosen_and_a_gpu_comes_first(people):
    make_ranked(people.alice, "softmax", 5.0, device="cpu")
    make_ranked(people.alice, "softmax", 5.0, device="cpu")
    run = make_ranked(people.alice, "softmax", 2.0)
    address = reverse("leaderboard:task", args=[run.task_id])
    client = people.client("alice")
    assert client.get(address).context["found"].setup.device_kind == "cuda"
    other = Result.objects.filter(setup__device_kind="cpu").first().setup_id
    assert client.get(address, {"setup": other}).context["found"].total == 2
    assert client.get(address, {"setup": "9" * 30}).context["found"].setup.device_kind == "cuda"


@pytest.mark.slow
def test_nothing_is_seen_without_an_account_until_a_team_opens_what_it_has_published(people):
    run = make_ranked(people.alice, "secret_softmax", 2.0, published=True)
    private = make_ranked(people.alice, "hidden_gelu", 2.0)
    other = make_ranked(people.charlie, "other_exp", 2.0, published=True)
    assert seen_by_anybody(run) == set()
    opening = reverse("leaderboard:opening")
    assert people.client("bob").post(opening, {"open": "1"}).status_code == 403
    assert Client().post(opening, {"open": "1"}).status_code == 302
    assert people.client("alice").post(opening, {"open": "1"}).status_code == 302
    assert len(seen_by_anybody(run)) >= 5
    for closed in (private, other):
        assert seen_by_anybody(closed) == set()
        texts = "".join(Client().get(address).content.decode() for address in pages(run))
        assert closed.task.name not in texts and closed.team.name not in texts.replace(run.team.name, "")
    # Evidence, exports and all other pages still require an account.
    for name in ("csv", "json", "entries_csv", "suites"):
        assert Client().get(reverse(f"leaderboard:{name}")).status_code == 302
    result = Result.objects.get(run=run)
    assert Client().get(reverse("leaderboard:result", args=[result.pk]))["Location"] == reverse("leaderboard:shown", args=[run.pk])
    assert Client().get(reverse("runs:run", args=[run.pk])).status_code == 302
    people.client("alice").post(opening, {"open": "0"})
    assert not Opening.objects.exists() and seen_by_anybody(run) == set()


def test_withdrawing_a_run_takes_its_page_and_badge_back(people):
    run = make_ranked(people.alice, "softmax", 2.0, published=True)
    Opening.objects.create(team=run.team)
    badge_address = reverse("leaderboard:badge", args=[run.pk])
    shown = Client().get(badge_address)
    assert shown.status_code == 200 and "public" in shown["Cache-Control"]
    Run.objects.filter(pk=run.pk).update(published=False)
    gone, never = Client().get(badge_address), Client().get(reverse("leaderboard:badge", args=["00000000-0000-4000-8000-000000000000"]))
    assert gone.status_code == never.status_code == 404 and gone.content == never.content
    assert "no-store" in people.client("alice").get(badge_address)["Cache-Control"]


@pytest.mark.parametrize(
    ("ratio", "verdict", "said", "tone"),
    [(3.0, "", "2.00× vs a CUDA graph of eager, H200", "ok"), (1.5, "", "1.00× vs", "idle"), (1.0, "", "0.67× vs", "bad"),
     (None, "", "no confirmed program", "idle"), (3.0, "hack", "result hack", "warn")],
)  # fmt: skip
def test_a_badge_says_what_the_result_came_to(people, ratio, verdict, said, tone):
    run = make_ranked(people.alice, "softmax", ratio)
    Candidate.objects.filter(run=run).update(verdict=verdict)
    picture = badge_of(Result.objects.select_related("provenance", "setup").get(run=run))
    assert said in picture and COLOURS[tone] in picture


def test_a_badge_is_sound_xml_whatever_it_says():
    tree = ElementTree.fromstring(badge('"><script>alert(1)</script>&' + "x" * 200, "ok"))
    assert not [element for element in tree.iter() if element.tag.endswith(("script", "foreignObject", "style"))]
    assert len("".join(tree.itertext())) < 300


def submit(client, **more):
    sent = {"task_source": SOURCE, "program_source": PROGRAM, **more}
    return client.post("/api/v1/leaderboard/results", json.dumps(sent), content_type="application/json")


def test_a_result_is_submitted_by_the_api_and_is_verified_in_full(people):
    answer = submit(people.client("alice"), visibility="private")
    assert answer.status_code == 201, answer.content
    run = Run.objects.get(pk=answer.json()["verification"]["id"])
    assert (run.workflow, run.settings["tier"], Listing.objects.get(run=run).visibility) == ("verify", "full", "private")
    assert answer.json()["page"].endswith(reverse("leaderboard:shown", args=[run.pk]))
    assert answer.json()["badge"].endswith("/badge.svg")


def test_only_an_owner_publishes_by_the_api_and_nothing_is_left_of_a_refusal(people):
    assert Membership.objects.get(user=people.bob, team=people.alice.personal_team).role == "member"
    assert submit(people.client("bob"), visibility="everyone").status_code == 403
    assert not Run.objects.exists()
    assert submit(people.client("alice"), visibility="everyone").status_code == 201
    assert Run.objects.get().published
    assert submit(people.client("alice"), visibility="nobody").status_code == 422


def test_suites_stand_beside_each_other_with_each_entrys_row_in_each(people):
    make_suite(people.alice, ["a", "b"], "KernelBench L1", "kernelbench-level1")
    make_suite(people.alice, ["c"], "KernelBench L2", "kernelbench-level2")
    make_suite(people.charlie, ["d"], "Charlie's", "charlies")
    make_ranked(people.alice, "a", 2.0)
    make_ranked(people.alice, "c", 3.0)
    make_ranked(people.alice, "c", 4.0, llm="gpt-x")
    client = people.client("alice")
    found = client.get(reverse("leaderboard:beside")).context["found"]
    assert [board.suite.name for board in found.boards] == ["KernelBench L1", "KernelBench L2"]
    shown = {str(name): [row and row.passed for row in rows] for _, name, baseline, rows in found.lines if not baseline}
    assert shown == {"stitch · built-in": [1, 1], "stitch · gpt-x": [None, 1]}
    assert str(found.lines[-1][1]) == "stitch · gpt-x"
    one = client.get(reverse("leaderboard:beside"), {"suites": "kernelbench-level2,charlies,nothing"}).context["found"]
    assert [board.suite.key for board in one.boards] == ["kernelbench-level2"]
    assert people.client("bob").get(reverse("leaderboard:beside"), {"against": "eager"}).status_code == 200
