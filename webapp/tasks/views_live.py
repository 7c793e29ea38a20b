"""Endpoints that the submit page calls while a person types: problems in the source, the form of a plain module, sandbox results and cost
estimates."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.core.exceptions import BadRequest
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from agents.choices.workflows import DEFAULT, ROLES, WORKFLOWS, without_models
from verifier.source import MAX_SOURCE_BYTES, SourceError, import_problems, parse, sha256
from verifier.task import ALLOWED_IMPORTS
from webapp.accounts.access import team_for, teams_with
from webapp.accounts.signed_in import Request
from webapp.fleet.choices import device_choices
from webapp.runs import estimates
from webapp.tasks import trying
from webapp.tasks.forms import MODES, PRECISIONS, problems_of
from webapp.tasks.models import TryOut
from webapp.tasks.modules import is_task, read_module
from webapp.tasks.search_fields import BUILT_IN, workflow_of
from webapp.tasks.written import DTYPES, MARK, ModuleForm, plain_part


def _source(request: Request) -> str:
    return request.POST.get("source", "").replace("\r\n", "\n").replace("\r", "\n")


@login_required
@require_POST
def check(request: Request) -> JsonResponse:
    """Return the problems found by parsing `source` as a `kind` ("task" or "program").

    A plain module is not an error. The response identifies it as one and lists its classes.
    """
    kind = "program" if request.POST.get("kind") == "program" else "task"
    source = _source(request)
    module = read_module(plain_part(source)) if kind == "task" and len(source) <= MAX_SOURCE_BYTES else None
    plain = module is not None and not is_task(source)
    found = import_problems(parse(source), ALLOWED_IMPORTS) if plain else problems_of(source, kind)
    answer = {"ok": not found and not plain, "problems": [p.model_dump() for p in found], "sha": sha256(source)}
    if module is not None:
        answer |= {"module": [found.signature for found in module.classes], "arguments": module.written, "written": MARK in source}
    return JsonResponse(answer)


@login_required
@require_POST
def module_form(request: Request) -> HttpResponse:
    """Return the form for a plain module. If `write` is set and the form is complete, return the generated task as JSON."""
    source = _source(request)
    module = read_module(plain_part(source))
    if module is None:
        raise BadRequest("no module")
    form = ModuleForm.open(module, request.POST)
    wanted = "write" in request.POST
    if wanted and form.is_valid():
        task = form.task(source)
        try:
            parse(task)
            return JsonResponse({"source": task})
        except SourceError as error:
            form.problem = f"what was written does not parse: {error}"
    context = {"form": form, "dtypes": DTYPES, "written": MARK in source}
    return render(request, "tasks/_module.html", context, status=422 if wanted else 200)


@login_required
@require_POST
def try_out(request: Request) -> HttpResponse:
    """Try out the source in the sandbox, or return the known result."""
    source, kind = _source(request), request.POST.get("device", "cpu")
    choice = next((choice for choice in device_choices() if choice.kind == kind), None)
    precision, mode = request.POST.get("precision", ""), request.POST.get("mode", "")
    if choice is None or precision not in PRECISIONS or mode not in MODES or problems_of(source, "task"):
        raise BadRequest("not a task")
    team = team_for(request, request.POST.get("team", ""))  # comes first, because it refuses members who may only view
    if not choice.online:
        return render(request, "tasks/_tryout.html", {"offline": choice})
    row = trying.ask(team, request.user, source, device_kind=kind, precision=precision, mode=mode)
    return _shown(request, row)


@login_required
@require_GET
def try_out_state(request: Request, try_out_id: uuid.UUID) -> HttpResponse:
    return _shown(request, get_object_or_404(TryOut, pk=try_out_id, team__in=teams_with(request)))


def _shown(request: Request, row: TryOut) -> HttpResponse:
    lost = trying.gone(row)
    context = {
        "row": row,
        "lost": lost,
        "open": row.state in ("queued", "running") and not lost,
        "before": trying.before(row) if row.state == "queued" else 0,
        "elapsed": (timezone.now() - row.started_at).total_seconds() if row.started_at else None,
        "expected": estimates.try_out_seconds(row.device_kind),
        "admission": row.admission,
        "problems": [p.model_dump() for p in trying.problems(row)],
    }
    return render(request, "tasks/_tryout.html", context)


@login_required
@require_GET
def estimate(request: Request) -> HttpResponse:
    """Return the estimated cost, time and queue for the current settings."""
    get = request.GET.get
    kind = get("device", "cpu")
    llm = get("llm") or BUILT_IN
    chosen = {get(role) or llm for role in ROLES}
    workflow = workflow_of(get("workflow", ""), chosen, request.team, kind)
    workflow = workflow if workflow in WORKFLOWS else DEFAULT
    models = {BUILT_IN} if without_models(workflow) else chosen
    context = {
        "queue": estimates.queue(kind),
        "estimate": estimates.estimate(teams_with(request), workflow=workflow, device_kind=kind, models=models, task_sha=get("task_sha", "")),
        "free": models == {BUILT_IN},
        "fewest": estimates.FEWEST,
        "device_kind": kind,
        "count": _count(get("count", "")),
    }
    return render(request, "tasks/_estimate.html", context)


def _count(text: str) -> int:
    """Return the number of runs that the estimate is for."""
    return min(int(text), 1000) if text.isdigit() and int(text) > 0 else 1
