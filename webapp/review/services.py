"""The actions in a review: open a thread, answer, edit or delete one's own comment, and resolve a thread. Each action checks the person's right and
runs in one transaction."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from webapp.accounts import audit
from webapp.accounts.access import Asker, require, user_of
from webapp.accounts.models import User
from webapp.review import anchors, notices
from webapp.review.desk import next_seq
from webapp.review.markdown import mentioned
from webapp.review.models import Comment, Revision, Thread
from webapp.review.standing import standing  # noqa: F401 - rankings ask for it here
from webapp.runs.models import Run

LONGEST_COMMENT = 5000  # characters
MOST_MENTIONS = 50
A_MINUTE = 20  # maximum number of comments and edits per person per minute
MOST_COMMENTS = 500  # in one thread


class CommentRefused(ValueError):
    """Raised if a comment cannot be accepted. The message says why."""


class TooFast(CommentRefused):
    """Raised if a person writes more comments within a minute than is plausible."""


def open_thread(asker: Asker, run: Run, place: Any, text: str) -> Thread:
    """Opens a thread with a comment on a place in the run (`anchors.read`). Raises `CommentRefused`, `anchors.AnchorRefused`."""
    require(asker, run.team_id, "act")
    user, text = user_of(asker), _text(text)
    _not_too_fast(user)
    anchor = anchors.read(run, place)
    with transaction.atomic():
        seq = next_seq(run)
        thread = Thread.objects.create(
            team_id=run.team_id, run=run, kind=anchor["kind"], candidate=anchor.get("candidate"), anchor=anchor, seq=seq, created_by=user
        )
        _write(thread, user, text, seq)
    return thread


def reply(asker: Asker, thread: Thread, text: str) -> Comment:
    require(asker, thread.team_id, "act")
    user, text = user_of(asker), _text(text)
    _not_too_fast(user)
    with transaction.atomic():
        seq = _changed(thread)
        if thread.comments.count() >= MOST_COMMENTS:
            raise CommentRefused(f"This thread has {MOST_COMMENTS} comments: open another one.")
        Thread.objects.filter(pk=thread.pk).update(last_at=timezone.now())
        return _write(thread, user, text, seq)


def edit(asker: Asker, comment: Comment, text: str) -> Comment:
    """Changes the person's own comment and keeps the previous text."""
    user, text = _own(asker, comment), _text(text)
    _not_too_fast(user)
    with transaction.atomic():
        _changed(comment.thread)
        comment = Comment.objects.select_for_update().get(pk=comment.pk)
        if comment.deleted_at is not None:
            raise CommentRefused("This comment was deleted.")
        if text != comment.text:
            Revision.objects.create(comment=comment, text=comment.text)
            comment.text, comment.edited_at = text, timezone.now()
            comment.save(update_fields=["text", "edited_at"])
            people = _mentioned(comment.thread, text)
            comment.mentions.set(people)
            notices.of_new_mentions(comment, people)
    return comment


def delete(asker: Asker, comment: Comment) -> None:
    """Deletes the person's own comment. The page still shows that it existed, but nobody can see its text."""
    _own(asker, comment)
    with transaction.atomic():
        _changed(comment.thread)
        comment = Comment.objects.select_for_update().get(pk=comment.pk)
        if comment.deleted_at is None:
            Revision.objects.create(comment=comment, text=comment.text)
            comment.text, comment.deleted_at = "", timezone.now()
            comment.save(update_fields=["text", "deleted_at"])
            comment.notification_set.filter(read_at=None).delete()
            thread = comment.thread
            audit.record(
                asker, thread.team, "comment.deleted", thread.run.title, {"run": str(thread.run_id), "thread": thread.pk, "comment": comment.pk}
            )


def set_resolved(asker: Asker, thread: Thread, resolved: bool) -> None:
    """Resolves or reopens a thread. Repeating the action has no effect."""
    require(asker, thread.team_id, "act")
    user = user_of(asker)
    with transaction.atomic():
        _changed(thread)
        thread = Thread.objects.select_for_update(of=("self",)).get(pk=thread.pk)
        if (thread.resolved_at is not None) == resolved:
            return
        thread.resolved_at, thread.resolved_by = (timezone.now(), user) if resolved else (None, None)
        thread.save(update_fields=["resolved_at", "resolved_by"])
        notices.of_resolution(thread, user)


def people_of(run: Run) -> QuerySet[User]:
    """Returns the people who can be mentioned: the members of the run's team."""
    return User.objects.filter(membership__team=run.team_id, is_active=True).order_by("username")


def _own(asker: Asker, comment: Comment) -> User:
    require(asker, comment.thread.team_id, "act")
    user: User = user_of(asker)
    if comment.author_id != user.pk:
        raise PermissionDenied("Only the author of a comment can change it.")
    return user


def _text(text: str) -> str:
    text = text.replace("\0", "").replace("\r\n", "\n").strip()
    if not text:
        raise CommentRefused("The comment is empty.")
    if len(text) > LONGEST_COMMENT:
        raise CommentRefused(f"The comment has {len(text):,} characters; at most {LONGEST_COMMENT:,} are allowed.")
    return text


def _not_too_fast(user: User) -> None:
    since = timezone.now() - timedelta(minutes=1)
    written = Comment.objects.filter(author=user, at__gt=since).count() + Revision.objects.filter(comment__author=user, until__gt=since).count()
    if written >= A_MINUTE:
        raise TooFast(f"You wrote {written} comments within a minute. Wait a moment; what you typed is still here.")


def _changed(thread: Thread) -> int:
    """Returns the number of this change, which becomes the thread's number. From here until the commit, changes to the run's review are
    serialised."""
    seq = next_seq(thread.run_id)
    Thread.objects.filter(pk=thread.pk).update(seq=seq)
    return seq


def _write(thread: Thread, user: User, text: str, seq: int) -> Comment:
    comment = Comment.objects.create(thread=thread, author=user, text=text, seq=seq)
    people = _mentioned(thread, text)
    comment.mentions.set(people)
    notices.of_comment(comment, thread, mentioned=people)
    return comment


def _mentioned(thread: Thread, text: str) -> list[User]:
    names = mentioned(text)[:MOST_MENTIONS]
    return [user for user in people_of(thread.run) if user.username.casefold() in names] if names else []
