"""Returns the full texts of a trace on demand: a message joined from its pieces, or a model's prompt and reply."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db import connection

from agents.payloads import ArtefactRef, Exchange, LlmCompleted, LlmRequested, Message, MessageCompleted, MessageDelta, Payload, read
from webapp.runs import artefacts
from webapp.runs.artefacts import ArtefactMissing
from webapp.runs.models import Event, Run

PORTION = 100_000  # maximum characters per response


class NoSuchText(LookupError):
    """Raised if the event has no text. The message says what kind of event it is."""


@dataclass(frozen=True)
class Portion:
    """A portion of a text, with the counts of the full text."""

    text: str
    start: int
    characters: int
    lines: int

    def as_json(self) -> dict[str, Any]:
        end = self.start + len(self.text)
        more = end if end < self.characters else None
        return {"text": self.text, "from": self.start, "characters": self.characters, "lines": self.lines, "next": more}


def portion(text: str, start: int, size: int = PORTION) -> Portion:
    start = min(max(0, start), len(text))
    return Portion(text[start : start + size], start, len(text), text.count("\n") + 1)


def message_text(run: Run, seq: int) -> str:
    """Return the text of the message that begins (or ends) with event `seq`; raises `NoSuchText`."""
    event = Event.objects.filter(run=run, seq=seq).first()
    said = event.body if event is not None else None
    if not isinstance(said, Message):
        raise NoSuchText(f"event {seq} is no message")
    text, whole = "", None
    for piece in _of_message(run, seq, said.message):
        match piece:
            case MessageDelta(offset=offset) if offset > len(text):
                whole = ""  # a piece is missing, so only the finished reply contains the full text
            case MessageDelta(offset=offset):
                text, whole = text[:offset] + piece.text, None
            case MessageCompleted():
                whole = _stored(run, piece.artefact) if piece.text is None else piece.text
            case LlmCompleted() if whole == "":
                whole = json.loads(_stored(run, piece.reply) or "{}").get("text", "")
    return text if whole is None else whole


def _of_message(run: Run, seq: int, name: str) -> list[Payload]:
    """Return, in order, the pieces and ends of one message from `seq` on."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT kind, payload::text FROM runs_event WHERE run_id = %s AND seq >= %s AND ("
            " (kind IN ('message.delta', 'message.completed') AND payload ->> 'message' = %s)"
            " OR (kind = 'llm.completed' AND payload ->> 'key' = %s)) ORDER BY seq",
            [run.pk, seq, name, name],
        )
        return [read(kind, json.loads(payload)) for kind, payload in cursor.fetchall()]


def _stored(run: Run, ref: ArtefactRef | None) -> str:
    """Return the text of an artefact: "" if there is none, and a sentence saying so if it is missing."""
    if ref is None:
        return ""
    try:
        return artefacts.get(run.team_id, ref.sha).decode("utf-8", "replace")
    except ArtefactMissing:
        return ""


def call_texts(run: Run, seq: int) -> dict[str, Any]:
    """Return one exchange with a model.

    The result holds the settings of `request` and the texts `[{"name", "text"}]`: each prompt message, the reply, the reasoning. `seq` is that of an
    `llm.requested` or `llm.completed` event. Raises `NoSuchText`.
    """
    event = Event.objects.filter(run=run, seq=seq).first()
    exchange = event.body if event is not None else None
    if not isinstance(exchange, Exchange):
        raise NoSuchText(f"event {seq} is not an exchange with a model")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT kind, payload::text FROM runs_event WHERE run_id = %s AND kind IN ('llm.requested', 'llm.completed') AND payload ->> 'key' = %s"
            " ORDER BY seq",
            [run.pk, exchange.key],
        )
        known = [read(kind, json.loads(payload)) for kind, payload in cursor.fetchall()]
    asked = next((said for said in reversed(known) if isinstance(said, LlmRequested)), None)
    done = next((said for said in reversed(known) if isinstance(said, LlmCompleted)), None)
    request = _json(_stored(run, asked.request if asked else None))
    reply = _json(_stored(run, done.reply if done else None))
    texts = [{"name": str(message.get("role", "user")), "text": str(message.get("content", ""))} for message in request.get("messages", [])]
    if reply.get("text"):
        texts.append({"name": "reply", "text": str(reply["text"])})
    if done is not None and done.reasoning is not None:
        reasoning = _stored(run, done.reasoning)
        texts.append({"name": "reasoning", "text": str(_json(reasoning).get("reasoning") or reasoning)})
    return {"settings": {name: value for name, value in request.items() if name != "messages" and value not in (None, "")}, "texts": texts}


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
