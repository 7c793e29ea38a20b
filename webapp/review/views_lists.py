"""A team's review overview, and a person's notifications."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.accounts.signed_in import Request
from webapp.review import kinds, listing, notices, places
from webapp.review.desk import person_key, wake
from webapp.review.models import Comment, Notification, Wishes
from webapp.runs.access import run_for

A_PAGE = 40
MOST_WAITING = 20


@login_required
@require_GET
def overview(request: Request) -> HttpResponse:
    """Shows the current team's threads (filtered), results that await a verdict, and verdicts that keep results out of rankings."""
    team = request.team
    filters = listing.ThreadFilters.read(request.GET)
    page = Paginator(filters.apply(listing.threads_of(team), request.user), A_PAGE).get_page(request.GET.get("page"))
    firsts = _first_comments([thread.pk for thread in page])
    rows = [
        {"thread": thread, "label": places.label(thread.anchor), "href": places.thread_href(thread), "first": firsts.get(thread.pk)}
        for thread in page
    ]
    waiting = listing.waiting_for_verdict(team)
    context = {
        "rows": rows,
        "page": page,
        "filters": filters,
        "show": listing.SHOW,
        "kinds": listing.KINDS,
        "waiting": waiting[:MOST_WAITING],
        "waiting_count": waiting.count(),
        "verdicts": listing.standing_verdicts(team)[:MOST_WAITING],
    }
    return render(request, "review/_threads.html" if request.htmx and not request.htmx.boosted else "review/overview.html", context)


def _first_comments(threads: list[int]) -> dict[int, Comment]:
    rows = Comment.objects.filter(thread__in=threads, deleted_at=None).select_related("author").order_by("thread", "pk").distinct("thread")
    return {comment.thread_id: comment for comment in rows}


@login_required
@require_GET
def notifications(request: Request) -> HttpResponse:
    """Lists notifications, newest first; `?show=unread` lists only unread ones. If the person can no longer see a notification's run, the
    notification says so and has no link."""
    rows = listing.notifications_of(request.user)
    unread_only = request.GET.get("show") == "unread"
    page = Paginator(rows.filter(read_at=None) if unread_only else rows, A_PAGE).get_page(request.GET.get("page"))
    wishes = Wishes.objects.filter(user=request.user).first() or Wishes(user=request.user)
    context = {
        "rows": [{"row": row, "sentence": kinds.sentence(row)} for row in page],
        "page": page,
        "unread_only": unread_only,
        "unread": notices.unread(request.user),
        "kinds": kinds.WISHES,
        "wishes": wishes,
        "mail": settings.MAIL,
    }
    return render(request, "review/notifications.html", context)


@login_required
@require_GET
def notification(request: Request, notification_id: int) -> HttpResponse:
    """Marks the notification as read and redirects to its subject."""
    found = get_object_or_404(listing.notifications_of(request.user), pk=notification_id)
    _read(request, found.pk)
    run_for(request, found.run_id)
    return redirect(listing.notification_href(found))


@login_required
@require_POST
def mark_read(request: Request) -> HttpResponse:
    """Marks one notification (`id`) or all of them as read."""
    wanted = request.POST.get("id", "")
    _read(request, int(wanted) if wanted.isdecimal() and len(wanted) <= 18 else None)
    return redirect("review:notifications")


def _read(request: Request, pk: int | None) -> None:
    rows = Notification.objects.filter(user=request.user, read_at=None)
    if (rows.filter(pk=pk) if pk is not None else rows).update(read_at=timezone.now()):
        wake(person_key(request.user.pk))


@login_required
@require_http_methods(["POST"])
def choose(request: Request) -> HttpResponse:
    """Saves the person's notification preferences."""
    wanted = request.POST.getlist("kind")
    offered = [kind for kind in kinds.WISHES if kind in request.POST.getlist("offered")] or [
        kind for kind in kinds.WISHES if kind not in kinds.EVENTS
    ]
    chosen = {"muted": [kind for kind in offered if kind not in wanted], "mail": "mail" in request.POST}
    if "mailed_offered" in request.POST:  # only present if the installation sends mail
        chosen["unmailed"] = [kind for kind in offered if kind not in request.POST.getlist("mailed")]
    Wishes.objects.update_or_create(user=request.user, defaults=chosen)
    messages.success(request, "Kept.")
    return redirect("review:notifications")
