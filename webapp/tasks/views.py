"""A team's tasks: suites, search, and a task's page with its runs."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from webapp.accounts.access import teams_with
from webapp.accounts.first_user import first_user
from webapp.accounts.signed_in import Request
from webapp.diffs.highlight import highlighted_lines
from webapp.runs.pages.listing import team_runs
from webapp.tasks.models import Suite, Task

PAGE_SIZE = 100


def team_tasks(request: Request) -> QuerySet[Task]:
    return Task.objects.filter(team=request.team)


@login_required
@require_GET
def task_list(request: Request) -> HttpResponse:
    """List the current team's tasks by suite, with search."""
    text = request.GET.get("q", "").replace("\0", "").strip()
    suites = Suite.objects.filter(team=request.team).annotate(size=Count("tasks")).order_by("name")
    chosen = next((suite for suite in suites if str(suite.pk) == request.GET.get("suite")), None)
    own = request.GET.get("suite") == "none"
    tasks = (
        team_tasks(request)
        .select_related("suite")
        .annotate(
            tried=Count("runs", filter=Q(runs__archived_at=None)),
            improved=Count("runs", filter=Q(runs__archived_at=None, runs__outcome="improved")),
        )
    )
    if chosen:
        tasks = tasks.filter(suite=chosen)
    elif own:
        tasks = tasks.filter(suite=None)
    for word in text.split()[:8]:
        tasks = tasks.filter(Q(name__icontains=word) | Q(suite__name__icontains=word) | Q(source__icontains=word))
    page = Paginator(tasks.order_by("suite__name", "name", "created_at"), PAGE_SIZE).get_page(request.GET.get("page"))
    total = team_tasks(request).count()
    context = {
        "page": page,
        "suites": suites,
        "chosen": chosen,
        "own": own,
        "unsorted": team_tasks(request).filter(suite=None).count(),
        "total": total,
        "text": text,
        "may_read_paths": request.user == first_user(),
    }
    return render(request, "tasks/list.html", context)


@login_required
@require_GET
def task_page(request: Request, task_id: uuid.UUID) -> HttpResponse:
    task = get_object_or_404(Task.objects.filter(team__in=teams_with(request)).select_related("suite", "created_by", "team"), pk=task_id)
    context = {"task": task, "lines": highlighted_lines(task.source), "runs": team_runs(task.team).filter(task=task)[:50]}
    return render(request, "tasks/task.html", context)
