"""Searches the whole trace of one run: the text that people read in it and, on request, the prompts and programs that it refers to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from agents.payloads import PAYLOADS
from webapp.runs import artefacts
from webapp.runs.artefacts import ArtefactMissing
from webapp.runs.models import Artefact, Run

MOST_SHOWN = 200  # number of hits shown with context; all hits are counted, and all their positions are returned
BEFORE, AFTER = 28, 120  # characters shown around a hit
LONGEST_QUERY = 200
MOST_HITS = 1000  # counted per entry
MOST_ARTEFACT_BYTES = 32_000_000  # limit per search; the result lists what was left out

# The filters that a reader can choose, and the event kinds that each covers.
NAMES = ("message", "call", "candidate", "verification", "decision", "diagnosis", "plan", "note", "error", "span")
GROUPS: dict[str, tuple[str, ...]] = {name: tuple(kind for kind, said in PAYLOADS.items() if name in said.found_under) for name in NAMES}
STATUSES = {"passed": {"passed", "ok"}, "failed": {"failed", "wrong_result", "build_failed", "crashed", "timed_out", "rejected", "inconclusive"}}
# Event kinds that describe the same thing in several events, with the field that identifies it.
NAME_OF = {"message": "message", "verification": "key", "llm": "key"}
# Fields with identifiers and figures, which are not searched as text. Otherwise "ad" would match every other hash.
UNREAD = {"sha", "media_type", "bytes", "key", "verification", "offset", "message_id", "seed", "estimate", "spent", "limits", "usage", "candidate"}


class BadQuery(ValueError):
    """Raised if a search cannot be executed. The message says why."""


@dataclass(frozen=True)
class Query:
    """Words and quoted phrases that must all occur, matched literally."""

    words: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    kind: str = ""
    agent: str = ""
    status: str = ""
    stored: bool = False  # also search prompts, replies and programs

    @classmethod
    def of(cls, text: str, *, kind: str = "", agent: str = "", status: str = "", stored: bool = False) -> Query:
        text = text.replace("\0", "").strip()
        if len(text) > LONGEST_QUERY:
            raise BadQuery(f"a search has at most {LONGEST_QUERY} characters, this one has {len(text)}")
        if kind and kind not in GROUPS:
            raise BadQuery(f"the kind is one of {', '.join(GROUPS)}")
        if status and status not in STATUSES:
            raise BadQuery(f"the status is one of {', '.join(STATUSES)}")
        exact = tuple(re.findall(r'"([^"]+)"', text))
        words = tuple(folded(word) for word in re.sub(r'"[^"]*"?', " ", text).split())
        return cls(words[:12], exact[:12], kind, agent, status, stored)

    @property
    def empty(self) -> bool:
        return not (self.words or self.exact or self.kind or self.agent or self.status)

    def find(self, text: str) -> list[tuple[int, int]] | None:
        """Return the positions of the needles, or None if one of them does not occur."""
        low = folded(text) if self.words else ""
        if not all(word in low for word in self.words) or not all(phrase in text for phrase in self.exact):
            return None
        hits: list[tuple[int, int]] = []
        for haystack, needles in ((text, self.exact), (low, self.words)):
            for needle in needles:
                at = haystack.find(needle)
                while at >= 0 and len(hits) < MOST_HITS:
                    hits.append((at, at + len(needle)))
                    at = haystack.find(needle, at + len(needle))
        return sorted(hits)


def folded(text: str) -> str:
    """Convert to lower case character by character, so that positions are the same as in the original text."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


@dataclass
class Entry:
    """One entry of the page: something that happened in the run, with all the text about it."""

    seq: int
    kind: str
    agent: str
    span: str
    status: str = ""
    parts: list[str] = field(default_factory=list)
    refs: list[tuple[str, str]] = field(default_factory=list)  # (description, hash) of each stored text

    streamed: int = 0  # characters

    @property
    def text(self) -> str:
        return ("" if self.kind.startswith("message.") else "\n").join(self.parts)

    def stream(self, offset: int, text: str) -> None:
        """Add a piece of a streamed text.

        A piece that starts before the end of the text means that an interrupted stream was restarted.
        """
        if offset < self.streamed:
            self.parts = ["".join(self.parts)[:offset]]
            self.streamed = offset
        self.parts.append(text)
        self.streamed += len(text)


@dataclass
class Found:
    """The matching entries, in the order of the trace."""

    places: list[int] = field(default_factory=list)  # seqs
    shown: list[dict[str, Any]] = field(default_factory=list)
    occurrences: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    head: int = 0
    unread_artefacts: int = 0

    def add(self, entry: Entry, text: str, hits: list[tuple[int, int]], where: str) -> None:
        group = group_of(entry.kind)
        self.kinds[group] = self.kinds.get(group, 0) + 1
        self.occurrences += max(1, len(hits))
        self.places.append(entry.seq)
        if len(self.shown) < MOST_SHOWN:
            told = {"seq": entry.seq, "kind": group, "agent": entry.agent, "span": entry.span, "hits": len(hits), "where": where}
            self.shown.append(told | surroundings(text, hits))


def surroundings(text: str, hits: list[tuple[int, int]]) -> dict[str, str]:
    start, end = hits[0] if hits else (0, 0)
    before, after = text[max(0, start - BEFORE) : start], text[end : end + AFTER]
    tidy = re.compile(r"\s+")
    return {
        "before": ("…" if start > BEFORE else "") + tidy.sub(" ", before),
        "match": text[start:end],
        "after": tidy.sub(" ", after) + ("…" if end + AFTER < len(text) else ""),
    }


