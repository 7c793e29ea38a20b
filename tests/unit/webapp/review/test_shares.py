"""Share links: they give read access to one run until they expire, and to no other part of the installation."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from urllib.parse import urljoin

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.unit.webapp.cast import make_user
from tests.unit.webapp.people import add_verification, make_result
from webapp.accounts.models import AuditEntry, Membership
from webapp.review import services, shares
from webapp.review.models import Share


@pytest.fixture
def run(people):
    return make_result(people.alice)


def made(people, run, **fields) -> Share:
    options = {"place": f"/runs/{run.pk}/", "days": 7, "comments": False}
    return shares.make(people.alice, run, **(options | fields))


def guest_of(share: Share) -> Client:
    client = Client()
    assert client.get(reverse("review:shared", args=[shares.token_of(share)])).status_code == 302
    return client


def test_the_link_opens_its_place_without_an_account(people, run):
    share = made(people, run, place=f"/runs/{run.pk}/candidates/2/?tab=source#L1")
    answer = Client().get(reverse("review:shared", args=[shares.token_of(share)]), follow=True)
    assert answer.redirect_chain[0][0].endswith("/candidates/2/?tab=source#L1") and answer.status_code == 200
    page = answer.content.decode()
    assert "Shared by alice" in page and 'method="post"' not in page and "/account/" not in page
    assert answer.headers["X-Robots-Tag"] == "noindex, nofollow" and answer.headers["Referrer-Policy"] == "no-referrer"
    share.refresh_from_db()
    assert share.opened == 1 and share.last_opened_at


@pytest.mark.slow
def test_no_page_of_the_run_offers_a_guest_anything_to_change(people, run):
    add_verification(run, number=1)
    guest = guest_of(made(people, run, comments=True))
    base = f"/runs/{run.pk}/"
    for path in (
        "",
        *(f"candidates/2/?tab={tab}" for tab in ("diff", "report", "timeline", "kernels", "source")),
        "diff/1...2/",
        "candidates/2/diff",
    ):
        answer = guest.get(base + path)
        page = answer.content.decode()
        assert answer.status_code == 200, path
        for word in ('method="post"', "hx-post", "/account/", "data-action", ">Fork", "/share"):
            assert word not in page, (path, word)
        for link in inner_links(page, answer.request["PATH_INFO"]):
            shown = guest.get(link, follow=True)
            assert "/sign-in/" not in shown.request["PATH_INFO"] and shown.status_code == 200, (path, link)


def inner_links(page: str, address: str) -> set[str]:
    """Returns the targets of a page's links within this installation; the logo links to the home page, which itself requires an account."""
    body = page[page.index("<main") :] if "<main" in page else page
    found = {urljoin(address, unescape(href)) for href in re.findall(r'<a\b[^>]*?\shref="([^"#]+)', body)}
    return {href for href in found if href.startswith("/")}


def test_a_guest_sees_one_run_and_nothing_else(people, run):
    other = make_result(people.alice)
    published = make_result(people.alice, published=True)
    guest = guest_of(made(people, run))
    assert guest.get(f"/runs/{run.pk}/").status_code == 200
    assert guest.get(f"/runs/{run.pk}/events").status_code == 200
    assert guest.get(f"/runs/{run.pk}/candidates/2/program.py").status_code == 200
    for path in (
        "/",
        "/review/",
        "/notifications/",
        "/tasks/",
        "/devices/",
        "/leaderboard/",
        "/account/",
        f"/runs/{run.pk}/shares",
        f"/runs/{run.pk}/budget",
    ):
        assert guest.get(path).status_code == 302, path
    for one in (other, published):
        assert guest.get(f"/runs/{one.pk}/").status_code == 302


@pytest.mark.parametrize("path", ["control", "note", "fork", "publish", "archive", "again", "candidates/2/verdict", "review/threads", "shares"])
def test_a_guest_changes_nothing(people, run, path):
    guest = guest_of(made(people, run))
    answer = guest.post(f"/runs/{run.pk}/{path}", {"action": "cancel", "value": "hack", "reason": "x", "text": "x", "anchor": '{"kind":"run"}'})
    assert answer.status_code in (302, 403, 404) and "sign-in" in answer.headers.get("Location", "sign-in")
    run.refresh_from_db()
    assert not run.published and not run.threads.exists() and not run.verdicts.exists()


