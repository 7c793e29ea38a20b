"""Runs several tasks as one suite run with shared settings, and imports suites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts.access import require, team_for, writable_teams
from webapp.accounts.first_user import first_user
from webapp.accounts.signed_in import Request
from webapp.arena.services import create_arena
from webapp.fleet.choices import device_choices
from webapp.runs.services import QuotaReached
from webapp.tasks.forms import PRECISIONS
from webapp.tasks.kernelbench import NotKernelBench, from_folder, from_zip, import_suites
from webapp.tasks.several import SeveralForm, groups_of, one_policy


@login_required
@require_http_methods(["GET", "POST"])
def several(request: Request) -> HttpResponse:
    """Choose tasks. One run starts per task, all with the same settings."""
    require(request, request.team, "act")
    devices, teams = device_choices(), writable_teams(request)
    groups = groups_of([request.team])
    preferred = "cuda" if any(choice.kind == "cuda" and choice.online for choice in devices) else "cpu"
    ticked = request.POST.getlist("tasks") if request.method == "POST" else _opened_with(request, groups)
    form = SeveralForm(request.POST or None, devices=devices, teams=teams, groups=groups, initial={"device": preferred, "tasks": ticked})
    form.arenas_of = request.team
    if request.method == "POST" and form.is_valid():
        team = team_for(request, form.cleaned_data["team"])
        tasks = form.chosen_tasks()
        settings = form.settings()
        if len(tasks) == 1:
            messages.info(request, "One task is a run like any other: it was submitted as a suite of one.")
        name = form.cleaned_data["name"].strip() or form.default_name(tasks)
        try:
            suite_run = create_arena(team=team, user=request.user, name=name, tasks=tasks, chosen=one_policy(settings))
            return redirect("arena:arena", suite_run.pk)
        except QuotaReached as reached:
            form.add_error(None, str(reached))
    context = {"form": form, "devices": devices, "teams": teams, "groups": groups, "ticked": set(ticked), "precisions": PRECISIONS}
    return render(request, "tasks/several.html", context, status=422 if form.errors else 200)


def _opened_with(request: Request, groups: list[Any]) -> list[str]:
    """Return the tasks that are ticked initially. With `?suite=ID`, these are all tasks in that suite."""
    return [task.value for group in groups if group.key == request.GET.get("suite") for task in group.tasks]


@login_required
@require_POST
def import_tasks(request: Request) -> HttpResponse:
    """Import a KernelBench checkout from a zip. The machine's owner can also import it from a path on the server."""
    team = team_for(request)
    path, upload = request.POST.get("path", "").strip(), request.FILES.get("zip")
    try:
        if upload is not None:
            found = from_zip(upload)
        elif path:
            if request.user != first_user():
                raise PermissionDenied("Only the person who runs this installation can import from a path on the server: upload a zip instead.")
            found = from_folder(Path(path).expanduser())
        else:
            raise NotKernelBench("nothing was given: choose a zip file, or type the path of a checkout")
        imported = import_suites(found, team, request.user)
    except NotKernelBench as error:
        messages.error(request, f"Not imported: {error}.")
        return redirect("tasks:list")
    for suite in imported:
        known = f", {suite.known} known before" if suite.known else ""
        messages.success(request, f"{suite.name}: {suite.new} new task{'s' if suite.new != 1 else ''}{known}.")
        for problem in suite.problems[:5]:
            messages.warning(request, f"Left out: {problem}")
        if len(suite.problems) > 5:
            messages.warning(request, f"{len(suite.problems) - 5} more files of {suite.name} were left out.")
    return redirect("tasks:list")
