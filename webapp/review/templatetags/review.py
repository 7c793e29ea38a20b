"""Tags and filters for other apps' templates: `{% load review %}`.

{% review run %}                   the thread panel and its scripts: once, in the "after" block of a page with a run
{% verdict_panel run number %}     the verdict on a candidate, and the form for people who may judge
{% verdict_notice run %}           who excluded results of a run from rankings, and why; empty without a verdict
{% verdict_chip value %}           the chip of the current verdict; empty for ""
{% share_button run %}             the button that leads to the run's share links, for people who may create one
{% unread_comments runs as unread %} and {% unread_badge unread run %}: a person's unread comments, for a list of runs
{{ comment.text|plain_words }}     the comment's text on one line
{% guest_banner %}                 on pages opened through a share link: who shared it, and when it expires
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
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
def unread_comments(context: dict[str, Any], runs: Iterable[Run]) -> dict[uuid.UUID, int]:
    return listing.unread_of(context["request"].user, list(runs))


@register.inclusion_tag("review/_unread.html")
def unread_badge(unread: dict[uuid.UUID, int], run: Run) -> dict[str, Any]:
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
