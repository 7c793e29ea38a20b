"""The label of an anchor, and the URL that opens it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from agents.payloads import PAYLOADS
from webapp.review.models import Thread
from webapp.runs.models import Run
from webapp.ui.figures import ms


def event_words(kind: str) -> str:
    """Returns the label of a trace entry, worded to follow "on"."""
    return PAYLOADS[kind].words if kind in PAYLOADS else "an entry"


def program_name(number: int | None) -> str:
    return "the reference" if number is None else f"candidate {number}"


def label(anchor: dict[str, Any]) -> str:
    """Returns the label of an anchor, worded to follow "on", such as "line 12 of candidate 4"."""
    match anchor["kind"]:
        case "event":
            return f"{event_words(anchor['label'])} (event {anchor['seq']})"
        case "candidate":
            return program_name(anchor["candidate"])
        case "line":
            return f"line {anchor['line']} of {program_name(anchor['of'])}"
        case "range":
            return f"{ms((anchor['end_ns'] - anchor['start_ns']) / 1e6)} of the timeline of {program_name(anchor['candidate'])}"
    return "the run"


def href(run: Run, anchor: dict[str, Any], thread: int | None = None) -> str:
    """Returns the URL of the page that shows the place. If a thread is given, the page opens it and scrolls to its place (static/review/)."""
    query = {"thread": thread} if thread else {}
    match anchor["kind"]:
        case "candidate":
            return _address("runs:candidate", [run.pk, anchor["candidate"]], query)
        case "line":
            if anchor["view"] == "diff":
                sides = f"{anchor['against']}...{anchor['candidate']}"
                return _address("diffs:diff", [run.pk, sides], query) + f"#{'R' if anchor['side'] == 'new' else 'L'}{anchor['line']}"
            return _address("runs:candidate", [run.pk, anchor["candidate"]], {"tab": "source"} | query) + f"#L{anchor['line']}"
        case "range":
            return _address("runs:timeline", [run.pk, anchor["sha"]], query)
        case "event":
            return _address("runs:run", [run.pk], query) + f"#event={anchor['seq']}"
    return _address("runs:run", [run.pk], query)


def thread_href(thread: Thread) -> str:
    return href(thread.run, thread.anchor, thread.pk)


def _address(name: str, arguments: list[Any], query: dict[str, Any]) -> str:
    return reverse(name, args=arguments) + (f"?{urlencode(query)}" if query else "")
