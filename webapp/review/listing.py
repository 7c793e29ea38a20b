"""Lists that span several runs: a team's threads, runs that await a verdict, and a person's notifications."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.http import QueryDict

from webapp.accounts.models import Team, User
from webapp.review import places
from webapp.review.models import Comment, Notification, ReadMark, Thread, Verdict
from webapp.runs.models import Candidate, Run
from webapp.runs.pages.listing import with_best

SHOW = {"open": "Open", "mine": "Mentions me", "written": "I wrote in", "resolved": "Resolved", "all": "All"}
KINDS = {"": "anywhere", "line": "on lines", "event": "on events", "range": "on timelines", "candidate": "on candidates", "run": "on runs"}


@dataclass(frozen=True)
class ThreadFilters:
    """The filters for a team's threads, read from the query string."""

    show: str = "open"
    kind: str = ""
    text: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> ThreadFilters:
        show, kind = query.get("show", ""), query.get("kind", "")
        return cls(show if show in SHOW else "open", kind if kind in KINDS else "", query.get("q", "").replace("\0", "").strip()[:140])

    def apply(self, threads: QuerySet[Thread], user: User) -> QuerySet[Thread]:
        match self.show:
            case "open":
                threads = threads.filter(resolved_at=None)
            case "resolved":
                threads = threads.filter(resolved_at__isnull=False)
            case "mine":
                threads = threads.filter(Exists(_comments().filter(mentions=user)))
            case "written":
                threads = threads.filter(Exists(_comments().filter(author=user)))
        if self.kind:
            threads = threads.filter(kind=self.kind)
        for word in self.text.split()[:8]:
            said = _comments().filter(text__icontains=word)
            threads = threads.filter(Q(run__title__icontains=word) | Q(run__task__name__icontains=word) | Exists(said))
        return threads


def _comments() -> QuerySet[Comment]:
    return Comment.objects.filter(thread=OuterRef("pk"), deleted_at=None)


def threads_of(team: Team) -> QuerySet[Thread]:
    """Returns the threads of the team's runs that still have visible comments, most recent first."""
    said = Count("comments", filter=Q(comments__deleted_at=None))
    return (
        Thread.objects.filter(team=team)
        .annotate(said=said)
        .filter(said__gt=0)
        .select_related("run", "created_by", "resolved_by")
        .order_by("-last_at")
    )


def waiting_for_verdict(team: Team) -> QuerySet[Run]:
    """Returns the finished runs with a confirmed result and no current verdict, most recent first."""
    best = Candidate.objects.filter(run=OuterRef("pk"), number=OuterRef("best_candidate"), verdict="")
    runs = Run.objects.filter(team=team, state="finished", speedup__isnull=False, archived_at=None)
    return with_best(runs.filter(Exists(best))).select_related("task", "created_by").order_by("-finished_at")


def standing_verdicts(team: Team) -> QuerySet[Verdict]:
    """Returns the current verdicts on the team's candidates that exclude a result from the ranking."""
    newest = Verdict.objects.filter(run__team=team).order_by("run", "candidate", "-id").distinct("run", "candidate")
    kept_out = [Verdict.QUESTIONED, Verdict.HACK, Verdict.RETRACTED]
    return Verdict.objects.filter(pk__in=newest.values("pk"), value__in=kept_out).select_related("run", "by").order_by("-at")


def unread_of(user: User, runs: QuerySet[Run] | list[Run]) -> dict[uuid.UUID, int]:
    """Returns {run id: number of unread comments by others}, omitting runs without unread comments. Needs only one query for all runs."""
    read = ReadMark.objects.filter(user=user, thread=OuterRef("thread"), seq__gte=OuterRef("seq"))
    rows = Comment.objects.filter(thread__run__in=runs, deleted_at=None).exclude(author=user).filter(~Exists(read))
    return dict(rows.values_list(F("thread__run_id")).annotate(count=Count("pk")))


def notifications_of(user: User) -> QuerySet[Notification]:
    rows = Notification.objects.filter(user=user).order_by("-at", "-pk")
    return rows.select_related("run", "run__team", "thread", "thread__run", "comment", "verdict", "actor")


def notification_href(notification: Notification) -> str:
    if notification.thread:
        return places.thread_href(notification.thread)
    number = notification.verdict.candidate if notification.verdict else None
    return places.href(notification.run, {"kind": "candidate", "candidate": number} if number is not None else {"kind": "run"})
