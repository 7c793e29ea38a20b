"""Who is told of what: one notification a person and act, on the page at once, by mail where the installation has mail and the person wants it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.utils import timezone

from webapp.accounts.models import Membership, Team, User
from webapp.review import jobs
from webapp.review.desk import person_key, wake
from webapp.review.models import Comment, Notification, Thread, Verdict, Wishes
from webapp.review.signals import verdict_given
from webapp.runs.models import Run

# What people do, as others choose among it; the order is also which one wins where several hold.
KINDS = {
    Notification.MENTION: "someone mentions me",
    Notification.REPLY: "someone replies in a thread I wrote in",
    Notification.THREAD: "someone comments on a run I started",
    Notification.VERDICT: "someone gives a verdict on my candidate, or on one I gave a verdict on",
    Notification.RESOLVED: "a thread I wrote in is resolved or reopened",
}
EVENTS = {
    Notification.ENDED: "a run I started ends",
    Notification.OVERTAKEN: "a baseline overtakes a result of mine",
}
ALL_KINDS = EVENTS | KINDS


def of_comment(comment: Comment, thread: Thread, *, mentioned: Iterable[User]) -> None:
    """To the people it mentions, those who wrote in the thread, and whoever started the run where the thread is new."""
    told: dict[int, str] = {user.pk: Notification.MENTION for user in mentioned}
    others = participants(thread)
    for user in others:
        told.setdefault(user, Notification.REPLY)
    if not others - {comment.author_id} and thread.run.created_by_id:
        told.setdefault(thread.run.created_by_id, Notification.THREAD)
    _tell(told, thread.team, actor=comment.author, run=thread.run, thread=thread, comment=comment)


def of_new_mentions(comment: Comment, mentioned: Iterable[User]) -> None:
    """An edit tells only those whom it mentions anew."""
    thread = comment.thread
    known = set(Notification.objects.filter(comment=comment, kind=Notification.MENTION).values_list("user_id", flat=True))
    told = {user.pk: Notification.MENTION for user in mentioned if user.pk not in known}
    _tell(told, thread.team, actor=comment.author, run=thread.run, thread=thread, comment=comment)


def of_resolution(thread: Thread, by: User) -> None:
    _tell(dict.fromkeys(participants(thread), Notification.RESOLVED), thread.team, actor=by, run=thread.run, thread=thread)


def of_verdict(verdict: Verdict, by: User) -> None:
    """To whoever started the run, and to those who judged the candidate before."""
    judges = Verdict.objects.filter(run=verdict.run, candidate=verdict.candidate).values_list("by_id", flat=True)
    people = {verdict.run.created_by_id, *judges} - {None}
    _tell(dict.fromkeys(people, Notification.VERDICT), verdict.run.team, actor=by, run=verdict.run, verdict=verdict)
    verdict_given.send(sender=None, verdict=verdict, told=people - {by.pk})


def of_event(run: Run, kind: str, detail: dict[str, Any], people: Iterable[int]) -> None:
    """Tells people of what nobody did: a run's end, a baseline that overtook its result."""
    _tell(dict.fromkeys(people, kind), run.team, actor=None, run=run, detail=detail)


def saw(user: User, run: Run) -> None:
    """Marks as read that a run ended or was overtaken: a person who opens it knows."""
    if not isinstance(user, User):  # a guest
        return
    if Notification.objects.filter(user=user, run=run, kind__in=list(EVENTS), read_at=None).update(read_at=timezone.now()):
        wake(person_key(user.pk))


def participants(thread: Thread) -> set[int]:
    """Who wrote in the thread, or opened it."""
    return {*thread.comments.values_list("author_id", flat=True), thread.created_by_id} - {None}


def unread(user: User) -> int:
    return Notification.objects.filter(user=user, read_at=None).count()


def _tell(told: dict[int, str], team: Team, *, actor: User | None, **about) -> None:
    """One row each, for present members of the team other than the actor who did not mute the kind."""
    if actor is not None:
        told.pop(actor.pk, None)
    present = set(Membership.objects.filter(team=team, user__in=told, user__is_active=True).values_list("user_id", flat=True))
    wishes = {row.user_id: row for row in Wishes.objects.filter(user__in=present).select_related("user")}
    for pk, kind in told.items():
        wish = wishes.get(pk)
        if pk not in present or (wish and kind in wish.muted):
            continue
        made = Notification.objects.create(user_id=pk, kind=kind, actor=actor, **about)
        wake(person_key(pk), made.pk)
        if wish and wish.mail and kind not in wish.unmailed and settings.MAIL and wish.user.email:
            jobs.mail_notification.defer(notification=made.pk)
