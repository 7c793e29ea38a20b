"""Condenses a stretch of a trace: streamed texts are joined, and each long string is cut to a preview with its full length.

The output depends only on the events of the stretch, and events never change, so any client can cache a full stretch. The page processes the result
with the same code as live events (static/js/run/store.js) and reaches the same state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

PREVIEW = 2000  # length of a preview in characters (code points); static/js/run/preview.js cuts live events at the same place
ENDS = {"llm.completed": "key", "message.completed": "message"}  # kinds that complete a streamed text, each with the field that identifies the text

Event = dict[str, Any]


def condense(lines: Iterable[tuple[int, str, str]]) -> list[str]:
    """Return the events as JSON strings, given `(seq, kind, event as JSON)` in order.

    The pieces of a message become one event at the position of the first piece. If the message also ends within the stretch, its text is a preview
    with the `characters` and `newlines` of the full text. Any other string of more than `PREVIEW` characters is cut, and `cut` records {field:
    characters}.
    """
    out: list[str | Event] = []
    open_messages: dict[str, Event] = {}
    for _, kind, text in lines:
        if kind == "message.delta":
            _take_delta(out, open_messages, json.loads(text))
            continue
        if kind in ENDS:
            event = json.loads(text)
            started = open_messages.pop(event["payload"].get(ENDS[kind]), None)
            if started is not None:
                _preview(started["payload"])
            out.append(_shortened(event))
        elif kind == "effect.completed":
            event = json.loads(text)
            out.append(event | {"payload": {"key": event["payload"].get("key"), "name": event["payload"].get("name")}})
        else:
            out.append(text if len(text) <= PREVIEW else _shortened(json.loads(text)))
    return [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in out]


def _take_delta(out: list[str | Event], open_messages: dict[str, Event], event: Event) -> None:
    piece = event["payload"]
    known = open_messages.get(piece["message"])
    if known is not None:
        first = known["payload"]
        if first["offset"] <= piece["offset"] <= first["offset"] + len(first["text"]):
            # If the offset of a piece is before the end of the text, an interrupted stream was restarted, and the piece replaces the rest.
            first["text"] = first["text"][: piece["offset"] - first["offset"]] + piece["text"]
            return
    open_messages[piece["message"]] = event
    out.append(event)


def _preview(payload: dict[str, Any]) -> None:
    text = payload["text"]
    payload |= {"text": text[:PREVIEW], "characters": len(text), "newlines": text.count("\n")}


def _shortened(event: Event) -> Event:
    """Return the event with its long strings cut. The text of a finished message keeps its counts, as a streamed text does."""
    payload, cut = dict(event["payload"]), {}
    if event["kind"] == "message.completed" and isinstance(payload.get("text"), str):
        _preview(payload)
        return event | {"payload": payload}
    for name, value in payload.items():
        if isinstance(value, str) and len(value) > PREVIEW:
            payload[name], cut[name] = value[:PREVIEW], len(value)
    return event | {"payload": payload} | ({"cut": cut} if cut else {})
