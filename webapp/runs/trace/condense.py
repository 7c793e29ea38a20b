"""A stretch of a trace as a page needs it: pieces of streamed texts put together, long strings cut to a preview with their own count beside it.

What comes out depends on the events of the stretch alone, and events never change: a stretch that is full can be kept by whoever has it.
The page folds the result with the same code as live events (static/js/run/store.js), and ends in the same state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

PREVIEW = 2000  # characters (code points) of a string that go along; static/js/run/preview.js cuts live events at the same place
ENDS = {"llm.completed": "key", "message.completed": "message"}  # kinds after which a streamed text is whole, and what names it

Event = dict[str, Any]


def condense(lines: Iterable[tuple[int, str, str]]) -> list[str]:
    """Events as JSON texts, from `(seq, kind, event as JSON)` in order.

    The pieces of a message become one event at the place of the first; where the message also ends within the stretch, its text is a preview
    with `characters` and `newlines` of the whole. Any other string of more than `PREVIEW` characters is cut, and `cut` says {field: characters}.
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
            # A piece that begins earlier than the text reaches replaces the rest: an interrupted stream was begun again.
            first["text"] = first["text"][: piece["offset"] - first["offset"]] + piece["text"]
            return
    open_messages[piece["message"]] = event
    out.append(event)


def _preview(payload: dict[str, Any]) -> None:
    text = payload["text"]
    payload |= {"text": text[:PREVIEW], "characters": len(text), "newlines": text.count("\n")}


def _shortened(event: Event) -> Event:
    """The event with its long strings cut. The text of a finished message keeps its counts, as a streamed one does."""
    payload, cut = dict(event["payload"]), {}
    if event["kind"] == "message.completed" and isinstance(payload.get("text"), str):
        _preview(payload)
        return event | {"payload": payload}
    for name, value in payload.items():
        if isinstance(value, str) and len(value) > PREVIEW:
            payload[name], cut[name] = value[:PREVIEW], len(value)
    return event | {"payload": payload} | ({"cut": cut} if cut else {})
