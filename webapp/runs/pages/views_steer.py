"""Views for steering a run: a note to an agent, another plan, more budget, and a fork."""

from __future__ import annotations

import uuid

from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import Max
from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from agents.choices.workflows import searches
from agents.payloads import CandidateProposed, PlanEdited, PlanProposed, SpanOpened
from agents.plan_edits import PlanRefused, edited_plan
from agents.strategies import CATALOGUE
from webapp.accounts import audit
from webapp.accounts.signed_in import Request
from webapp.runs import control, forks
from webapp.runs.access import run_for
from webapp.runs.models import Event, Run
from webapp.runs.pages.forms import BudgetForm, ForkForm, StepForms, edited_steps, steps_of

TAKEN = 202
BEFORE_PLAN = "plan"


def _steered(request: Request, run_id: uuid.UUID) -> Run:
    run, _ = run_for(request, run_id, "act")
    return run


@login_required
@require_POST
def send_note(request: Request, run_id: uuid.UUID) -> HttpResponse:
    run = _steered(request, run_id)
    try:
        if run.state == "finished":
            raise control.NotTaken("the run has ended: fork it, and send the note to the fork")
        control.send_note(run, request.POST.get("text", ""), request.POST.get("to", "all"), by=request.user)
    except control.NotTaken as error:
        return JsonResponse({"error": str(error)}, status=400)
    if "application/json" in request.headers.get("Accept", ""):
        return JsonResponse({"ok": True}, status=TAKEN)
    return redirect("runs:run", run_id=run.id)


@login_required
@require_http_methods(["GET", "POST"])
def plan_page(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Show the plan as forms until a program implements it."""
    run = _steered(request, run_id)
    event = Event.objects.filter(run=run, kind__in=(PlanProposed.kind, PlanEdited.kind)).order_by("-seq").first()
    closed = ""
    if event is None:
        closed = "This run has no plan yet."
    elif run.state == "finished" or run.candidates.exists():
        closed = "Programs follow this plan already. Fork the run before its plan, with “Let me read the plan first”, to change it there."
    plan = event.payload if event else {}
    steps = StepForms(None if closed else _data(request), initial=steps_of(plan), prefix="step")
    problem, summary = "", request.POST.get("summary", plan.get("summary", ""))
    if request.method == "POST" and not closed and steps.is_valid():
        try:
            edited = edited_plan(plan, {"summary": summary, "steps": edited_steps(steps)})
            changed = edited != edited_plan(plan, plan)
            control.edit_plan(run, edited if changed else None, by=request.user, go_on=run.state == "paused" and "resume" in request.POST)
            return redirect("runs:run", run_id=run.id)
        except PlanRefused as error:
            problem = str(error)
    strategies = [(strategy.name, strategy.title) for strategy in CATALOGUE]
    context = {"run": run, "plan": plan, "summary": summary, "steps": steps, "closed": closed, "problem": problem, "strategies": strategies}
    refused = request.method == "POST" and not closed
    return render(request, "runs/plan.html", context, status=422 if refused else 409 if request.method == "POST" else 200)


@login_required
@require_http_methods(["GET", "POST"])
def budget_page(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Raise the run's limits. A live run continues immediately. A run that has exhausted its limits continues as a fork from its first refusal."""
    run = _steered(request, run_id)
    settings = forks.settings_now(run)
    at = forks.refused_at(run) if run.state == "finished" else None
    closed = "The budget did not end this run: fork it at an event to continue with other settings." if run.state == "finished" and at is None else ""
    form = BudgetForm(None if closed else _data(request), settings=settings)
    if request.method == "POST" and not closed and form.is_valid():
        if run.state != "finished":
            with transaction.atomic():
                control.request_control(run, "raise-budget", by=request.user, limits=form.raised)
                audit.record(request, run.team, "budget.raised", run.title, {"run": str(run.pk), **form.raised})
            return redirect("runs:run", run_id=run.id)
        assert at is not None  # otherwise there is no form
        budget = settings.budget.model_copy(update=form.raised)
        with transaction.atomic():
            forked = forks.fork_run(run, at, settings.model_copy(update={"budget": budget}), user=request.user)
            audit.record(request, run.team, "budget.raised", run.title, {"run": str(run.pk), "fork": str(forked.pk), **form.raised})
        return redirect("runs:run", run_id=forked.id)
    context = {"run": run, "form": form, "at": at, "closed": closed}
    return render(request, "runs/budget.html", context, status=422 if form.errors else 200)


@login_required
@require_http_methods(["GET", "POST"])
def fork_page(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Fork the run from an event with other settings.

    `?at=SEQ`, `?at=plan` (before the plan) or `?candidate=N` (after its diagnosis) selects the event. The default is the last one.
    """
    run = _steered(request, run_id)
    given = request.POST.get("at") or _place(run, request)
    settings = forks.settings_now(run)
    if request.GET.get("at") == BEFORE_PLAN:
        settings = settings.model_copy(update={"review_plan": True})
    closed = ""
    if not searches(settings.workflow):
        closed = "This run verifies a person's own program, so other settings would change nothing. Submit a new run instead."
    elif run.last_seq == 0:
        closed = "This run has not begun: submit it again with other settings instead."
    form = ForkForm(None if closed else _data(request), settings=settings)
    problem = ""
    if request.method == "POST" and not closed and form.is_valid():
        try:
            forked = forks.fork_run(run, _number(given), form.settings(), user=request.user)
            return redirect("runs:run", run_id=forked.id)
        except forks.ForkRefused as error:
            problem = str(error)
    event = Event.objects.filter(run=run, seq=_number(given)).first()
    context = {"run": run, "form": form, "at": given, "event": event, "problem": problem, "closed": closed, "limits_open": True}
    return render(request, "runs/fork.html", context, status=422 if form.errors or problem else 200)


def _data(request: Request) -> QueryDict | None:
    return request.POST if request.method == "POST" else None


def _place(run: Run, request: Request) -> str:
    """Return the event named in a link."""
    events = Event.objects.filter(run=run)
    if request.GET.get("at") == BEFORE_PLAN:
        opened = events.filter(kind=SpanOpened.kind, span="plan").values_list("seq", flat=True).first()
        return str(opened - 1 if opened else run.last_seq)
    if "candidate" in request.GET:
        number = _number(request.GET["candidate"])
        proposed = next((e for e in events.filter(kind=CandidateProposed.kind) if e.said(CandidateProposed).candidate == number), None)
        last = events.filter(span=proposed.span).aggregate(Max("seq"))["seq__max"] if proposed else None
        return str(last or run.last_seq)
    return request.GET.get("at") or str(run.last_seq)


def _number(text: str) -> int:
    """Parse an event number. Anything else gives 0, which is never an event's number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
