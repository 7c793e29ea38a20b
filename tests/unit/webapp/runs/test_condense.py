"""Condensing: fewer events, shorter strings, and counts of what was left out."""

from __future__ import annotations

import json

from tests.unit.webapp.stretches import stretches, told
from webapp.runs.trace.condense import PREVIEW, condense


def condensed(events: list[dict]) -> list[dict]:
    return [json.loads(text) for text in condense((event["seq"], event["kind"], json.dumps(event)) for event in events)]


def test_a_streamed_message_becomes_one_event_with_its_counts():
    events = told()
    whole = "".join(
        event["payload"]["text"] for event in events if event["kind"] == "message.delta" and event["payload"]["message"] == "step-1/attempt-1#1"
    )
    found = [e for e in condensed(events) if e["kind"] == "message.delta" and e["payload"]["message"] == "step-1/attempt-1#1"]
    assert len(found) == 1
    assert found[0]["payload"]["text"] == whole[:PREVIEW]
    assert (found[0]["payload"]["characters"], found[0]["payload"]["newlines"]) == (len(whole), whole.count("\n"))


def test_an_open_message_stays_whole():
    found = condensed(told())[-1]
    assert found["kind"] == "message.delta" and "characters" not in found["payload"]
    assert len(found["payload"]["text"]) > PREVIEW


def test_long_strings_are_cut_and_their_length_is_said():
    note = next(e for e in condensed(told()) if e["kind"] == "note.added" and e.get("cut"))
    assert len(note["payload"]["text"]) == PREVIEW and note["cut"] == {"text": 3000}
    effect = next(e for e in condensed(told()) if e["kind"] == "effect.completed")
    assert set(effect["payload"]) == {"key", "name"}


def test_a_full_stretch_depends_on_its_events_alone():
    events = told()
    assert stretches(events)[0] == stretches(events[:40])[0] | {"head": len(events)}
    assert [s["since"] for s in stretches(events)[1:]] == [s["last"] for s in stretches(events)[:-1]]
