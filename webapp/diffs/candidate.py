"""The tabs of a candidate's page that show its program: the diff against another program, and the source with its notes."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from webapp.diffs.notes import line_notes
from webapp.diffs.sides import side_of, side_of_candidate
from webapp.diffs.table import source_html
from webapp.diffs.views import Options, choices, diff_context
from webapp.runs.pages.additions import Shown


def diff_tab(shown: Shown) -> dict[str, Any]:
    """Returns the diff against `?against=parent|task|N|<run>:N`, with the options that every diff has."""
    request, run, candidate = shown.request, shown.run, shown.candidate
    parent = candidate.parent_number
    against = request.GET.get("against", "parent")
    if against == "parent" and parent is None:
        against = "task"
    new = side_of_candidate(run, candidate.number)
    old = side_of(request, run, str(parent) if against == "parent" else against)
    if against == str(parent):
        against = "parent"
    groups = choices(request, run, old, new)
    own = [(key, name) for key, name in groups[0][1] if key not in (str(candidate.number), str(parent))]
    if parent is not None:
        own.insert(0, ("parent", f"parent (candidate {parent})"))
    return diff_context(request, old, new, Options.read(request)) | {
        "against": against,
        "against_choices": [("", own), *groups[1:]],
        "self_url": reverse("runs:candidate", args=[run.pk, candidate.number]),
        "self_query": "?" + urlencode({"tab": "diff", "against": against}),
    }


def source_tab(shown: Shown) -> dict[str, Any]:
    """Returns the rows of the program, each with the notes that the report has on it."""
    return {"rows": source_html(shown.source, line_notes(shown.report, shown.source), shown.candidate.number)}
