"""Notifies people, at most once per person for each action.

A notification appears on the page immediately. It is also mailed if the installation has mail and the person wants it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.dispatch import Signal
from django.utils import timezone

from webapp.accounts.models import Membership, Team, User
from webapp.review import jobs, kinds
from webapp.review.desk import person_key, wake
from webapp.review.models import Comment, Notification, Thread, Verdict, Wishes
from webapp.runs.models import Run

verdict_given = Signal()  # arguments: `verdict`, and `told`, the ids of the people notified of it on the page


def of_comment(comment: Comment, thread: Thread, *, mentioned: Iterable[User]) -> None:
    """Notifies the people mentioned, the authors in the thread and, if the thread is new, the person who started the run."""
    told: dict[int, str] = {user.pk: kinds.MENTION.name for user in mentioned}
    others = participants(thread)
    for user in others:
        told.setdefault(user, kinds.REPLY.name)
    if not others - {comment.author_id} and thread.run.created_by_id:
        told.setdefault(thread.run.created_by_id, kinds.THREAD.name)
    _tell(told, thread.team, actor=comment.author, run=thread.run, thread=thread, comment=comment)


def of_new_mentions(comment: Comment, mentioned: Iterable[User]) -> None:
    """Notifies only the people who are newly mentioned by an edit."""
    thread = comment.thread
    known = set(Notification.objects.filter(comment=comment, kind=kinds.MENTION.name).values_list("user_id", flat=True))
    told = {user.pk: kinds.MENTION.name for user in mentioned if user.pk not in known}
    _tell(told, thread.team, actor=comment.author, run=thread.run, thread=thread, comment=comment)


def of_resolution(thread: Thread, by: User) -> None:
    _tell(dict.fromkeys(participants(thread), kinds.RESOLVED.name), thread.team, actor=by, run=thread.run, thread=thread)


def of_verdict(verdict: Verdict, by: User) -> None:
    """Notifies the person who started the run and everybody who has judged the candidate before."""
    judges = Verdict.objects.filter(run=verdict.run, candidate=verdict.candidate).values_list("by_id", flat=True)
    people = {person for person in (verdict.run.created_by_id, *judges) if person is not None}
    _tell(dict.fromkeys(people, kinds.VERDICT.name), verdict.run.team, actor=by, run=verdict.run, verdict=verdict)
    verdict_given.send(sender=None, verdict=verdict, told=people - {by.pk})


def of_event(run: Run, kind: kinds.Kind, detail: dict[str, Any], people: Iterable[int]) -> None:
    """Notifies people of an event that has no actor: the end of a run, or a baseline that has overtaken its result."""
    _tell(dict.fromkeys(people, kind.name), run.team, actor=None, run=run, detail=detail)


def saw(user: User, run: Run) -> None:
    """Marks notifications about the run's end or overtaking as read once the person opens the run."""
    if not isinstance(user, User):  # a guest
        return
    if Notification.objects.filter(user=user, run=run, kind__in=kinds.EVENTS, read_at=None).update(read_at=timezone.now()):
        wake(person_key(user.pk))


def on_opened(user: User, run: Run, **_: Any) -> None:
    """Receives `webapp.runs.signals.run_opened`."""
    saw(user, run)


def participants(thread: Thread) -> set[int]:
    """Returns the people who opened the thread or commented in it."""
    wrote = thread.comments.values_list("author_id", flat=True)
    return {person for person in (*wrote, thread.created_by_id) if person is not None}


def unread(user: User) -> int:
    return Notification.objects.filter(user=user, read_at=None).count()


def _tell(told: dict[int, str], team: Team, *, actor: User | None, **about: Any) -> None:
    """Creates one row for each current member of the team who has not muted this kind, except for the actor."""
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
