"""Threads: who may write, what is kept, who is notified, and what a page requests if it has only part of the data."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from tests.unit.webapp.cast import make_user
from tests.unit.webapp.people import make_result
from webapp.accounts.models import AuditEntry, Membership
from webapp.review import kinds, notices, services
from webapp.review.jobs import mail_notification
from webapp.review.models import Comment, Notification, Thread, Wishes
from webapp.runs.models import Run

RUN_PLACE = {"kind": "run"}


@pytest.fixture
def run(people) -> Run:
    return make_result(people.alice)


def ask(client, run: Run, path: str, **data):
    return client.post(f"/runs/{run.pk}/review/{path}", data)


def opened(client, run: Run, text: str = "Why two passes?", place: dict | None = None) -> int:
    answer = ask(client, run, "threads", anchor=json.dumps(place or {"kind": "candidate", "candidate": 2}), text=text)
    assert answer.status_code == 201, answer.content
    return answer.json()["thread"]


def state(client, run: Run, since: int = 0) -> dict:
    return client.get(f"/runs/{run.pk}/review/state?since={since}").json()


def test_a_thread_and_an_answer(people, run):
    alice, bob = people.client("alice"), people.client("bob")
    thread = opened(bob, run)
    assert ask(alice, run, f"threads/{thread}/reply", text="Because of `exp`.").status_code == 201
    (summary,) = state(bob, run)["threads"]
    assert (summary["count"], summary["unread"], summary["author"], summary["label"]) == (2, 1, "bob", "candidate 2")
    page = alice.get(f"/runs/{run.pk}/review/threads/{thread}").content.decode()
    assert "Why two passes?" in page and "<code>exp</code>" in page


def test_a_cursor_misses_nothing_and_repeats_nothing(people, run):
    alice, bob = people.client("alice"), people.client("bob")
    first, second = opened(bob, run), opened(bob, run, "And the tail?")
    seq = state(alice, run)["seq"]
    assert state(alice, run, seq)["threads"] == []
    ask(alice, run, f"threads/{first}/reply", text="Read it.")
    ask(bob, run, f"threads/{second}/resolve", resolved="1")
    assert [thread["id"] for thread in state(alice, run, seq)["threads"]] == [first, second]


def test_what_was_read_is_not_new_again(people, run):
    alice, bob = people.client("alice"), people.client("bob")
    thread = opened(bob, run)
    assert state(alice, run)["threads"][0]["unread"] == 1
    ask(alice, run, "read", seq=state(alice, run)["seq"], thread=thread)
    assert state(alice, run)["threads"][0]["unread"] == 0
    assert notices.unread(people.alice) == 0
    ask(bob, run, f"threads/{thread}/reply", text="One more.")
    assert state(alice, run)["threads"][0]["unread"] == 1


def test_only_ones_own_words_change_and_what_they_were_is_kept(people, run):
    alice, bob = people.client("alice"), people.client("bob")
    thread = opened(bob, run, "Frist")
    comment = Comment.objects.get(thread=thread)
    assert ask(alice, run, f"comments/{comment.pk}/edit", text="mine").status_code == 403
    assert ask(alice, run, f"comments/{comment.pk}/delete").status_code == 403
    assert ask(bob, run, f"comments/{comment.pk}/edit", text="First").status_code == 200
    assert "Frist" in alice.get(f"/runs/{run.pk}/review/comments/{comment.pk}/history").content.decode()
    assert "edited" in alice.get(f"/runs/{run.pk}/review/threads/{thread}").content.decode()


def test_deleted_words_are_seen_by_nobody(people, run):
    bob = people.client("bob")
    thread = opened(bob, run, "my password is hunter2")
    comment = Comment.objects.get(thread=thread)
    ask(people.client("alice"), run, f"threads/{thread}/reply", text="Please delete that.")
    assert ask(bob, run, f"comments/{comment.pk}/delete").status_code == 200
    page = bob.get(f"/runs/{run.pk}/review/threads/{thread}").content.decode()
    assert "hunter2" not in page and "bob deleted this comment" in page
    assert bob.get(f"/runs/{run.pk}/review/comments/{comment.pk}/history").status_code == 404
    assert comment.revisions.get().text == "my password is hunter2"
    assert AuditEntry.objects.filter(team=run.team, action="comment.deleted", actor=people.bob).exists()


def test_a_thread_without_words_is_gone(people, run):
    bob = people.client("bob")
    thread = opened(bob, run)
    ask(bob, run, f"comments/{Comment.objects.get(thread=thread).pk}/delete")
    assert state(bob, run)["threads"] == [{"id": thread, "seq": state(bob, run)["seq"], "gone": True}]
    assert "Why two passes" not in bob.get("/review/?show=all").content.decode()


def test_resolving_and_opening_again(people, run):
    bob = people.client("bob")
    thread = opened(bob, run)
    ask(people.client("alice"), run, f"threads/{thread}/resolve", resolved="1")
    assert state(bob, run)["threads"][0]["resolved"] == "alice"
    assert Notification.objects.get(user=people.bob).kind == kinds.RESOLVED.name
    ask(bob, run, f"threads/{thread}/resolve", resolved="0")
    assert state(bob, run)["threads"][0]["resolved"] is None


def test_mentions_tell_members_once_and_nobody_else(people, run):
    dora = make_user("dora")
    Membership.objects.create(team=run.team, user=dora, role=Membership.VIEWER)
    opened(people.client("bob"), run, "@alice and @Dora, see `@charlie` @charlie mail@dora @bob")
    told = {(row.user.username, row.kind) for row in Notification.objects.select_related("user")}
    assert told == {("alice", "mention"), ("dora", "mention")}


def test_an_edit_tells_only_those_it_mentions_anew(people, run):
    bob = people.client("bob")
    thread = opened(bob, run, "see this, @alice")
    comment = Comment.objects.get(thread=thread)
    dora = make_user("dora")
    Membership.objects.create(team=run.team, user=dora)
    ask(bob, run, f"comments/{comment.pk}/edit", text="see this, @alice and @dora")
    assert sorted(Notification.objects.filter(kind="mention").values_list("user__username", flat=True)) == ["alice", "dora"]


def test_who_started_the_run_is_told_of_a_thread_and_who_wrote_of_an_answer(people, run):
    thread = opened(people.client("bob"), run)
    assert Notification.objects.get(user=people.alice).kind == kinds.THREAD.name
    ask(people.client("alice"), run, f"threads/{thread}/reply", text="Yes.")
    assert Notification.objects.get(user=people.bob).kind == kinds.REPLY.name


def test_what_somebody_muted_they_are_not_told(people, run):
    Wishes.objects.create(user=people.alice, muted=["thread"])
    opened(people.client("bob"), run)
    assert not Notification.objects.filter(user=people.alice).exists()


def test_nobody_is_told_of_what_they_may_not_see(people, run):
    thread = Thread.objects.get(pk=opened(people.client("bob"), run))
    Membership.objects.filter(user=people.bob).delete()
    services.reply(people.alice, thread, "Still there, @bob?")
    assert not Notification.objects.filter(user=people.bob).exists()


@pytest.mark.parametrize(
    "path", ["threads", "threads/{thread}/reply", "threads/{thread}/resolve", "comments/{comment}/edit", "comments/{comment}/delete"]
)
def test_viewers_read_and_strangers_do_not_know(people, run, path):
    thread = opened(people.client("alice"), run, "secret words")
    path = path.format(thread=thread, comment=Comment.objects.get(thread=thread).pk)
    Membership.objects.filter(user=people.bob).update(role=Membership.VIEWER)
    data = {"text": "x", "anchor": json.dumps(RUN_PLACE), "resolved": "1"}
    assert ask(people.client("bob"), run, path, **data).status_code == 403
    assert ask(people.client("charlie"), run, path, **data).status_code == 404
    assert "secret words" in people.client("bob").get(f"/runs/{run.pk}/review/threads/{thread}").content.decode()


def test_a_published_run_keeps_the_teams_words(people, run):
    thread = opened(people.client("alice"), run, "secret words")
    Run.objects.filter(pk=run.pk).update(published=True)
    charlie = people.client("charlie")
    assert state(charlie, run)["threads"] == []
    for path in (f"/runs/{run.pk}/review/threads/{thread}", f"/review/threads/{thread}/"):
        assert charlie.get(path).status_code == 404
    assert ask(charlie, run, "threads", anchor=json.dumps(RUN_PLACE), text="x").status_code == 403


def test_a_thread_belongs_to_its_run(people, run):
    thread = opened(people.client("alice"), run)
    other = make_result(people.alice)
    assert people.client("alice").get(f"/runs/{other.pk}/review/threads/{thread}").status_code == 404


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"kind": "event", "seq": 99}, "no event 99"),
        ({"kind": "candidate", "candidate": 9}, "no candidate 9"),
        ({"kind": "line", "candidate": 2, "line": 999}, "past the end"),
        ({"kind": "range", "sha": "a" * 64, "start_ns": 0, "end_ns": 5}, "no such timeline"),
        ({"kind": "range", "sha": "a" * 64, "start_ns": 5, "end_ns": 5}, "after it begins"),
        ({"kind": "page"}, "cannot be commented on"),
        ("nonsense", "cannot be commented on"),
    ],
)
def test_places_that_are_not_there_are_refused_in_words(people, run, place, said):
    answer = ask(people.client("bob"), run, "threads", anchor=json.dumps(place), text="x")
    assert answer.status_code == 400 and said in answer.json()["error"]


def test_the_line_is_taken_from_the_program_and_not_from_the_request(people, run):
    thread = opened(people.client("bob"), run, place={"kind": "line", "candidate": 2, "line": 1, "view": "diff", "against": "task"})
    anchor = Thread.objects.get(pk=thread).anchor
    assert anchor["text"] == "class ModelNew: number = 2" and anchor["of"] == 2
    old = opened(people.client("bob"), run, place={"kind": "line", "candidate": 2, "line": 5, "side": "old", "against": "task"})
    anchor = Thread.objects.get(pk=old).anchor
    assert anchor["text"] == "class Model(nn.Module):" and anchor["of"] is None


def test_empty_and_endless_comments_are_refused(people, run):
    bob = people.client("bob")
    assert ask(bob, run, "threads", anchor=json.dumps(RUN_PLACE), text="  ").status_code == 400
    answer = ask(bob, run, "threads", anchor=json.dumps(RUN_PLACE), text="x" * 5001)
    assert answer.status_code == 400 and "5,001 characters" in answer.json()["error"]


def test_nobody_floods_a_thread(people, run):
    bob = people.client("bob")
    thread = opened(bob, run)
    codes = [ask(bob, run, f"threads/{thread}/reply", text=f"{n}").status_code for n in range(services.A_MINUTE)]
    assert codes[-1] == 429 and set(codes[:-1]) == {201}


def test_the_list_of_runs_counts_what_one_has_not_read(people, run):
    opened(people.client("bob"), run)
    assert "unread comments" in people.client("alice").get("/").content.decode()
    assert "unread comments" not in people.client("bob").get("/").content.decode()


def test_the_overview_filters(people, run):
    alice, bob = people.client("alice"), people.client("bob")
    first = opened(bob, run, "@alice, a *word*")
    opened(bob, run, "other things", {"kind": "run"})
    ask(alice, run, f"threads/{first}/resolve", resolved="1")
    alice.post("/teams/switch", {"team": str(run.team_id)})

    def shown(query: str) -> list[bool]:
        page = alice.get(f"/review/{query}").content.decode()
        return [text in page for text in ("a word", "other things")]

    assert shown("") == [False, True]
    assert shown("?show=resolved") == [True, False]
    assert shown("?show=mine") == [True, False]
    assert shown("?show=all") == [True, True]
    assert shown("?show=all&kind=run") == [False, True]
    assert shown("?show=all&q=word") == [True, False]
    assert shown("?show=nonsense&kind=nonsense&page=x") == [False, True]


def test_confirmed_results_wait_for_a_verdict(people, run):
    alice = people.client("alice")
    assert f"/runs/{run.pk}/candidates/2/" in alice.get("/review/").content.decode()
    alice.post(f"/runs/{run.pk}/candidates/2/verdict", {"value": "accepted"})
    assert f"/runs/{run.pk}/candidates/2/" not in alice.get("/review/").content.decode()


def test_notifications_lead_to_their_place_and_are_read(people, run):
    thread = opened(people.client("bob"), run)
    alice = people.client("alice")
    page = alice.get("/notifications/").content.decode()
    assert "bob commented on candidate 2" in page and "Why two passes?" in page
    notification = Notification.objects.get(user=people.alice)
    answer = alice.get(f"/notifications/{notification.pk}/")
    assert answer.headers["Location"].endswith(f"/candidates/2/?thread={thread}")
    assert notices.unread(people.alice) == 0
    assert people.client("bob").get(f"/notifications/{notification.pk}/").status_code == 404
    alice.post("/notifications/wishes", {"kind": ["mention"]})
    assert Wishes.objects.get(user=people.alice).muted == ["reply", "thread", "verdict", "resolved"]


def test_mail_goes_out_only_where_it_is_set_up_and_wanted(people, run, settings, mailoutbox):
    people.alice.email = "alice@example.org"
    people.alice.save()
    Wishes.objects.create(user=people.alice, mail=True)
    with connection.cursor() as cursor:
        queued = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'mail_notification'"
        opened(people.client("bob"), run)
        cursor.execute(queued)
        assert cursor.fetchone() == (0,)
        settings.MAIL = True
        opened(people.client("bob"), run, "A **second** one")
        cursor.execute(queued)
        assert cursor.fetchone() == (1,)
    mail_notification.func(Notification.objects.latest("pk").pk)
    assert mailoutbox[0].to == ["alice@example.org"] and "bob commented on candidate 2" in mailoutbox[0].subject
