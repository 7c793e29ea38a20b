"""Runs that end, verdicts that change and baselines that overtake a result: who is notified, on the page, by mail and by webhook."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from django.db import DatabaseError
from django.urls import reverse

from agents.events import NewEvent
from tests.unit.webapp import ranked
from tests.unit.webapp.cast import make_run
from tests.unit.webapp.ranked import make_ranked
from webapp.notifications import announce, jobs, posting
from webapp.notifications.messages import Message, body
from webapp.notifications.models import Delivery, Hook, Overtaken
from webapp.notifications.posting import PostFailed
from webapp.review import jobs as mail_jobs
from webapp.review import kinds, notices, verdicts
from webapp.review.kinds import sentence
from webapp.review.models import Notification, Wishes
from webapp.runs.models import Run
from webapp.runs.trace.append import append

pytestmark = pytest.mark.django_db
ALL = list(kinds.WISHES)
ENDED, OVERTAKEN, VERDICT = kinds.ENDED.name, kinds.OVERTAKEN.name, kinds.VERDICT.name
SAID = "Run finished: <!channel> @all *Faster* https://evil.example"
MESSAGE = Message(event="ended", text=SAID, title="a|b <c>", url="https://s.example/runs/1/", at="now")


def hook(team, **more) -> Hook:
    return Hook.objects.create(**({"team": team, "name": "ops", "url": "https://example.com/x", "events": list(kinds.HOOKS)} | more))


def told(user, kind: str) -> list[str]:
    return [sentence(row) for row in Notification.objects.filter(user=user, kind=kind)]


def test_whoever_started_a_run_is_told_how_it_ended(people):
    make_ranked(people.alice, "softmax", 3.0)
    assert told(people.alice, ENDED) == ["Run finished: Faster (confirmed), 2.00× over a CUDA graph of eager"]
    assert told(people.bob, ENDED) == []
    make_ranked(people.alice, "gelu", None)
    assert len(told(people.alice, ENDED)) == 2
    text = people.client("alice").get(reverse("review:notifications")).content.decode()
    assert "Run finished: Faster (confirmed)" in text and "a baseline overtakes" in text
    row = Notification.objects.filter(user=people.alice).first()
    assert people.client("alice").get(reverse("review:notification", args=[row.pk])).status_code == 302


def test_whoever_started_a_run_is_told_once_that_it_waits_for_somebody(people):
    run = make_run(people.alice)
    hook(people.alice.personal_team, events=[kinds.PAUSED.name])
    pause = NewEvent(kind="run.paused", payload={"reason": "The model did not answer.", "kind": "unreachable"})
    append(run.pk, [NewEvent(kind="run.paused", payload={"reason": "paused by a person"})])
    assert told(people.alice, kinds.PAUSED.name) == []
    append(run.pk, [pause])
    append(run.pk, [NewEvent(kind="run.resumed", payload={}), pause])
    assert told(people.alice, kinds.PAUSED.name) == ["Run paused: The model did not answer."]
    assert Delivery.objects.get().message["text"] == "Run paused: The model did not answer."
    notices.saw(people.alice, run)
    append(run.pk, [pause])
    assert len(told(people.alice, kinds.PAUSED.name)) == 2


def test_nobody_is_told_of_a_run_that_they_cancelled_and_of_a_rebuilt_one_again(people):
    run = make_run(people.alice)
    append(run.pk, [NewEvent(kind="run.finished", payload={"outcome": "cancelled", "reason": "", "best": None, "speedup": None})])
    assert told(people.alice, ENDED) == []
    from webapp.runs.trace.projection import rebuild

    ended = make_ranked(people.alice, "softmax", 2.0)
    rebuild(ended.pk)
    assert len(told(people.alice, ENDED)) == 1


def test_a_run_ends_whatever_goes_wrong_with_the_telling(people, monkeypatch):
    def broken(*_, **__):
        raise DatabaseError("no such table")

    monkeypatch.setattr(announce, "send", broken)
    assert make_ranked(people.alice, "softmax", 2.0).state == "finished"


def test_hooks_of_the_team_get_everything_and_those_of_people_their_own(people):
    team = people.alice.personal_team
    ours, hers, his = hook(team), hook(team, person=people.alice), hook(team, person=people.bob)
    hook(team, active=False)
    hook(team, events=[VERDICT])
    hook(people.charlie.personal_team)
    run = make_ranked(people.alice, "softmax", 3.0)
    assert {row.hook_id for row in Delivery.objects.all()} == {ours.pk, hers.pk}
    message = Delivery.objects.get(hook=ours).message
    assert message["detail"]["against"] == "a CUDA graph of eager" and message["run"] == str(run.pk)
    verdicts.give(people.bob, run, 1, "questioned", "show me")
    assert set(Delivery.objects.filter(event=VERDICT).values_list("hook__person", flat=True)) == {None, people.alice.pk}
    assert not Delivery.objects.filter(hook=his).exists()


def test_kinds_are_switched_off_one_by_one(people, settings, monkeypatch):
    mailed = []
    monkeypatch.setattr(mail_jobs.mail_notification, "defer", lambda notification: mailed.append(Notification.objects.get(pk=notification).kind))
    settings.MAIL = True
    people.alice.email = "alice@example.com"
    people.alice.save()
    client = people.client("alice")
    client.post(reverse("review:choose"), {"kind": [ENDED, VERDICT], "mail": "on", "mailed_offered": "1", "offered": ALL, "mailed": [VERDICT]})
    wishes = Wishes.objects.get(user=people.alice)
    assert ENDED not in wishes.muted and OVERTAKEN in wishes.muted and ENDED in wishes.unmailed and VERDICT not in wishes.unmailed
    run = make_ranked(people.alice, "softmax", 2.0)
    verdicts.give(people.bob, run, 1, "accepted")
    assert mailed == [VERDICT] and len(told(people.alice, ENDED)) == 1
    client.post(reverse("review:choose"), {"kind": [VERDICT], "offered": ALL})
    make_ranked(people.alice, "softmax", 2.0)
    assert len(told(people.alice, ENDED)) == 1


@pytest.fixture
def faster_baseline(monkeypatch):
    """Makes torch.compile take this many milliseconds from now on, while eager takes 3."""

    def measured(ms: float) -> None:
        monkeypatch.setitem(ranked.BASELINE_MS, "compile", ms)

    return measured


def test_a_baseline_overtakes_once_and_only_what_was_ahead(people, faster_baseline):
    ahead = make_ranked(people.alice, "softmax", 2.0)  # takes 1.5 ms; the best baseline takes 2.0 ms
    make_ranked(people.alice, "gelu", 2.0)
    make_ranked(people.alice, "softmax", 1.2)
    assert not Overtaken.objects.exists()
    faster_baseline(1.0)
    make_ranked(people.bob, "softmax", 1.1, published=False)  # another team's own measurement does not affect others
    assert not Overtaken.objects.exists()
    make_ranked(people.charlie, "softmax", 1.1, published=True)
    found = Overtaken.objects.get()
    assert (found.run_id, found.baseline, found.baseline_ms) == (ahead.pk, "compile", 1.0)
    assert told(people.alice, OVERTAKEN) == ["torch.compile now takes 1 ms, less than the best program's 1.5 ms"]
    make_ranked(people.alice, "softmax", 1.1)
    assert len(told(people.alice, OVERTAKEN)) == 1


def test_a_baseline_that_is_hardly_faster_overtakes_nothing(people, faster_baseline):
    make_ranked(people.alice, "softmax", 2.0)
    faster_baseline(1.45)  # the program's 1.5 ms is known only to within 5 %
    make_ranked(people.alice, "softmax", 1.1)
    assert not Overtaken.objects.exists()


def test_a_new_best_of_the_same_team_is_not_overtaken(people, faster_baseline):
    make_ranked(people.alice, "softmax", 2.0)
    faster_baseline(1.0)
    make_ranked(people.alice, "softmax", 6.0)  # 0.5 ms: the team is still ahead
    assert not Overtaken.objects.exists()


def sent(delivery: Delivery, monkeypatch, answer) -> Delivery:
    """Makes one attempt, to which the receiver gives this answer; anything that the attempt then queues is not sent."""
    monkeypatch.setattr(posting, "post", answer)
    jobs.deliver_hook(delivery=delivery.pk)
    return Delivery.objects.get(pk=delivery.pk)


def test_what_fails_is_tried_again_with_pauses_that_grow_and_then_given_up(people, monkeypatch):
    delivery = announce.test(hook(people.alice.personal_team))

    def broken(*_):
        raise PostFailed("HTTP 503")

    pauses = []
    while (found := sent(delivery, monkeypatch, broken)).next_at is not None:
        pauses.append(round((found.next_at - found.at).total_seconds()))
    assert len(pauses) == len(jobs.BACK_OFF) and pauses == sorted(pauses) and pauses[-1] > 3600
    assert (found.state, found.said, found.attempts) == ("failed", "HTTP 503", len(jobs.BACK_OFF) + 1)
    assert sent(delivery, monkeypatch, broken).attempts == found.attempts  # once abandoned, it stays abandoned
    page = people.client("alice").get(reverse("notifications:hooks")).content.decode()
    assert "failed" in page and "HTTP 503" in page and "example.com/…om/x" in page and "https://example.com/x" not in page


def test_what_is_final_is_not_tried_again_and_what_arrives_is_sent_once(people, monkeypatch):
    ours = hook(people.alice.personal_team)

    def gone(*_):
        raise PostFailed("HTTP 410", final=True)

    assert sent(announce.test(ours), monkeypatch, gone).state == "failed"
    posted = []
    delivery = announce.test(ours)
    assert sent(delivery, monkeypatch, lambda *given: posted.append(given) or "HTTP 200").state == "sent"
    sent(delivery, monkeypatch, lambda *given: posted.append(given) or "HTTP 200")
    assert len(posted) == 1


def test_a_hook_that_was_switched_off_gets_nothing_more(people, monkeypatch):
    ours = hook(people.alice.personal_team)
    make_ranked(people.alice, "softmax", 2.0)
    Hook.objects.update(active=False)
    posted = []
    found = sent(Delivery.objects.get(hook=ours), monkeypatch, lambda *given: posted.append(given) or "HTTP 200")
    assert found.state == "failed" and not posted


def test_messages_call_nobody_and_are_signed(people):
    ours = hook(people.alice.personal_team)
    slack = json.loads(body(replace_style(ours, "slack"), MESSAGE)[0])["text"]
    assert slack.startswith("<https://s.example/runs/1/|a/b &lt;c&gt;>: ") and "<!channel>" not in slack
    mattermost = json.loads(body(replace_style(ours, "mattermost"), MESSAGE)[0])["text"]
    assert "@all" not in mattermost and "*Faster*" not in mattermost.replace("\\*", "") and mattermost.count("](") == 1
    content, headers = body(replace_style(ours, "generic"), MESSAGE)
    assert json.loads(content)["text"] == MESSAGE["text"]
    assert headers["X-Stitchwork-Signature"] == "sha256=" + hmac.new(ours.key.encode(), content, hashlib.sha256).hexdigest()
    bare = body(replace_style(ours, "slack"), Message(event="test", text="works", title="", url="", at="now"))[0]
    assert json.loads(bare) == {"text": "works"}


def replace_style(ours: Hook, style: str) -> Hook:
    ours.style = style
    return ours


def add(client, **more):
    sent_form = {"name": "ops", "url": "https://93.184.215.14/hook", "style": "slack", "event": [ENDED], "whose": "mine"}
    return client.post(reverse("notifications:add"), sent_form | more)


def test_a_person_adds_their_own_and_an_owner_the_teams(people):
    assert add(people.client("bob")).status_code == 302
    assert add(people.client("bob"), whose="team").status_code == 403
    assert add(people.client("alice"), whose="team").status_code == 302
    mine, ours = Hook.objects.get(person=people.bob), Hook.objects.get(person=None)
    assert ours.team == people.alice.personal_team
    bob, alice = people.client("bob"), people.client("alice")
    assert bob.post(reverse("notifications:delete", args=[ours.pk])).status_code == 403
    assert alice.post(reverse("notifications:delete", args=[mine.pk])).status_code == 404
    assert people.client("charlie").post(reverse("notifications:test", args=[ours.pk])).status_code == 404
    alice.post(reverse("notifications:change", args=[ours.pk]), {"event": [VERDICT]})
    ours.refresh_from_db()
    assert (ours.active, ours.events) == (False, [VERDICT])
    assert alice.post(reverse("notifications:test", args=[ours.pk])).status_code == 302
    assert Delivery.objects.get(hook=ours).event == "test"
    assert bob.post(reverse("notifications:delete", args=[mine.pk])).status_code == 302


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": "https://127.0.0.1/"}, "may not reach"),
        ({"url": "http://93.184.215.14/"}, "plain HTTP"),
        ({"name": " "}, "a name of at most"),
        ({"event": []}, "at least one event"),
        ({"style": "teams"}, "what kind"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_stays(people, wrong, said):
    answer = add(people.client("alice"), **wrong)
    assert answer.status_code == 422 and said in answer.content.decode() and not Hook.objects.exists()
    assert 'value="ops"' in answer.content.decode() or "name" in wrong


def test_an_arenas_runs_are_not_told_one_by_one(people):
    from webapp.arena.models import Arena, ArenaRun

    run = make_run(people.alice)
    ArenaRun.objects.create(arena=Arena.objects.create(team=run.team, name="a", settings={}, created_by=people.alice), run=run, seed=1)
    append(run.pk, [NewEvent(kind="run.finished", payload={"outcome": "failed", "reason": "", "best": None, "speedup": None})])
    assert Run.objects.get(pk=run.pk).state == "finished" and told(people.alice, ENDED) == []


def test_whoever_opens_a_run_has_read_how_it_ended(people):
    run, other = make_ranked(people.alice, "softmax", 2.0), make_ranked(people.alice, "gelu", 2.0)
    people.client("bob").get(reverse("runs:run", args=[run.pk]))
    assert notices.unread(people.alice) == 2
    people.client("alice").get(reverse("runs:run", args=[run.pk]))
    assert set(Notification.objects.filter(user=people.alice, read_at=None).values_list("run", flat=True)) == {other.pk}
