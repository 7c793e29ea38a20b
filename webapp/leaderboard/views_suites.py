"""Lets a team's members create, change, import and delete suites, and choose who sees the team's results by default."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, transaction
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.accounts import audit
from webapp.accounts.access import has_right, require, team_for
from webapp.accounts.signed_in import Request
from webapp.leaderboard.models import EVERYONE, PRIVATE, TEAM, VISIBILITY, Preference, Result, Suite, SuiteTask
from webapp.leaderboard.shown.opening import opened_teams
from webapp.leaderboard.suites import Chosen, SuiteRefused, choices, choose, read_tasks, visible

LARGEST_FILE = 200_000  # bytes
MOST_TASKS = 2000


@login_required
@require_GET
def suites(request: Request) -> HttpResponse:
    own = visible(request).select_related("team", "created_by").prefetch_related("tasks")
    preferred = Preference.objects.filter(team=request.team.pk).values_list("visibility", flat=True).first() or TEAM
    context = {
        "own": [{"suite": suite, "mine": has_right(request, suite.team_id, "act")} for suite in own],
        "imported": [choice for choice in choices(request) if choice.kind != "own"],
        "preferred": preferred,
        "opened": opened_teams().filter(team=request.team.pk).exists(),
        "published": Result.objects.filter(team=request.team.pk, visibility=EVERYONE).count(),
        "seen_by": VISIBILITY,
        "owns": has_right(request, request.team, "own"),
        "acts": has_right(request, request.team, "act"),
    }
    return render(request, "leaderboard/suites.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def new_suite(request: Request) -> HttpResponse:
    team = team_for(request)
    if request.method == "POST":
        return _save(request, Suite(team=team, created_by=request.user))
    copied = choose(request, request.GET.get("from", "")) if request.GET.get("from") else None
    typed = {"name": copied.name if copied else "", "description": "", "visibility": TEAM, "tasks": _text(copied)}
    return _form(request, None, typed)


@login_required
@require_http_methods(["GET", "POST"])
def edit_suite(request: Request, suite_id: uuid.UUID) -> HttpResponse:
    suite = _suite(request, suite_id)
    require(request, suite.team_id, "act")
    if request.method == "POST":
        return _save(request, suite)
    typed = {"name": suite.name, "description": suite.description, "visibility": suite.visibility, "tasks": _text(choose(request, str(suite.pk)))}
    return _form(request, suite, typed)


def _suite(request: Request, suite_id: uuid.UUID) -> Suite:
    suite = visible(request).select_related("team").filter(pk=suite_id).first()
    if suite is None:
        raise Http404("no such suite")
    return suite


def _text(suite: Chosen | None) -> str:
    return "\n".join(f"{sha} {name}" for sha, name in suite.names.items()) if suite else ""


def _form(request: Request, suite: Suite | None, typed: dict[str, str], problem: str = "") -> HttpResponse:
    context = {"suite": suite, "typed": typed, "problem": problem, "seen_by": VISIBILITY}
    return render(request, "leaderboard/suite.html", context, status=422 if problem else 200)


def _save(request: Request, suite: Suite) -> HttpResponse:
    """Save the suite, or keep the user's input if the form contains an error."""
    typed = {name: request.POST.get(name, "").replace("\0", "").replace("\r\n", "\n") for name in ("name", "description", "visibility", "tasks")}
    existing = None if suite._state.adding else suite
    try:
        if file := request.FILES.get("file"):
            typed["tasks"] = _read(file)
        name = typed["name"].strip()
        if not name or len(name) > 100:
            raise SuiteRefused("The name needs 1 to 100 characters.")
        if typed["visibility"] not in dict(VISIBILITY):
            raise SuiteRefused("Choose who sees the suite.")
        tasks = read_tasks(request, typed["tasks"].splitlines())
        if len(tasks) > MOST_TASKS:
            raise SuiteRefused(f"The list has {len(tasks):,} tasks; at most {MOST_TASKS:,} are allowed.")
        with transaction.atomic():
            suite.name, suite.description, suite.visibility = name, typed["description"].strip()[:2000], typed["visibility"]
            suite.changed_at = timezone.now()
            suite.save()
            suite.tasks.all().delete()
            SuiteTask.objects.bulk_create(SuiteTask(suite=suite, position=n, sha=sha, name=task) for n, (sha, task) in enumerate(tasks))
            audit.record(request, suite.team, "suite.saved", name, {"tasks": len(tasks), "visibility": suite.visibility})
    except SuiteRefused as refusal:
        return _form(request, existing, typed, str(refusal))
    except IntegrityError:
        return _form(request, existing, typed, f"The team has a suite named “{name}” already: choose another name, or change that one.")
    messages.success(request, f"{suite.name}: {len(tasks)} tasks.")
    return redirect("leaderboard:suites")


def _read(file: UploadedFile[Any]) -> str:
    if (file.size or 0) > LARGEST_FILE:
        raise SuiteRefused(f"The file has {file.size:,} bytes; at most {LARGEST_FILE:,} are allowed. List one task per line.")
    try:
        return bytes(file.read()).decode("utf-8").replace("\0", "")
    except UnicodeDecodeError as error:
        raise SuiteRefused(f"The file is not text in UTF-8 (byte {error.start}): list one task per line.") from None


@login_required
@require_POST
def delete_suite(request: Request, suite_id: uuid.UUID) -> HttpResponse:
    suite = _suite(request, suite_id)
    require(request, suite.team_id, "act")
    audit.record(request, suite.team, "suite.deleted", suite.name, {"tasks": suite.tasks.count()})
    suite.delete()
    messages.success(request, f"{suite.name} is deleted. Results stay; only the selection is gone.")
    return redirect("leaderboard:suites")


@login_required
@require_GET
def suite_file(request: Request, suite_id: uuid.UUID) -> HttpResponse:
    """Return the suite as a file that can be imported again."""
    suite = choose(request, str(suite_id))
    if suite is None:
        raise Http404("no such suite")
    answer = HttpResponse(f"# {suite.name}\n{_text(suite)}\n", content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="suite.txt"'
    return answer


@login_required
@require_POST
def set_preference(request: Request) -> HttpResponse:
    """Set who sees the results of the current team's future runs. Existing results are unaffected."""
    require(request, request.team, "own")
    wanted = request.POST.get("visibility", "")
    if wanted not in dict(VISIBILITY):
        return HttpResponseBadRequest("`visibility` is private, team or everyone")
    Preference.objects.update_or_create(team=request.team, defaults={"visibility": wanted})
    audit.record(request, request.team, "results.preferred", dict(VISIBILITY)[wanted], {"visibility": wanted})
    messages.success(
        request,
        f"New results of {request.team.name} will be visible to {'the person who ran them' if wanted == PRIVATE else dict(VISIBILITY)[wanted]}.",
    )
    return redirect("leaderboard:suites")
