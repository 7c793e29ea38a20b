"""Finds results for the Ctrl-K palette: runs, tasks, people, kernels, events and pages, limited to those that the person may see.

The palette's commands are the shortcuts of the page (static/js/palette.js).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from django.db import connection
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from webapp.accounts.access import teams_with
from webapp.accounts.models import User
from webapp.runs.access import visible_runs
from webapp.runs.models import Candidate
from webapp.sql import statements
from webapp.tasks.models import Task

MOST = 6  # results per kind
MOST_WORDS = 6
LONGEST = 100
LOOKED_AT = 400  # maximum number of matching events considered; the newest of them are shown
AROUND = 40  # characters before a hit
# Pages without a keyboard shortcut: (name, URL, synonyms).
PAGES = [
    ("Connect a GPU", "fleet:connect", "device verifier cuda host"),
    ("Submit several tasks", "tasks:several", "suite kernelbench"),
    ("Import tasks", "tasks:list", "kernelbench zip"),
    ("Results", "leaderboard:results", "leaderboard table"),
    ("Start an arena", "arena:start", "workflows compare"),
    ("Account", "accounts:account", "settings password theme"),
    ("Tokens", "accounts:tokens", "api key"),
    ("Glossary", "ui:glossary", "help words terms meaning"),
    ("All pages", "ui:advanced", "advanced menu"),
    ("Style guide", "ui:styleguide", "components colours"),
]
EVENTS = statements(__file__)["events"]
NAMED = "runs_candidate.kernels <> '' AND to_tsvector('simple', replace(runs_candidate.kernels, '_', ' ')) @@ to_tsquery('simple', %s)"
KINDS = {"note.added": "note", "decision.made": "decision", "diagnosis.made": "diagnosis", "candidate.proposed": "candidate", "run.finished": "end"}


Found = TypeVar("Found", bound=Model)


class Hit(NamedTuple):
    title: str
    url: str
    sub: str = ""


def find(request: HttpRequest, text: str) -> list[dict[str, Any]]:
    """Return groups in display order: `{"label", "items": [{"title", "sub", "url"}]}`. If the text is empty, return only the newest runs."""
    words = text.replace("\0", "").split()[:MOST_WORDS]
    groups: list[tuple[str, Callable[[HttpRequest, list[str]], Iterator[Hit]]]] = [("Runs", runs)]
    if words:
        groups += [("Tasks", tasks), ("Pages", pages), ("People", people), ("Kernels", kernels), ("Events", events)]
    found = [(label, [hit._asdict() for hit in search(request, words)]) for label, search in groups]
    return [{"label": label, "items": items} for label, items in found if items]


def _every(rows: QuerySet[Found], words: list[str], *fields: str) -> QuerySet[Found]:
    """Return the rows in which each word occurs in at least one of the fields."""
    for word in words:
        either = Q()
        for field in fields:
            either |= Q(**{f"{field}__icontains": word})
        rows = rows.filter(either)
    return rows


def runs(request: HttpRequest, words: list[str]) -> Iterator[Hit]:
    mine = visible_runs(request).filter(archived_at=None).select_related("created_by", "team")
    for run in _every(mine, words, "title", "task__name", "workflow").order_by("-created_at")[:MOST]:
        state = run.outcome.replace("_", " ") if run.state == "finished" else run.state
        yield Hit(run.title, reverse("runs:run", args=[run.pk]), f"{state} · {run.workflow} · {run.created_at:%d %b}")


def tasks(request: HttpRequest, words: list[str]) -> Iterator[Hit]:
    mine = Task.objects.filter(team__in=teams_with(request)).select_related("suite")
    for task in _every(mine, words, "name", "suite__name").order_by("name", "pk")[:MOST]:
        yield Hit(task.name, reverse("tasks:task", args=[task.pk]), task.suite.name if task.suite else "")


def pages(request: HttpRequest, words: list[str]) -> Iterator[Hit]:
    for name, url, also in PAGES:
        if all(word.lower() in f"{name} {also}".lower() for word in words):
            yield Hit(name, reverse(url))


def people(request: HttpRequest, words: list[str]) -> Iterator[Hit]:
    """Yield members of the viewer's teams. A hit links to the member's runs."""
    known = User.objects.filter(membership__team__in=teams_with(request), is_active=True).distinct()
    for user in _every(known, words, "username").order_by("username")[:MOST]:
        yield Hit(user.username, f"{reverse('runs:list')}?{urlencode({'author': user.username})}", "runs of this person")


def kernels(request: HttpRequest, words: list[str]) -> Iterator[Hit]:
    """Yield kernels with name parts that begin with the given words, newest candidate first."""
    query = _beginnings(" ".join(words).replace("_", " "))
    if not query:
        return
    mine = Candidate.objects.filter(run__in=visible_runs(request).filter(archived_at=None)).select_related("run")
    for candidate in mine.extra(where=[NAMED], params=[query]).order_by("-created_at")[:MOST]:
        name = next((one for one in candidate.kernels.split() if words[0].lower() in one.lower()), candidate.kernels.split()[0])
        address = reverse("runs:candidate", args=[candidate.run_id, candidate.number])
        yield Hit(name, f"{address}?tab=source", f"candidate {candidate.number} of {candidate.run.title}")


def events(request: HttpRequest, words: list[str]) -> Iterator[Hit]:
    """Yield messages from people and agents that contain words beginning with the given ones."""
    query, teams = _beginnings(" ".join(words)), list(teams_with(request).values_list("pk", flat=True))
    if not query:
        return
    with connection.cursor() as cursor:
        cursor.execute(EVENTS, {"query": query, "teams": teams, "looked_at": LOOKED_AT, "most": MOST})
        for run, seq, kind, title, payload in cursor.fetchall():
            yield Hit(
                excerpt(payload, words[0]), f"{reverse('runs:run', args=[run])}#event={seq}", f"{KINDS.get(kind, kind.partition('.')[0])} of {title}"
            )


def _beginnings(text: str) -> str:
    """Return a Postgres text search query that requires all word prefixes, or "" if no word has three letters."""
    stems = re.findall(r"\w+", text)
    return " & ".join(f"{stem}:*" for stem in stems) if any(len(stem) > 2 for stem in stems) else ""


def excerpt(payload: str, word: str) -> str:
    """Return the string in the payload that contains the word, cut to the text around it."""
    strings = list(_strings(json.loads(payload)))
    told = next((one for one in strings if word.lower() in one.lower()), strings[0] if strings else "")
    at = max(0, told.lower().find(word.lower()) - AROUND)
    return ("…" if at else "") + " ".join(told[at : at + LONGEST].split())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)
