"""Searches, adds, changes and deletes the documents of a person's teams. Agents cite passages of these documents, and a citation links to
`/documents/ID/#p3`."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Count
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.accounts import audit
from webapp.accounts.access import has_right, require, team_for, teams_with, writable_teams
from webapp.accounts.signed_in import Request
from webapp.knowledge.documents import MOST_DOCUMENTS, MOST_KIB, save
from webapp.knowledge.forms import NAMES, DocumentForm
from webapp.knowledge.models import Document
from webapp.knowledge.search import any_of, search

HITS = 20
A_PAGE = 50
MOST_QUERY = 300  # characters


@login_required
@require_GET
def documents(request: Request) -> HttpResponse:
    text = request.GET.get("q", "").strip()[:MOST_QUERY]
    teams = [request.team.pk]
    hits = search(teams, text, HITS) if text else []
    some = [] if hits or not text else search(teams, any_of(text), HITS)
    rows = Document.objects.filter(team=request.team).select_related("team", "changed_by").annotate(size=Count("passages")).order_by("-changed_at")
    page = Paginator(rows, A_PAGE).get_page(request.GET.get("page"))
    context = {
        "text": text,
        "hits": hits or some,
        "partly": bool(some),
        "page": page,
        "may_write": has_right(request, request.team, "act"),
    }
    return render(request, "knowledge/documents.html", context)


@login_required
@require_GET
def document(request: Request, document_id: uuid.UUID) -> HttpResponse:
    found = _document(request, document_id)
    context = {"document": found, "passages": found.passages.order_by("index"), "may_write": _may_write(request, found)}
    return render(request, "knowledge/document.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def new_document(request: Request) -> HttpResponse:
    require(request, request.team, "act")
    teams = writable_teams(request)
    form = DocumentForm(request.POST or None, request.FILES or None, teams=teams)
    if request.method == "POST" and form.is_valid():
        team = team_for(request, form.cleaned_data["team"])
        if Document.objects.filter(team=team).count() >= MOST_DOCUMENTS:
            form.add_error(None, f"{team} has {MOST_DOCUMENTS} documents, which is the most that a team keeps: delete some first.")
        else:
            kept = save(team=team, user=request.user, **{name: form.cleaned_data[name] for name in ("title", "kind", "text")})
            messages.success(request, f"{kept.title} is kept. Diagnoses of {team}'s runs can cite it from now on.")
            return redirect("knowledge:document", kept.pk)
    return _form_page(request, form, None, teams)


@login_required
@require_http_methods(["GET", "POST"])
def edit_document(request: Request, document_id: uuid.UUID) -> HttpResponse:
    found = _writable(request, document_id)
    initial = {"title": found.title, "kind": found.kind, "text": found.text, "team": str(found.team_id)}
    form = DocumentForm(request.POST or None, request.FILES or None, teams=[found.team], initial=initial)
    if request.method == "POST" and form.is_valid():
        save(team=found.team, user=request.user, document=found, **{name: form.cleaned_data[name] for name in ("title", "kind", "text")})
        messages.success(request, "The document is changed.")
        return redirect("knowledge:document", found.pk)
    return _form_page(request, form, found, [found.team])


@login_required
@require_POST
def delete_document(request: Request, document_id: uuid.UUID) -> HttpResponse:
    found = _writable(request, document_id)
    with transaction.atomic():
        found.delete()
        audit.record(request, found.team, "document.deleted", found.title)
    messages.success(request, f"{found.title} is deleted. Diagnoses that cited it keep its title.")
    return redirect("knowledge:documents")


def _form_page(request: Request, form: DocumentForm, found: Document | None, teams: list[Any]) -> HttpResponse:
    back = reverse("knowledge:document", args=[found.pk]) if found else reverse("knowledge:documents")
    context = {"form": form, "document": found, "teams": teams, "most_kib": MOST_KIB, "names": NAMES, "back": back}
    return render(request, "knowledge/document_form.html", context, status=422 if form.errors else 200)


def _document(request: Request, document_id: uuid.UUID) -> Document:
    """Returns a document of one of the user's teams. Everybody else gets "not found", so that the response doesn't reveal that the document
    exists."""
    found = Document.objects.select_related("team", "created_by", "changed_by").filter(pk=document_id, team__in=teams_with(request)).first()
    if found is None:
        raise Http404("no such document")
    return found


def _writable(request: Request, document_id: uuid.UUID) -> Document:
    found = _document(request, document_id)
    require(request, found.team_id, "act")
    return found


def _may_write(request: Request, found: Document) -> bool:
    return has_right(request, found.team_id, "act")
