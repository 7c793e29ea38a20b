"""Who may see a run, and who may steer it."""

from __future__ import annotations

import uuid

from django.db.models import Q, QuerySet
from django.http import Http404

from webapp.accounts.models import Membership
from webapp.runs.models import Run


def visible_runs(user) -> QuerySet[Run]:
    """Runs of the user's teams, and those that their teams publish."""
    return Run.objects.filter(Q(team__in=user.teams.all()) | Q(published=True)).distinct()


def run_for(user, run_id: uuid.UUID | str) -> tuple[Run, bool]:
    """The run and whether this user may steer it; `Http404` where the user may not even know that it exists."""
    run = Run.objects.select_related("task", "team").filter(pk=run_id).first()
    if run is None:
        raise Http404("no such run")
    membership = Membership.objects.filter(team=run.team, user=user).first()
    if membership is None and not run.published:
        raise Http404("no such run")
    return run, membership is not None and membership.role != Membership.VIEWER
