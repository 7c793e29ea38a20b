"""The list of runs."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from urllib.parse import urlencode

import pytest
from django.urls import reverse
from django.utils import timezone

from tests.unit.webapp.cast import make_run
from tests.unit.webapp.people import make_result
from webapp.runs.models import Run, SavedFilter
from webapp.runs.pages.census import FILTERS, STATES, Census

LIST = reverse("runs:list")


def test_an_anonymous_visitor_signs_in_first(client, db):
    assert client.get(LIST).headers["Location"].startswith(reverse("account_login"))


def test_an_empty_list_says_what_to_do_next(people):
    page = people.client("alice").get(LIST).content.decode()
    assert "No runs yet" in page and "Start with an example" in page


def test_team_mates_see_a_run_and_outsiders_do_not(people):
    make_run(people.alice)
    assert "softmax" in people.client("alice").get(LIST).content.decode()
    assert "softmax" in people.client("bob").get(LIST).content.decode()
    assert "No runs yet" in people.client("charlie").get(LIST).content.decode()


def test_a_published_run_is_not_in_the_list_of_others(people):
    make_result(people.alice, published=True)
    assert "No runs yet" in people.client("charlie").get(LIST).content.decode()


def test_a_row_shows_speedup_with_interval_class_and_device(people):
    make_result(people.alice, ratio=2.0, device="cuda")
    page = people.client("alice").get(LIST).content.decode()
    assert "<b>1.60×</b>" in page and "[1.52, 1.68]" in page and "over torch.compile" in page and "custom 90 %" in page and "H200" in page


def test_search_takes_every_word(people):
    make_run(people.alice)
    client = people.client("alice")
    assert "cell-title" in client.get(LIST, {"q": "soft alice"}).content.decode()
    page = client.get(LIST, {"q": "soft nothing"}).content.decode()
    assert "No run matches" in page and 'value="soft nothing"' in page


def test_states_filter_and_count(people):
    make_run(people.alice)
    make_result(people.alice)
    client = people.client("alice")
    assert client.get(LIST, {"state": "active"}).content.decode().count("cell-title") == 1
    assert client.get(LIST, {"state": "improved"}).content.decode().count("cell-title") == 1
    assert "No run matches" in client.get(LIST, {"state": "archived"}).content.decode()
    assert client.get(LIST, {"state": "no such state"}).status_code == 200


def test_archiving_takes_a_run_out_of_the_list_and_back(people):
    run = make_result(people.alice)
    client = people.client("bob")
    client.post(reverse("runs:archive", args=[run.pk]))
    assert client.get(LIST).content.decode().count("cell-title") == 0
    client.post(reverse("runs:archive", args=[run.pk]), {"restore": ""})
    assert client.get(LIST).content.decode().count("cell-title") == 1


def test_a_run_that_goes_on_is_not_archived(people):
    run = make_run(people.alice, state="running")
    answer = people.client("alice").post(reverse("runs:archive", args=[run.pk]), follow=True)
    assert "has not finished" in answer.content.decode()
    run.refresh_from_db()
    assert run.archived_at is None


def test_outsiders_steer_nothing(people):
    run = make_result(people.alice)
    for name in ("archive", "publish", "rerun"):
        assert people.client("charlie").post(reverse(f"runs:{name}", args=[run.pk])).status_code == 404


def test_a_published_run_is_seen_but_not_steered_by_others(people):
    run = make_result(people.alice, published=True)
    assert people.client("charlie").post(reverse("runs:publish", args=[run.pk]), {"withdraw": ""}).status_code == 403


def test_viewers_do_not_steer(people):
    run = make_result(people.alice)
    people.bob.membership_set.filter(team=run.team).update(role="viewer")
    assert people.client("bob").post(reverse("runs:archive", args=[run.pk])).status_code == 403


def test_running_again_makes_a_run_of_its_own(people):
    run = make_result(people.alice)
    run.settings = {"workflow": "stitch", "device": "cpu"}
    run.save()
    answer = people.client("bob").post(reverse("runs:rerun", args=[run.pk]))
    again = Run.objects.exclude(pk=run.pk).get()
    assert answer.headers["Location"] == reverse("runs:run", args=[again.pk])
    assert (again.task, again.team, again.created_by, again.state) == (run.task, run.team, people.bob, "queued")


def test_live_cells_are_only_those_of_ones_own_runs(people):
    run = make_run(people.alice, state="running", started_at=timezone.now())
    query = {"ids": str(run.pk), "since": timezone.now().isoformat()}
    assert f"status-{run.pk}" in people.client("bob").get(reverse("runs:live"), query).content.decode()
    assert f"status-{run.pk}" not in people.client("charlie").get(reverse("runs:live"), query).content.decode()


def test_live_says_how_many_runs_are_newer(people):
    before = timezone.now().isoformat()
    make_run(people.alice)
    assert "Show 1 new run<" in people.client("alice").get(reverse("runs:live"), {"ids": "", "since": before}).content.decode()


def test_live_refuses_what_it_cannot_read(people):
    assert people.client("alice").get(reverse("runs:live"), {"ids": "x"}).status_code == 400


def test_going_back_after_an_action_stays_on_this_site(people):
    run = make_result(people.alice)
    client = people.client("alice")
    here = LIST + "?" + urlencode({"state": "improved"})
    assert client.post(reverse("runs:publish", args=[run.pk]), {"next": here}).headers["Location"] == here
    assert client.post(reverse("runs:publish", args=[run.pk]), {"next": "https://elsewhere.example/"}).headers["Location"] == LIST


def many(user, count: int) -> list[Run]:
    """Creates runs in pairs with the same time and the same speedup, so that pages must break ties."""
    first = make_run(user)
    now = timezone.now()
    runs = [
        Run(team=first.team, task=first.task, title=f"run {n}", created_by=user, created_at=now - timedelta(minutes=n // 2), state="finished",
            outcome="improved" if n % 3 else "failed", device_kind="cuda" if n % 2 else "cpu", started_at=now - timedelta(minutes=n // 2 + 5),
            finished_at=now - timedelta(minutes=n // 4), gain=None if n % 5 == 0 else 1 + (n // 2) / 10, headline="faster" if n % 3 else "wrong")
        for n in range(count)
    ]  # fmt: skip
    Run.objects.bulk_create(runs)
    first.delete()
    return runs


def titles(page: str) -> list[str]:
    return re.findall(r'class="cell-title"[^>]*>([^<]+)<', page)


@pytest.mark.parametrize("order", ["-created", "created", "-speedup", "speedup", "-time", "time"])
def test_pages_by_cursor_show_every_run_once_there_and_back(people, order):
    many(people.alice, 120)
    client = people.client("alice")
    address, seen, pages = f"{LIST}?sort={order}", [], []
    while address:
        page = client.get(address).content.decode()
        pages.append(titles(page))
        seen += titles(page)
        last = page
        found = re.search(r'rel="next" href="([^"]+)"', page)
        address = LIST + unescape(found[1]) if found else None
    assert len(seen) == len(set(seen)) == 120 and [len(page) for page in pages] == [50, 50, 20]
    back = re.search(r'rel="prev" href="([^"]+)"', last)
    assert titles(client.get(LIST + unescape(back[1])).content.decode()) == pages[1]


def test_the_order_is_that_of_the_column(people):
    many(people.alice, 30)
    client = people.client("alice")
    fastest = titles(client.get(LIST, {"sort": "-speedup"}).content.decode())
    assert fastest[0] in ("run 28", "run 29") and fastest[-1] in {f"run {n}" for n in range(0, 30, 5)}


def test_the_list_is_sorted_by_the_figure_that_it_shows_first(people):
    over_eager = make_result(people.alice, ratio=4.0, best_baseline_speedup=1.1)
    over_the_best = make_result(people.alice, ratio=2.0, best_baseline_speedup=1.5)
    client = people.client("alice")
    for order, expected in (("-speedup", [over_the_best, over_eager]), ("speedup", [over_eager, over_the_best])):
        page = client.get(LIST, {"sort": order}).content.decode()
        assert re.findall(r'id="speedup-([^"]+)"', page) == [str(run.pk) for run in expected]


def test_a_run_that_beats_eager_alone_is_not_among_the_faster_ones(people):
    make_result(people.alice, ratio=2.0, best_baseline_speedup=0.9, baselines=2)
    faster = make_result(people.alice, ratio=2.0, best_baseline_speedup=1.4, baselines=2)
    client = people.client("alice")
    for query in ({"state": "improved"}, {"result": "faster"}):
        assert re.findall(r'id="speedup-([^"]+)"', client.get(LIST, query).content.decode()) == [str(faster.pk)]
    page = client.get(LIST).content.decode()
    assert '<option value="none">No reliable speedup: keep your model</option>' in page and 'name="outcome"' not in page


def test_a_saved_filter_of_before_lists_what_it_listed(people):
    make_result(people.alice, ratio=2.0, best_baseline_speedup=0.9, baselines=2)
    SavedFilter.objects.create(user=people.alice, team=people.alice.personal_team, name="good", query="outcome=improved&sort=-speedup")
    client = people.client("alice")
    address = re.search(r'class="saved"><a href="([^"]+)"', client.get(LIST).content.decode())[1]
    page = client.get(unescape(address)).content.decode()
    assert len(titles(page)) == 1 and 'aria-current="true">good' in page
    assert 'Outcome over eager <select name="outcome"' in page and '<option value="improved" selected>' in page


def test_filters_narrow_and_say_what_they_can_be_set_to(people):
    many(people.alice, 30)
    client = people.client("alice")
    page = client.get(LIST, {"outcome": "failed", "device": "cpu"}).content.decode()
    assert set(titles(page)) == {f"run {n}" for n in range(0, 30, 6)} and "5 runs" in page
    assert '<option value="cuda">' in page and '<option value="failed" selected>' in page
    assert "No run matches" in client.get(LIST, {"outcome": "nothing like it"}).content.decode()


def test_a_cursor_that_nobody_wrote_is_the_beginning(people):
    many(people.alice, 3)
    client = people.client("alice")
    for cursor in ("x", "bm9uZQ", "W10", "W3sibiI6IngifSwieSJd"):
        assert len(titles(client.get(LIST, {"after": cursor}).content.decode())) == 3


def test_the_census_counts_what_each_state_and_filter_lists(people):
    runs = many(people.alice, 40)
    Run.objects.filter(pk__in=[run.pk for run in runs[::7]]).update(archived_at=timezone.now())
    Run.objects.filter(pk__in=[run.pk for run in runs[3::7]]).update(state="running", outcome="", finished_at=None)
    Run.objects.filter(pk__in=[run.pk for run in runs[::11]]).update(created_by=people.bob)
    Run.objects.filter(pk__in=[run.pk for run in runs[5::11]]).update(created_by=None)
    found = Census.of(people.alice.personal_team)
    listed = Run.objects.filter(team=people.alice.personal_team)
    chosen = [{}, {"device": "cuda"}, {"author": "bob"}, {"outcome": "improved", "device": "cpu"}, {"author": "nobody"}, {"result": "wrong"}]
    for state, (_, condition) in STATES.items():
        for filters in chosen:
            wanted = listed.filter(condition, **{FILTERS[name]: value for name, value in filters.items()})
            assert found.total(state, filters) == wanted.count(), (state, filters)
    assert found.choices["author"] == ["alice", "bob"] and found.choices["outcome"] == ["failed", "improved"]
    assert sum(found.counts[state] for state in ("active", "improved", "unfinished", "archived")) == len(runs)
