"""Checks who may see a run and who may steer it."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404

from webapp.accounts.access import Asker, Right, require, rights_in, teams_with, user_of
from webapp.runs.models import Run

# Each function returns the only run that a requester may read, or None if the restriction does not apply to the requester. Apps register theirs in
# `AppConfig.ready`. A guest has no account, so a guest whose app is missing sees nothing.
GUESTS: list[Callable[[Asker], uuid.UUID | None]] = []


def only_run(asker: Asker) -> uuid.UUID | None:
    """Return the only run that a guest with a share link may read, or None for people with an account."""
    return next((run for guest in GUESTS if (run := guest(asker)) is not None), None)


def visible_runs(asker: Asker) -> QuerySet[Run]:
    """Return the runs that the requester may see: those of their teams, and published ones. A guest with a share link sees only the shared run."""
    if only := only_run(asker):
        return Run.objects.filter(pk=only)
    if not user_of(asker).is_authenticated:
        return Run.objects.none()
    return Run.objects.filter(Q(team__in=teams_with(asker)) | Q(published=True))


def run_for(asker: Asker, run_id: uuid.UUID | str, right: Right = "view") -> tuple[Run, bool]:
    """Return the run and whether the requester may steer it ("act").

    `asker` is a person, or a request with its token if there is one. Raises `Http404` if the requester may not see the run, so that its existence
    stays hidden, and `PermissionDenied` with an explanation if the requester may see the run but lacks the right."""
    run = Run.objects.select_related("task", "team").filter(pk=run_id).first()
    if run is None:
        raise Http404("no such run")
    if only := only_run(asker):
        if only != run.pk:
            raise Http404("no such run")
        if right != "view":
            raise PermissionDenied("A share link is for reading.")
        return run, False
    if run.published and user_of(asker).is_authenticated and not rights_in(asker, run.team_id):
        if right != "view":
            raise PermissionDenied("Only members of the run's team can do this.")
        return run, False
    return run, "act" in require(asker, run.team_id, right)
