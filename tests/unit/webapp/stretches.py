"""A trace with everything that condensing has to handle, event by event and as condensed by the server."""

from __future__ import annotations

import json
from typing import Any

from webapp.runs.trace.condense import condense

LENGTH = 40  # events per stretch


def told() -> list[dict[str, Any]]:
    """Returns streams that end, cross a stretch, restart, have a gap or stay open; long strings of every kind; characters beyond the BMP."""
    events: list[dict[str, Any]] = []

    def add(kind: str, span: str = "", agent: str = "coder", **payload: Any) -> None:
        seq = len(events) + 1
        at = f"2026-01-01T00:{seq // 60:02}:{seq % 60:02}.000000+00:00"
        events.append({"v": 1, "run": "r", "seq": seq, "at": at, "span": span, "parent": "", "agent": agent, "kind": kind, "payload": payload})

    def stream(message: str, text: str, size: int, span: str) -> None:
        for offset in range(0, len(text), size):
            add("message.delta", span, message=message, offset=offset, text=text[offset : offset + size])

    long = "".join(f"line {n} of a long reply, with 😀 in it\n" for n in range(200))
    add("run.started", agent="engine", workflow="stitch", budget={"candidates": 4})
    for attempt in range(1, 6):
        span, key = f"step-1/attempt-{attempt}", f"step-1/attempt-{attempt}#1"
        add("span.opened", span, title=f"Attempt {attempt}")
        add("llm.requested", span, key=key, profile="fast", purpose="coder/first", request={"sha": "a"})
        stream(key, long[: 1500 * attempt], 400, span)
        if attempt == 2:  # restarted after a crash, first from the middle and then from the start
            add("message.delta", span, message=key, offset=700, text="told again from here\n" * 200)
            add("message.delta", span, message=key, offset=0, text="from the start 😀\n" * 130)
        if attempt == 3:  # a piece was lost
            add("message.delta", span, message=key, offset=99_000, text="after a gap")
        usage = {"input_tokens": 10 * attempt, "output_tokens": 5}
        add("llm.completed", span, key=key, profile="fast", usage=usage, dollars=0.01, attempts=1, seconds=2.0, reply={"sha": "b"})
        add("message.delta", span, message=f"{span}#said", offset=0, text="short")
        add("message.completed", span, message=f"{span}#said", text=long if attempt == 4 else "short and whole")
        add("candidate.proposed", span, key=f"{span}#2", candidate=attempt, title="variant", changes="c" * 5000, program={"sha": "c", "bytes": 3})
        add("verification.queued", span, "verifier", key=f"{span}#3", job="verify", candidate=attempt, attempt=1)
        add("note.added", span, "person", text="n" * 3000 if attempt == 5 else "short", to="all", by="ada")
        add("verification.stage", span, "verifier", key=f"{span}#3", stage="build", status="passed", seconds=1.0)
        passed = attempt != 2
        speedup = {"ratio": 1 + attempt, "low": 0.9 + attempt, "high": 1.1 + attempt} if passed else None
        status = "passed" if passed else "wrong_result"
        message = "" if passed else "m" * 4000
        add(
            "verification.finished",
            span,
            "verifier",
            key=f"{span}#3",
            job="verify",
            candidate=attempt,
            status=status,
            speedup=speedup,
            message=message,
        )
        add("effect.completed", span, "engine", key=f"{span}#4", name="clock", value="v" * 5000)
        add("span.closed", span, status="ok" if passed else "failed", seconds=3.0)
    add("run.finished", agent="engine", outcome="improved", best=5, reason="Done.")
    stream("late#1", long, 600, "step-2")
    return events


def stretches(events: list[dict[str, Any]], length: int = LENGTH) -> list[dict[str, Any]]:
    """Returns the events as stretches, in the format of `webapp.runs.pages.views_trace.stretch`."""
    found = []
    for since in range(0, len(events), length):
        part = events[since : since + length]
        condensed = condense((event["seq"], event["kind"], json.dumps(event, ensure_ascii=False)) for event in part)
        found.append({"since": since, "last": part[-1]["seq"], "head": len(events), "events": [json.loads(text) for text in condensed]})
    return found
