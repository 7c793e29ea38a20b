"""Who sees a result: whoever made the run, its team, or everyone who can sign in. What everyone sees is published, with its run as evidence."""

from __future__ import annotations

from django.db import transaction

from verifier.confinement.probe import waived
from webapp.accounts import alone
from webapp.accounts.lost_access import access_changed
from webapp.leaderboard.models import EVERYONE, TEAM, Listing, Preference
from webapp.runs.models import Run


def set_visibility(run: Run, visibility: str) -> None:
    """What a person chose for one run's result. Triggers (migration 0001) carry both rows into the ranked one."""
    if visibility == EVERYONE:
        alone.refuse("published results")
    with transaction.atomic():
        Listing.objects.update_or_create(run=run, defaults={"visibility": TEAM if visibility == EVERYONE else visibility})
        Run.objects.filter(pk=run.pk).update(published=visibility == EVERYONE)
        access_changed()  # who followed a withdrawn run from outside sees no more of it


def visibility_of(run: Run) -> str:
    """Of a run that has just finished: what was chosen for it, else what its team prefers, which then stands for this run."""
    chosen = Listing.objects.filter(run=run).values_list("visibility", flat=True).first()
    if chosen is None:
        preferred = Preference.objects.filter(team=run.team_id).values_list("visibility", flat=True).first() or TEAM
        if preferred == EVERYONE and not waived():
            Run.objects.filter(pk=run.pk).update(published=True)
            run.published = True
        chosen = TEAM if preferred == EVERYONE else preferred
        Listing.objects.create(run=run, visibility=chosen)
    return EVERYONE if run.published else chosen