def test_comments_are_shown_only_where_the_link_says_so(people, run):
    thread = services.open_thread(people.bob, run, {"kind": "run"}, "secret words")
    without, with_them = guest_of(made(people, run)), guest_of(made(people, run, comments=True))
    address = f"/runs/{run.pk}/review/threads/{thread.pk}"
    assert without.get(f"/runs/{run.pk}/review/state").json()["threads"] == []
    assert without.get(address).status_code == 404
    assert with_them.get(f"/runs/{run.pk}/review/state").json()["threads"][0]["excerpt"] == "secret words"
    page = with_them.get(address).content.decode()
    assert "secret words" in page and "data-edit" not in page


def test_a_revoked_link_ends_at_once(people, run):
    share = made(people, run)
    guest = guest_of(share)
    answer = people.client("alice").post(reverse("review:revoke", args=[run.pk, share.pk]))
    assert answer.status_code == 302
    answer = guest.get(f"/runs/{run.pk}/")
    assert answer.status_code == 410 and "has revoked it" in answer.content.decode()
    assert Client().get(reverse("review:shared", args=[shares.token_of(share)])).status_code == 410
    assert list(AuditEntry.objects.filter(team=run.team, action__startswith="share").values_list("action", flat=True).order_by("pk")) == [
        "share.made",
        "share.revoked",
    ]


def test_an_expired_link_has_ended(people, run):
    share = made(people, run)
    guest = guest_of(share)
    Share.objects.filter(pk=share.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    answer = guest.get(f"/runs/{run.pk}/")
    assert answer.status_code == 410 and "It worked until" in answer.content.decode()


@pytest.mark.parametrize("token", ["x", "0" * 32, "0" * 32 + ":abc", "a" * 500])
def test_no_other_token_opens_anything(db, token):
    answer = Client().get(reverse("review:shared", args=[token]))
    assert answer.status_code == 410 and "There is no such link" in answer.content.decode()


def test_only_owners_make_and_see_links(people, run):
    for client, code in ((people.client("bob"), 403), (people.client("charlie"), 404)):
        assert client.get(reverse("review:shares", args=[run.pk])).status_code == code
        assert client.post(reverse("review:shares", args=[run.pk]), {"days": "7", "place": f"/runs/{run.pk}/"}).status_code == code
    assert not Share.objects.exists()


def test_the_page_makes_lists_and_counts_links(people, run):
    alice = people.client("alice")
    page = alice.post(
        reverse("review:shares", args=[run.pk]), {"days": "7", "place": f"/runs/{run.pk}/candidates/2/#R4"}, follow=True
    ).content.decode()
    share = Share.objects.get()
    assert shares.token_of(share) in page and share.place == "candidates/2/#R4"


@pytest.mark.parametrize(
    "place",
    [
        "https://example.org/",
        "//example.org/",
        "/account/",
        "/runs/",
        "javascript:alert(1)",
        "/runs/{other}/",
        "/runs/{run}/fork",
        "/runs/{run}/nowhere",
    ],
)
def test_places_elsewhere_are_refused_and_kept(people, run, place):
    other = make_result(people.alice)
    place = place.format(run=run.pk, other=other.pk)
    answer = people.client("alice").post(reverse("review:shares", args=[run.pk]), {"days": "7", "place": place})
    assert answer.status_code == 422 and place in answer.content.decode()
    assert not Share.objects.exists()


def test_a_stranger_with_an_account_reads_by_the_link_and_stays_a_stranger(people, run):
    charlie = people.client("charlie")
    assert charlie.get(f"/runs/{run.pk}/").status_code == 404
    charlie.get(reverse("review:shared", args=[shares.token_of(made(people, run))]))
    assert "Shared by alice" in charlie.get(f"/runs/{run.pk}/").content.decode()
    assert charlie.get("/").status_code == 200
    assert charlie.post(f"/runs/{run.pk}/review/threads", {"text": "x", "anchor": '{"kind":"run"}'}).status_code == 404


def test_a_member_who_opens_the_link_stays_a_member(people, run):
    share = made(people, run)
    bob = people.client("bob")
    bob.get(reverse("review:shared", args=[shares.token_of(share)]))
    page = bob.get(f"/runs/{run.pk}/").content.decode()
    assert "Shared by" not in page and "/account/" in page


def test_a_link_outlives_its_makers_membership_but_not_the_run(people, run):
    dora = make_user("dora")
    Membership.objects.create(team=run.team, user=dora, role=Membership.OWNER)
    share = shares.make(dora, run, place="", days=1, comments=False)
    guest = guest_of(share)
    Membership.objects.filter(user=dora).delete()
    assert guest.get(f"/runs/{run.pk}/").status_code == 200
