"""Generates a long run, attempt by attempt as the engine would write it, for benchmarks and tests of the trace explorer."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator

ATTEMPTS_A_STEP = 25


def long_trace(user, least: int, *, delta_characters: int, total_bytes: int = 0) -> uuid.UUID:
    """Generates attempts until the run has `least` events and `total_bytes` of payloads; the run is finished and has a best candidate."""
    from agents.events import NewEvent
    from tests.browser import sample_run
    from webapp.runs.trace.append import append

    run = sample_run.create_run(user, f"trace of {total_bytes // 1_000_000} MB" if total_bytes else f"trace of {least} events")
    budget = {"candidates": 400, "calls": 2000, "tokens": None, "dollars": 40.0, "verifier_seconds": None, "seconds": None}
    started = {"task": {"sha": run.task.sha, "name": run.task.name}, "workflow": "stitch", "planner": "many", "coder": "many", "judge": "many"}
    started |= {"device": "cuda", "precision": "fp32-strict", "mode": "train", "budget": budget}
    append(run.pk, [NewEvent(kind="run.started", payload=started)])
    written = size = 0
    best, number = (0, 1.0), 0
    rng = random.Random(7)
    while written < least - 3 or size < total_bytes:
        number += 1
        events = list(_attempt(run, number, rng, delta_characters))
        for start in range(0, len(events), 200):
            append(run.pk, events[start : start + 200])
        written += len(events)
        size += sum(len(json.dumps(event.payload)) for event in events)
        verdict = events[-4].payload
        if verdict["status"] == "passed" and verdict["speedup"]["ratio"] > best[1]:
            best = (number, verdict["speedup"]["ratio"])
    speedup = {"ratio": best[1], "low": best[1] * 0.98, "high": best[1] * 1.02}
    append(
        run.pk,
        [
            NewEvent(
                kind="run.finished",
                payload={"outcome": "improved", "reason": "The budget of candidates is spent.", "best": best[0], "speedup": speedup},
            )
        ],
    )
    return run.pk


def _attempt(run, number: int, rng: random.Random, delta_characters: int) -> Iterator:
    """Generates about 100 events: a question, its streamed answer, a program, its verdict, and the events that follow. The verdict is the fourth
    event from the end."""
    from agents.events import NewEvent
    from tests.browser import sample_run
    from webapp.runs import artefacts

    step, inside = (number - 1) // ATTEMPTS_A_STEP + 1, (number - 1) % ATTEMPTS_A_STEP + 1
    span = f"step-{step}/attempt-{inside}"

    def event(kind: str, agent: str = "coder", at: str = span, **payload) -> NewEvent:
        return NewEvent(kind=kind, span=at, parent="", agent=agent, payload=payload)

    def stored(text: str, media_type: str, name: str) -> dict:
        return artefacts.put(run.team_id, text.encode(), media_type, name).model_dump()

    if inside == 1:
        yield event("span.opened", at=f"step-{step}", title=f"Step {step}: fuse the epilogue of group {step}")
    yield event("span.opened", title=f"Attempt {inside}")
    key = f"{span}#1"
    asked = stored(
        json.dumps({"messages": [{"role": "user", "content": f"Write candidate {number}.\n" + sample_run.TASK * 4}]}),
        "application/json",
        "request.json",
    )
    yield event(
        "llm.requested", key=key, profile="many", purpose="coder/optimise", request=asked, estimate={"calls": 1, "tokens": 4000, "dollars": 0.02}
    )
    offset = 0
    for piece in range(80):
        text = _words(rng, delta_characters)
        if piece % 20 == 5:
            text += "\n```cpp\n" + sample_run.BODIES[number % 4][1] + "\n```\n"
        yield event("message.delta", message=key, offset=offset, text=text)
        offset += len(text)
    usage = {"input_tokens": 3000 + number, "output_tokens": 1200, "cached_tokens": 2000, "reasoning_tokens": 300}
    reply = stored(json.dumps({"text": f"reply {number}"}), "application/json", "reply.json")
    yield event("llm.completed", key=key, profile="many", purpose="coder/optimise", model="many-1", finish="stop", usage=usage, dollars=0.013,
                attempts=1 + (number % 9 == 0), seconds=12.5, spent={"calls": 1, "tokens": 4200, "dollars": 0.013}, reply=reply)  # fmt: skip
    program = stored(sample_run.program(number) + f"\n# candidate {number}\n", "text/x-python", f"candidate-{number}.py")
    yield event("candidate.proposed", key=f"{span}#2", candidate=number, parent=number - 1 or None, title=f"variant {number}", step=f"g{step}",
                program=program,
                sha=program["sha"], changes="Replaced the inner loop.", strategy="row-reduction")  # fmt: skip
    job = f"{span}#3"
    yield event("verification.queued", "verifier", key=job, job="verify", candidate=number, verification=str(uuid.uuid4()), attempt=1)
    passed = rng.random() > 0.3
    for stage in ("static", "build", "correctness", "timing") if passed else ("static", "build", "correctness"):
        yield event("verification.stage", "verifier", key=job, stage=stage, status="started", attempt=1)
        yield event(
            "verification.stage",
            "verifier",
            key=job,
            stage=stage,
            status="passed" if passed or stage != "correctness" else "failed",
            seconds=0.8,
            attempt=1,
        )
    ratio = 0.8 + 2.4 * rng.random() * min(1, number / 80)
    speedup = {"ratio": ratio, "low": ratio * 0.98, "high": ratio * 1.02} if passed else None
    yield event("verification.finished", "verifier", key=job, job="verify", candidate=number, status="passed" if passed else "wrong_result",
                tier="quick", message="" if passed else f"wrong on large inputs: out[{number}, 17] is nan", speedup=speedup, faster=ratio > 1,
                program_class="custom", program_ms=9.8 / ratio if passed else None, seconds=4.0)  # fmt: skip
    yield event(
        "diagnosis.made",
        "verifier",
        candidate=number,
        bottleneck="memory" if passed else "defect",
        headroom=1.3,
        evidence=[],
        method=None,
        text=_words(rng, 200),
    )
    yield event("decision.made", "verifier", route="optimise" if passed else "repair", reason=_words(rng, 80), expected=1.2, method=None)
    yield event("span.closed", status="ok" if passed else "failed", seconds=21.0, summary="passed" if passed else "wrong result")


VOCABULARY = """
the row is read twice so one pass with a running maximum saves a third of the traffic while shared memory holds the partial sums and each warp
reduces by shuffles before one thread writes the tile occupancy stays at half because registers spill when unrolled by eight
""".split()  # noqa: SIM905


def _words(rng: random.Random, characters: int) -> str:
    words: list[str] = []
    size = 0
    while size < characters:
        word = rng.choice(VOCABULARY)
        words.append(word)
        size += len(word) + 1
    return " ".join(words) + ("\n" if rng.random() < 0.4 else " ")
