"""Stores who sees a result: the person who started the run, their team, or everyone with an account. Making a result visible to everyone publishes
its run too."""

from __future__ import annotations

from django.db import transaction

from verifier.confinement.probe import waived
from webapp.accounts import alone
from webapp.accounts.lost_access import access_changed
from webapp.leaderboard.models import EVERYONE, TEAM, Listing, Preference
from webapp.runs.models import Run


def set_visibility(run: Run, visibility: str) -> None:
    """Store a person's choice for one run's result. Triggers (migration 0001) copy both rows to the ranked row."""
    if visibility == EVERYONE:
        alone.refuse("published results")
    with transaction.atomic():
        Listing.objects.update_or_create(run=run, defaults={"visibility": TEAM if visibility == EVERYONE else visibility})
        Run.objects.filter(pk=run.pk).update(published=visibility == EVERYONE)
        access_changed()  # followers outside the team lose access to a withdrawn run


def visibility_of(run: Run) -> str:
    """Return the visibility of a run that has just finished: the choice made for it or, without one, the team's default, which is then fixed for this
    run."""
    chosen = Listing.objects.filter(run=run).values_list("visibility", flat=True).first()
    if chosen is None:
        preferred = Preference.objects.filter(team=run.team_id).values_list("visibility", flat=True).first() or TEAM
        if preferred == EVERYONE and not waived():
            Run.objects.filter(pk=run.pk).update(published=True)
            run.published = True
        chosen = TEAM if preferred == EVERYONE else preferred
        Listing.objects.create(run=run, visibility=chosen)
    return EVERYONE if run.published else chosen
