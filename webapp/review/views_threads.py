"""Serves a run's threads to its pages: changes after a cursor, comments, and all actions. Refusals are sent as JSON with an explanation."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts.access import Right, has_right
from webapp.accounts.signed_in import Request
from webapp.review import reading, services
from webapp.review.anchors import AnchorRefused
from webapp.review.models import Comment, Thread
from webapp.review.places import thread_href
from webapp.runs.access import run_for

MOST_PEOPLE = 8  # maximum number of names suggested at a time
AGAINST_WORDS = ("", "parent", "task")


def refusals_as_json(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Turns refusals into JSON with an explanation, so the page can keep the text that was typed."""

    @wraps(view)
    def answering(request: Request, *arguments: Any, **named: Any) -> HttpResponse:
        try:
            return view(request, *arguments, **named)
        except services.TooFast as error:
            return JsonResponse({"error": str(error)}, status=429)
        except (services.CommentRefused, AnchorRefused) as error:
            return JsonResponse({"error": str(error)}, status=400)
        except PermissionDenied as error:
            return JsonResponse({"error": str(error)}, status=403)

    return answering


def thread_for(request: Request, run_id: uuid.UUID, thread_id: int, right: Right = "view") -> Thread:
    """Returns a thread that still has visible comments. Raises `Http404` if the requester may not read the team's comments."""
    run, _ = run_for(request, run_id, right)
    if not reading.reads(request, run):
        raise Http404("no such thread")
    return get_object_or_404(Thread.objects.select_related("run", "run__team", "team", "resolved_by"), pk=thread_id, run=run)


def comment_for(request: Request, run_id: uuid.UUID, comment_id: int, right: Right = "view") -> Comment:
    run, _ = run_for(request, run_id, right)
    if not reading.reads(request, run):
        raise Http404("no such comment")
    return get_object_or_404(Comment.objects.select_related("thread", "thread__run", "thread__team"), pk=comment_id, thread__run=run)


@login_required
@require_GET
def state(request: Request, run_id: uuid.UUID) -> JsonResponse:
    """Returns the changes after the page's cursor, given as `?since=N` (`reading.state`)."""
    run, _ = run_for(request, run_id)
    since = request.GET.get("since", "0")
    if not since.isdecimal() or len(since) > 18:
        return JsonResponse({"error": "`since` is a whole number"}, status=400)
    return _fresh(reading.state(request, run, int(since)))


@login_required
@require_GET
@refusals_as_json
def placed(request: Request, run_id: uuid.UUID) -> JsonResponse:
    """Returns the line positions of the threads on the page given by `?candidate=4&against=parent`."""
    run, _ = run_for(request, run_id)
    number, against = request.GET.get("candidate", ""), request.GET.get("against", "")
    if not number.isdecimal() or len(number) > 9 or not (against in AGAINST_WORDS or (against.isdecimal() and len(against) <= 9)):
        raise AnchorRefused("`candidate` is a number, `against` is parent, task or a number.")
    return _fresh({"places": reading.placed(request, run, int(number), against)})


@login_required
@require_GET
def comments(request: Request, run_id: uuid.UUID, thread_id: int) -> HttpResponse:
    """Renders the comments of one thread for the page's panel."""
    thread = thread_for(request, run_id, thread_id)
    rows = reading.comments_of(thread, request.user.pk)
    context = {"thread": thread, "comments": rows, "may_write": has_right(request, thread.team_id, "act"), "href": thread_href(thread)}
    response = render(request, "review/_comments.html", context)
    response["Cache-Control"] = "no-store"
    return response


@login_required
@require_GET
def history(request: Request, run_id: uuid.UUID, comment_id: int) -> HttpResponse:
    """Returns the earlier texts of an edited comment, or nothing if the comment was deleted."""
    comment = comment_for(request, run_id, comment_id)
    if comment.deleted_at is not None:
        raise Http404("no such comment")
    return render(request, "review/_history.html", {"comment": comment, "revisions": comment.revisions.order_by("-pk")})


@login_required
@require_GET
def people(request: Request, run_id: uuid.UUID) -> JsonResponse:
    """Returns the names that match `?q=ad` and can be mentioned, for people who may comment."""
    run, _ = run_for(request, run_id, "act")
    found = services.people_of(run).exclude(pk=request.user.pk)
    wanted = request.GET.get("q", "")[:60]
    return _fresh({"people": list(found.filter(username__istartswith=wanted).values_list("username", flat=True)[:MOST_PEOPLE])})


@login_required
@require_POST
@refusals_as_json
def open_thread(request: Request, run_id: uuid.UUID) -> JsonResponse:
    run, _ = run_for(request, run_id, "act")
    thread = services.open_thread(request, run, request.POST.get("anchor", ""), request.POST.get("text", ""))
    return JsonResponse({"thread": thread.pk, "seq": thread.seq, "href": thread_href(thread)}, status=201)


@login_required
@require_POST
@refusals_as_json
def reply(request: Request, run_id: uuid.UUID, thread_id: int) -> JsonResponse:
    comment = services.reply(request, thread_for(request, run_id, thread_id, "act"), request.POST.get("text", ""))
    return JsonResponse({"comment": comment.pk, "seq": comment.seq}, status=201)


@login_required
@require_POST
@refusals_as_json
def resolve(request: Request, run_id: uuid.UUID, thread_id: int) -> JsonResponse:
    services.set_resolved(request, thread_for(request, run_id, thread_id, "act"), request.POST.get("resolved") == "1")
    return JsonResponse({"thread": thread_id})


@login_required
@require_POST
@refusals_as_json
def edit(request: Request, run_id: uuid.UUID, comment_id: int) -> JsonResponse:
    comment = services.edit(request, comment_for(request, run_id, comment_id, "act"), request.POST.get("text", ""))
    return JsonResponse({"comment": comment.pk})


@login_required
@require_POST
@refusals_as_json
def delete(request: Request, run_id: uuid.UUID, comment_id: int) -> JsonResponse:
    services.delete(request, comment_for(request, run_id, comment_id, "act"))
    return JsonResponse({"comment": comment_id})


@login_required
@require_POST
def read(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Marks one `thread` or all threads as read up to `seq`, because the reader's screen has shown everything up to that number."""
    run, _ = run_for(request, run_id)
    seq, thread = request.POST.get("seq", ""), request.POST.get("thread", "")
    if seq.isdecimal() and len(seq) <= 18 and reading.reads(request, run):
        threads = Thread.objects.filter(run=run, seq__gt=0)
        threads = threads.filter(pk=int(thread)) if thread.isdecimal() and len(thread) <= 18 else threads
        reading.mark_read(request.user, threads, min(int(seq), reading.head(run)))
    return HttpResponse(status=204)


@login_required
@require_GET
def permalink(request: Request, thread_id: int) -> HttpResponse:
    """Redirects to the page that shows the thread's place."""
    thread = get_object_or_404(Thread.objects.select_related("run"), pk=thread_id)
    thread_for(request, thread.run_id, thread_id)
    return redirect(thread_href(thread))


def _fresh(data: dict[str, Any]) -> JsonResponse:
    response = JsonResponse(data, json_dumps_params={"separators": (",", ":")})
    response["Cache-Control"] = "no-store"
    return response
