"""Reads a run's review for its pages: threads that changed after a cursor, their comments, current verdicts, and the current positions of lines."""

from __future__ import annotations

from typing import Any

from django.db.models import Prefetch, QuerySet
from django.utils import timezone

from webapp.accounts.access import Asker, has_right, user_of
from webapp.accounts.models import User
from webapp.review import anchors, places
from webapp.review.desk import person_key, wake
from webapp.review.markdown import html_of, plain
from webapp.review.models import Comment, Desk, Notification, ReadMark, Thread, Verdict
from webapp.review.placing import Placed, place
from webapp.review.services import people_of
from webapp.review.shares import share_of
from webapp.review.standing import standing_of
from webapp.runs.models import Candidate, Run

EXCERPT = 160  # number of characters shown of a thread's first comment


def reads(asker: Asker, run: Run) -> bool:
    """Returns whether the requester may read comments. Comments belong to the team. A published run shows everyone its verdicts, but not its
    comments."""
    share = share_of(asker)
    return share.comments if share else has_right(asker, run.team_id, "view")


def state(asker: Asker, run: Run, since: int = 0) -> dict[str, Any]:
    """Returns `{seq, threads, verdicts}`: the threads that changed after `since`, in their current form, and all current verdicts."""
    seq = head(run)
    user = user_of(asker)
    threads = []
    if reads(asker, run) and since < seq:
        comments = Prefetch("comments", Comment.objects.select_related("author"))
        found = Thread.objects.filter(run=run, seq__gt=since).select_related("resolved_by").prefetch_related(comments).order_by("seq")
        marks = dict(ReadMark.objects.filter(thread__run=run, user=user.pk).values_list("thread", "seq"))
        threads = [_summary(thread, user.pk, marks.get(thread.pk, 0) if user.pk else seq) for thread in found]
    return {
        # Read the number before the threads, so that a concurrent change may be fetched twice but is never missed.
        "seq": seq,
        "threads": threads,
        "verdicts": [_verdict(verdict) for verdict in standing_of(run).values()],
    }


def head(run: Run) -> int:
    """Returns the number of the latest change to a run's review."""
    return Desk.objects.filter(run=run).values_list("seq", flat=True).first() or 0


def _summary(thread: Thread, me: int | None, read: int) -> dict[str, Any]:
    said = [comment for comment in thread.comments.all() if comment.deleted_at is None]
    if not said:
        return {"id": thread.pk, "seq": thread.seq, "gone": True}
    excerpt = plain(said[0].text)
    return {
        "id": thread.pk,
        "seq": thread.seq,
        "kind": thread.kind,
        "anchor": thread.anchor,
        "label": places.label(thread.anchor),
        "href": places.href(thread.run, thread.anchor, thread.pk),
        "author": name_of(said[0].author),
        "excerpt": excerpt[:EXCERPT] + ("…" if len(excerpt) > EXCERPT else ""),
        "at": said[-1].at.isoformat(),
        "count": len(said),
        "unread": sum(comment.seq > read and comment.author_id != me for comment in said),
        "resolved": name_of(thread.resolved_by) if thread.resolved_at else None,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "candidate": verdict.candidate, "value": verdict.value, "reason": verdict.reason, "by": name_of(verdict.by), "at": verdict.at.isoformat(),
    }  # fmt: skip


def name_of(user: User | None) -> str:
    return user.username if user else "a former member"


def names_of(run: Run) -> frozenset[str]:
    """Returns the names of the people whose mentions are marked."""
    return frozenset(name.casefold() for name in people_of(run).values_list("username", flat=True))


def comments_of(thread: Thread, me: int | None) -> list[dict[str, Any]]:
    """Returns a thread's comments in the form that the template expects."""
    people = names_of(thread.run)
    read = ReadMark.objects.filter(thread=thread, user=me).values_list("seq", flat=True).first() or 0 if me else thread.seq
    return [
        {
            "row": comment,
            "name": name_of(comment.author),
            "html": html_of(comment.text, people),
            "own": comment.author_id is not None and comment.author_id == me,
            "fresh": comment.seq > read and comment.author_id != me and comment.deleted_at is None,
        }
        for comment in thread.comments.select_related("author")
    ]


def mark_read(user: User, threads: QuerySet[Thread], seq: int) -> None:
    """Records that the person has seen these threads up to `seq`, and marks the related notifications as read. A mark never moves back."""
    ids = list(threads.values_list("pk", flat=True))
    ReadMark.objects.bulk_create([ReadMark(user=user, thread_id=pk, seq=seq) for pk in ids], ignore_conflicts=True)
    ReadMark.objects.filter(user=user, thread__in=ids, seq__lt=seq).update(seq=seq)
    if Notification.objects.filter(user=user, thread__in=ids, read_at=None).update(read_at=timezone.now()):
        wake(person_key(user.pk))


def placed(asker: Asker, run: Run, number: int, against: str = "") -> list[dict[str, Any]]:
    """Returns the positions of line threads on a candidate's page: `[{thread, side, line, state}]`. `against` names the old side, or is "" if there
    is none.

    Includes the candidate's own threads and the open threads of its ancestors, which are located by the text of their line. If a line no longer
    exists in the candidate, its thread is shown on the old side if the line still exists there. A line that exists on neither side has no number.
    """
    candidate = Candidate.objects.filter(run=run, number=number).first()
    if candidate is None:
        raise anchors.AnchorRefused(f"This run has no candidate {number}.")
    if not reads(asker, run):
        return []
    other = [anchors.other_side(candidate, against)] if against else []
    lineage = _lineage(run, number)
    programs: dict[int | None, list[str]] = {}

    def at(thread: Thread, program: int | None) -> Placed:
        if thread.anchor["of"] == program:
            return Placed(thread.anchor["line"], "here")
        if program not in programs:
            programs[program] = anchors.source_lines(run, program)
        return place(thread.anchor, programs[program])

    found = []
    for thread in Thread.objects.filter(run=run, kind="line", comments__deleted_at=None).distinct().order_by("pk"):
        of = thread.anchor["of"]
        if thread.resolved_at is not None and of not in (number, *other):
            continue
        side, stands = "new", at(thread, number) if of in lineage else Placed(None, "outdated")
        if stands.line is None and other and (of == other[0] or (of in lineage and other[0] in lineage)):
            side, stands = "old", at(thread, other[0])
        if of in lineage or of in other:
            found.append({"thread": thread.pk, "side": side, "line": stands.line, "state": stands.state})
    return found


def _lineage(run: Run, number: int | None) -> list[int | None]:
    """Returns the program, its parent, and so on back to the reference."""
    parents = dict(run.candidates.values_list("number", "parent_number"))
    line: list[int | None] = []
    while number is not None and number not in line:
        line.append(number)
        number = parents.get(number)
    return [*line, None]