def group_of(kind: str) -> str:
    return next((name for name, kinds in GROUPS.items() if kind in kinds), kind)


def search(run: Run, query: Query) -> Found:
    """Find and count all matching entries of the run. The first `MOST_SHOWN` include their context."""
    found = Found(head=run.last_seq)
    if query.empty:
        return found
    left = MOST_ARTEFACT_BYTES
    stored = _stored_texts(run) if query.stored else {}
    matches = []
    for entry in _entries(run, query):
        if (query.agent and entry.agent != query.agent) or (query.status and entry.status not in STATUSES[query.status]):
            continue
        hits = query.find(entry.text)
        if hits is not None:
            matches.append((entry, entry.text, hits, ""))
            continue
        for name, sha in entry.refs:
            artefact = stored.get(sha)
            if artefact is None:
                continue
            if artefact.bytes > left:
                found.unread_artefacts += 1
                continue
            left -= artefact.bytes
            inside = _read(artefact)
            if hits := query.find(inside):
                matches.append((entry, inside, hits, name))
                break
    for match in sorted(matches, key=lambda match: match[0].seq):
        found.add(*match)
    return found


def _entries(run: Run, query: Query) -> Iterator[Entry]:
    """Yield every entry that can match.

    A streamed message, a verification or an exchange with a model is a single entry, placed at its first event.
    """
    kinds = GROUPS.get(query.kind)
    told: dict[str, Entry] = {}  # entries described by several events
    with connection.chunked_cursor() as cursor:
        cursor.cursor.itersize = 2000
        cursor.execute(
            "SELECT seq, kind, agent, span, payload::text FROM runs_event WHERE run_id = %s AND seq <= %s"
            + (" AND kind = ANY(%s)" if kinds else "")
            + " ORDER BY seq",
            [run.pk, run.last_seq, *([list(kinds)] if kinds else [])],
        )
        words, phrases = _in_json(query)
        for seq, kind, agent, span, raw in cursor:
            name = NAME_OF.get(kind.partition(".")[0])
            if name is None and not (query.stored and kind == "candidate.proposed") and raw.isascii():
                low = raw.lower()
                if not (all(word in low for word in words) and all(phrase in raw for phrase in phrases)):
                    continue
            payload = json.loads(raw)
            if name is None:
                yield Entry(seq, kind, agent, span, str(payload.get("status") or ""), list(_read_strings(payload)), _named(payload))
                continue
            entry = told.setdefault(f"{kind[:4]}{payload.get(name)}", Entry(seq, kind, agent, span))
            if kind == "message.delta":
                entry.stream(payload["offset"], payload["text"])
            elif kind == "message.completed":
                entry.parts = [payload["text"] if isinstance(payload.get("text"), str) else _whole(run, payload.get("artefact"))]
            else:
                entry.status = str(payload.get("status") or entry.status) if kind == "verification.finished" else entry.status
                entry.parts += _read_strings(payload)
                entry.refs += _named(payload)
    yield from told.values()


def _in_json(query: Query) -> tuple[list[str], list[str]]:
    """Return the needles as they appear in JSON text, so that text without them need not be parsed."""

    def written(needles: tuple[str, ...]) -> list[str]:
        return [json.dumps(needle, ensure_ascii=False)[1:-1] for needle in needles]

    return written(query.words), written(query.exact)


def _read_strings(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in UNREAD:
                yield from _read_strings(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _read_strings(inner, name)


NAMED = {"request": "prompt", "reply": "reply", "reasoning": "reasoning", "program": "program"}


def _named(payload: dict[str, Any]) -> list[tuple[str, str]]:
    refs = ((NAMED[name], payload[name]) for name in NAMED if isinstance(payload.get(name), dict))
    return [(name, ref["sha"]) for name, ref in refs if ref.get("sha")]


def _stored_texts(run: Run) -> dict[str, Artefact]:
    readable = ("application/json", "text/plain", "text/x-python", "text/x-c++src")
    return {artefact.sha: artefact for artefact in Artefact.objects.filter(team_id=run.team_id, media_type__in=readable, sha__in=_named_in(run))}


def _named_in(run: Run) -> list[str]:
    """Return the hashes of the searchable artefacts that the run's events refer to."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT ref FROM runs_event, LATERAL (VALUES (payload #>> '{request,sha}'), (payload #>> '{reply,sha}'),"
            " (payload #>> '{reasoning,sha}'), (payload #>> '{program,sha}')) AS named(ref) WHERE run_id = %s"
            " AND kind IN ('llm.requested', 'llm.completed', 'candidate.proposed') AND ref IS NOT NULL",
            [run.pk],
        )
        return [sha for (sha,) in cursor.fetchall()]


def _whole(run: Run, ref: dict[str, Any] | None) -> str:
    try:
        return artefacts.get(run.team_id, ref["sha"]).decode("utf-8", "replace") if ref else ""
    except ArtefactMissing:
        return ""


def _read(artefact: Artefact) -> str:
    """Return the text of an artefact as a reader sees it. For JSON, this is only the strings."""
    text = artefacts.read(artefact).decode("utf-8", "replace")
    if artefact.media_type != "application/json":
        return text
    try:
        return "\n".join(_read_strings(json.loads(text)))
    except ValueError:
        return text
