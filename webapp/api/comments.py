"""A team's comments on a run, in threads that are each anchored to a place in the run. Threads can be read, opened, answered and resolved as on the
pages."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any

from django.db.models import Prefetch, QuerySet
from django.http import Http404, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import LARGEST, Seq, Text
from webapp.api.calls.idempotency import HEADER_PARAMETER, once
from webapp.api.calls.problems import CallRefused, refusals, retry_after, wrong
from webapp.api.run_schemas import Asked, address
from webapp.review import anchors, places, reading, services
from webapp.review.models import Comment, Thread
from webapp.runs.access import run_for
from webapp.runs.models import Run

router = Router(tags=["comments"])
ERRORS = refusals(400, 401, 403, 404, 409, 422, 429)
CREATES = {"parameters": [HEADER_PARAMETER]}
A_WHILE = 15.0  # seconds until a person who posts too fast can try again

ThreadId = Annotated[int, Field(ge=1, le=LARGEST, description="Id of a thread.")]
Said = Annotated[Text, Field(min_length=1, max_length=services.LONGEST_COMMENT, description="Markdown; `@name` notifies a member of the team.")]


class ThreadsAsked(Asked):
    after: Seq = Field(default=0, description="Only threads that changed after this number: `seq` of an earlier answer, or `next` of a full page.")
    resolved: bool | None = Field(default=None, description="true: only resolved threads; false: only open ones.")
    candidate: int | None = Field(default=None, ge=0, le=2**31 - 1, description="Only threads on this candidate and its lines.")
    limit: Annotated[int, Field(ge=1, le=200)] = 100


class NewThread(Asked):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"place": {"kind": "line", "candidate": 4, "line": 12}, "text": "two reads of the row: once is enough"}]}
    )

    text: Said
    place: Annotated[anchors.Place, Field(discriminator="kind")] = Field(
        default=anchors.RunPlace(kind="run"), description="The run, an event, a candidate, a line of a candidate's program, or a range of a timeline."
    )


class Answer(Asked):
    text: Said


class Resolution(Asked):
    resolved: bool = Field(description="false opens the thread again.")


class CommentRow(Schema):
    id: int
    author: str
    text: str = Field(description="Markdown, as it was written; empty if it was deleted.")
    deleted: bool
    at: datetime
    edited_at: datetime | None


class ThreadRow(Schema):
    id: int
    seq: int = Field(description="Number of its latest change within the run's review.")
    on: str = Field(description="Its place in words.", examples=["line 12 of candidate 4"])
    kind: str = Field(description="run, event, candidate, line, range")
    anchor: dict[str, Any] = Field(description="The place as stored; for a line, also its text and neighbours, which serve to find it again.")
    page: str = Field(description="Address of its page.")
    resolved: bool
    resolved_by: str | None
    resolved_at: datetime | None
    created_at: datetime
    comments: list[CommentRow] = Field(description="Oldest first.")


class Threads(Schema):
    threads: list[ThreadRow] = Field(description="In the order of their latest change.")
    seq: int = Field(description="Number of the latest change: pass it as `after` to get what changed since.")
    next: int | None = Field(description="`after` of the next page; null on the last.")


@router.get("/{run_id}/comments", response={200: Threads, **ERRORS}, operation_id="list_comments", summary="List comments")
def list_comments(request: Request, run_id: uuid.UUID, asked: Query[ThreadsAsked]) -> Any:
    """Returns the threads of the run's team with all their comments. Other teams see a published run's verdicts, but not its comments."""
    run = _readable(request, run_id)
    seq = reading.head(run)  # read before the threads, so that comments arriving in between are read twice rather than missed
    threads = _threads(run).filter(seq__gt=asked.after)
    if asked.resolved is not None:
        threads = threads.filter(resolved_at__isnull=not asked.resolved)
    if asked.candidate is not None:
        threads = threads.filter(candidate=asked.candidate)
    found = list(threads.order_by("seq")[: asked.limit + 1])
    rows = found[: asked.limit]
    return {"threads": [_row(thread, request) for thread in rows], "seq": seq, "next": rows[-1].seq if len(found) > len(rows) else None}


@router.post("/{run_id}/comments", response={201: ThreadRow, **ERRORS}, operation_id="open_thread", summary="Comment", openapi_extra=CREATES)
def open_thread(request: Request, run_id: uuid.UUID, given: NewThread) -> HttpResponse:
    """Opens a thread. Mentioned people are notified on the pages. A comment on a line stays with that line even if the lines above it change."""
    run = _writable(request, run_id)

    def create() -> tuple[int, Any]:
        try:
            thread = services.open_thread(request, run, given.place.model_dump(), given.text)
        except anchors.AnchorRefused as error:
            raise wrong("body.place", str(error)) from None
        except services.CommentRefused as error:
            raise _refused(error) from None
        return 201, _row(_thread(run, thread.pk), request)

    return once(request, run.team, create)


@router.get("/{run_id}/comments/{thread_id}", response={200: ThreadRow, **ERRORS}, operation_id="get_thread", summary="One thread")
def get_thread(request: Request, run_id: uuid.UUID, thread_id: ThreadId) -> Any:
    return _row(_thread(_readable(request, run_id), thread_id), request)


@router.post(
    "/{run_id}/comments/{thread_id}/replies",
    response={201: ThreadRow, **ERRORS},
    operation_id="reply_to_thread",
    summary="Answer in a thread",
    openapi_extra=CREATES,
)
def reply_to_thread(request: Request, run_id: uuid.UUID, thread_id: ThreadId, given: Answer) -> HttpResponse:
    """Adds a reply and returns the whole thread. Everyone who has written in the thread is notified."""
    run = _writable(request, run_id)
    thread = _thread(run, thread_id)

    def create() -> tuple[int, Any]:
        try:
            services.reply(request, thread, given.text)
        except services.CommentRefused as error:
            raise _refused(error) from None
        return 201, _row(_thread(run, thread_id), request)

    return once(request, run.team, create)


@router.post(
    "/{run_id}/comments/{thread_id}/resolution", response={200: ThreadRow, **ERRORS}, operation_id="resolve_thread", summary="Resolve a thread"
)
def resolve_thread(request: Request, run_id: uuid.UUID, thread_id: ThreadId, given: Resolution) -> Any:
    """Resolves or reopens a thread. Repeating the call changes nothing."""
    run = _writable(request, run_id)
    services.set_resolved(request, _thread(run, thread_id), given.resolved)
    return _row(_thread(run, thread_id), request)


def _readable(request: Request, run_id: uuid.UUID) -> Run:
    needs(request, "read")
    run, _ = run_for(request, run_id)
    if not reading.reads(request, run):
        raise Http404("no such thing")
    return run


def _writable(request: Request, run_id: uuid.UUID) -> Run:
    needs(request, "submit")
    run, _ = run_for(request, run_id, "act")
    return run


def _threads(run: Run) -> QuerySet[Thread]:
    """Return the threads that still have visible comments."""
    comments = Prefetch("comments", Comment.objects.select_related("author"))
    return Thread.objects.filter(run=run, comments__deleted_at=None).distinct().select_related("run", "resolved_by").prefetch_related(comments)


def _thread(run: Run, thread_id: int) -> Thread:
    found = _threads(run).filter(pk=thread_id).first()
    if found is None:
        raise Http404(f"no thread {thread_id} on this run")
    return found


def _row(thread: Thread, request: Request) -> ThreadRow:
    return ThreadRow(
        id=thread.pk,
        seq=thread.seq,
        on=places.label(thread.anchor),
        kind=thread.kind,
        anchor=thread.anchor,
        page=address(places.thread_href(thread), request),
        resolved=thread.resolved_at is not None,
        resolved_by=reading.name_of(thread.resolved_by) if thread.resolved_at else None,
        resolved_at=thread.resolved_at,
        created_at=thread.created_at,
        comments=[
            CommentRow(
                id=comment.pk,
                author=reading.name_of(comment.author),
                text=comment.text,
                deleted=comment.deleted_at is not None,
                at=comment.at,
                edited_at=comment.edited_at,
            )
            for comment in thread.comments.all()
        ],
    )


def _refused(error: services.CommentRefused) -> CallRefused:
    if isinstance(error, services.TooFast):
        return CallRefused(429, "You wrote many comments within a minute.", "Wait a moment.", headers=retry_after(A_WHILE))
    return wrong("body.text", str(error))
