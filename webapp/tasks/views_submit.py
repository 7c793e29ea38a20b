"""The pages for submitting a model and for verifying a program. Sources are parsed here but never run."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from agents.choices.workflows import SEARCHES
from agents.settings import Settings
from verifier.source import MAX_SOURCE_BYTES
from webapp.accounts.access import require, team_for, teams_with, writable_teams
from webapp.accounts.signed_in import Request
from webapp.fleet.choices import device_choices
from webapp.runs import services
from webapp.runs.access import run_for
from webapp.runs.models import Run
from webapp.tasks.examples import PROGRAM_SKELETON, SKELETON, described, example, examples, first_source
from webapp.tasks.forms import PRECISIONS, RunForm, SubmitForm, VerifyForm
from webapp.tasks.models import Task
from webapp.tasks.search_fields import BUDGETS, initial_of
from webapp.tasks.written import DTYPES, MARK

DRAFT = re.compile(r"[0-9a-f]{24}")  # name of the draft that the browser keeps until submission (static/tasks/draft.js)


@login_required
@require_http_methods(["GET", "POST"])
def submit(request: Request) -> HttpResponse:
    """Submit a model for the agents to work on."""
    return _run_page(request, SubmitForm, "tasks/submit.html", {"task": first_source()})


@login_required
@require_http_methods(["GET", "POST"])
def verify_own(request: Request) -> HttpResponse:
    """Submit a task with a program for it. Only the verifier works on it; no agents are involved."""
    return _run_page(request, VerifyForm, "tasks/verify.html", {"task": SKELETON, "program": PROGRAM_SKELETON})


def _run_page(request: Request, form_class: type[RunForm], template: str, skeletons: dict[str, str]) -> HttpResponse:
    require(request, request.team, "act")
    devices, teams = device_choices(), writable_teams(request)
    initial = {"device": _preferred(devices), **skeletons, **_start(request, form_class)}
    form = form_class(request.POST or None, request.FILES or None, devices=devices, teams=teams, initial=initial)
    form.arenas_of = request.team
    if request.method == "POST" and form.is_valid():
        team = team_for(request, form.cleaned_data["team"])
        source = form.cleaned_data["task"]
        try:
            run = services.create_run(
                team=team,
                user=request.user,
                task_source=source,
                title=form.cleaned_data["title"].strip() or _title(source),
                settings=form.settings(),
                program_source=form.cleaned_data.get("program"),
            )
        except services.QuotaReached as reached:
            form.add_error(None, str(reached))
        else:
            answer = redirect("runs:run", run.pk)
            if draft := DRAFT.fullmatch(request.POST.get("draft", "")):
                answer.set_cookie("submitted_draft", draft[0], max_age=30 * 86400, samesite="Lax", secure=settings.HTTPS)
            return answer
    context = {
        "draft_key": f"{request.user.pk}:{request.path}",
        "fresh": request.method == "GET" and not set(request.GET) & {"example", "task", "from"},
        "first": not Run.objects.filter(created_by=request.user).exists(),  # shows a newcomer what happens next
        "again": run_for(request, _uuid(request.GET["from"]))[0] if "from" in request.GET else None,
        "form": form,
        "devices": devices,
        "teams": teams,
        "examples": examples(),
        "amounts": json.dumps({name: named for name, (_, named) in BUDGETS.items()}),
        "module_form": form.module,
        "dtypes": DTYPES,
        "precisions": PRECISIONS,
        "max_kib": MAX_SOURCE_BYTES // 1024,
        "max_bytes": MAX_SOURCE_BYTES,
    }
    return render(request, template, context, status=422 if form.errors else 200)


def _preferred(devices: list[Any]) -> str:
    """Return a GPU that is online, or else the CPU."""
    return "cuda" if any(choice.kind == "cuda" and choice.online for choice in devices) else "cpu"


def _start(request: Request, form_class: type[RunForm]) -> dict[str, Any]:
    """Return the page's initial values: `?example=softmax`, `?task=ID` or `?from=RUN` (that run's task and settings)."""
    if "example" in request.GET:
        found = example(request.GET["example"])
        if found is None:
            raise Http404("no such example")
        return {"task": found.source}
    if "task" in request.GET:
        task = Task.objects.filter(team__in=teams_with(request), pk=_uuid(request.GET["task"])).first()
        if task is None:
            raise Http404("no such task")
        return {"task": task.source, "title": task.name}
    if "from" in request.GET:
        run, _ = run_for(request, _uuid(request.GET["from"]))
        return _settings_of(run, form_class)
    return {}


def _settings_of(run: Run, form_class: type[RunForm]) -> dict[str, Any]:
    kept = {name: run.settings[name] for name in ("device", "precision", "mode") if run.settings.get(name)}
    kept["device"] = str(kept.get("device", "cpu")).partition(":")[0]
    if form_class is SubmitForm:
        searched = {name: value for name, value in run.settings.items() if name != "workflow" or value in SEARCHES}
        kept |= {name: value for name, value in initial_of(Settings.model_validate(searched)).items() if value is not None}
    if form_class is VerifyForm:
        number = run.best_candidate or 1
        kept["program"] = services.candidate_source(run, number) or PROGRAM_SKELETON
    return {"task": run.task.source, "title": run.title, **kept}


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise Http404("not an id") from None


def _title(source: str) -> str:
    known = next((found for found in examples() if found.source == source), None)
    said = described(source).removesuffix(" as a task") if MARK in source else described(source)
    return (known.slug.replace("_", " ") if known else said or "model")[:140]


@login_required
@require_GET
def example_source(request: Request, slug: str) -> HttpResponse:
    found = example(slug)
    if found is None:
        raise Http404("no such example")
    return HttpResponse(found.source, content_type="text/plain; charset=utf-8")
