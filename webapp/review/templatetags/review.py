"""What other apps' templates put in: `{% load review %}`.

{% review run %}                   the panel with the threads and its scripts: once, in the block "after" of a page with a run
{% verdict_panel run number %}     what was judged of a candidate, and the form for whoever may judge
{% verdict_notice run %}           why results of a run are in no ranking, by whom; nothing where nothing stands
{% verdict_chip value %}           the chip of a standing verdict; nothing for ""
{% share_button run %}             the way to the run's share links, for whoever may make one
{% unread_comments runs as unread %} and {% unread_badge unread run %}: comments that one has not read, for a list of runs
{{ comment.text|plain_words }}     what a comment says, on one line
{% guest_banner %}                 on pages that came by a share link: by whom, until when
"""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse

from webapp.accounts.access import has_right
from webapp.review import listing, reading, standing, views_verdicts
from webapp.review.markdown import plain
from webapp.review.shares import share_of
from webapp.runs.models import Run
from webapp.ui.tags import status

register = template.Library()


register.filter("plain_words", plain)


@register.inclusion_tag("review/_hook.html", takes_context=True)
def review(context: dict[str, Any], run: Run) -> dict[str, Any]:
    request = context["request"]
    share = share_of(request)
    config = {
        "run": str(run.pk),
        "base": reverse("runs:run", args=[run.pk]),
        "me": request.user.get_username(),
        "reads": reading.reads(request, run),
        "writes": share is None and has_right(request, run.team_id, "act"),
        "live": share is None and has_right(request, run.team_id, "view"),
    }
    return {"config": config, "shown": config["reads"]}


@register.inclusion_tag("review/_verdict_block.html", takes_context=True)
def verdict_panel(context: dict[str, Any], run: Run, number: int) -> dict[str, Any]:
    request = context["request"]
    may_act = share_of(request) is None and has_right(request, run.team_id, "act")
    return views_verdicts.panel(request, run, number, may_act) | {"csrf_token": context.get("csrf_token")}


@register.inclusion_tag("review/_notice.html")
def verdict_notice(run: Run) -> dict[str, Any]:
    found = [verdict for verdict in standing.standing_of(run).values() if verdict.value in standing.UNRANKED]
    return {"run": run, "verdicts": found, "best": run.best_candidate}


@register.inclusion_tag("partials/status.html")
def verdict_chip(value: str) -> dict[str, Any]:
    return status(value) if value else {}


@register.simple_tag(takes_context=True)
def unread_comments(context: dict[str, Any], runs) -> dict[str, Any]:
    return listing.unread_of(context["request"].user, list(runs))


@register.inclusion_tag("review/_unread.html")
def unread_badge(unread: dict[str, Any], run: Run) -> dict[str, Any]:
    return {"count": unread.get(run.pk, 0)}


@register.inclusion_tag("review/_share_button.html", takes_context=True)
def share_button(context: dict[str, Any], run: Run) -> dict[str, Any]:
    request = context["request"]
    shown = share_of(request) is None and has_right(request, run.team_id, "own")
    return {"run": run, "place": request.get_full_path(), "shown": shown}


@register.inclusion_tag("review/_guest_banner.html", takes_context=True)
def guest_banner(context: dict[str, Any]) -> dict[str, Any]:
    request = context.get("request")
    return {"share": share_of(request) if request is not None else None}
