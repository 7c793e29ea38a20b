"""The mailbox: prompts that are waiting for a person, ready to be copied into any chat, each with a text box for the reply."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from agents.llm.mailbox import NotWaiting
from webapp.accounts.access import has_right, require, teams_with
from webapp.accounts.signed_in import Request
from webapp.llm.mailbox import ReplyRefused, answer
from webapp.llm.models import Letter
from webapp.runs.access import run_for

LATELY = 20


@login_required
@require_GET
def mailbox(request: Request) -> HttpResponse:
    mine = _visible(request)
    context = {
        "waiting": mine.filter(reply=None, withdrawn_at=None).order_by("asked_at"),
        "answered": mine.exclude(reply=None).order_by("-replied_at")[:LATELY],
    }
    return render(request, "llm/_letters.html" if request.htmx else "llm/mailbox.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def letter(request: Request, letter_id: uuid.UUID) -> HttpResponse:
    found = _visible(request).filter(pk=letter_id).first()
    if found is None:
        raise Http404("no such prompt")
    may_answer = has_right(request, found.team_id, "act")
    text, refused = request.POST.get("reply", ""), ""
    if request.method == "POST":
        require(request, found.team_id, "act")
        try:
            answer(found.name, text, request.user)
        except ReplyRefused as error:
            refused = str(error)
        except NotWaiting:
            found.refresh_from_db()
            refused = f"Not sent: this prompt was {found.state} meanwhile."
        else:
            messages.success(request, "The reply is sent. The run continues.")
            return redirect("runs:run", found.run_id)
    context = {"letter": found, "prompt": prompt_of(found), "may_answer": may_answer, "refused": refused, "text": text}
    return render(request, "llm/letter.html", context, status=422 if refused else 200)


@login_required
@require_GET
def reply(request: Request, run_id: uuid.UUID) -> HttpResponse:
    """Opens the run's longest-waiting request, or redirects to the run if no request is waiting."""
    run_for(request, run_id)
    waiting = _visible(request).filter(run=run_id, reply=None, withdrawn_at=None).order_by("asked_at").first()
    return redirect("llm:letter", waiting.pk) if waiting else redirect("runs:run", run_id)


def prompt_of(letter: Letter) -> str:
    """Returns the whole request as a single text for a chat, with the system prompt first and earlier replies in their places."""
    said = letter.waiting["request"]["messages"]
    return "\n\n".join(m["content"] if m["role"] != "assistant" else f"(your reply before)\n\n{m['content']}" for m in said)


def _visible(request: Request) -> QuerySet[Letter]:
    return Letter.objects.select_related("run", "replied_by", "team").filter(team__in=teams_with(request), run__isnull=False)
