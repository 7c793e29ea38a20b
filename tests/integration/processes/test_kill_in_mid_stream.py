"""Kills the orchestrator with `kill -9` while a model is answering. The run continues from its journal, repeats only that request, and counts both
attempts."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agents.events import Outcome
from tests.integration.processes.test_kills import TASK

pytestmark = pytest.mark.timeout(600)
PIECES = ["I have ", "thought about it, ", "and there is no plan."]


class SlowModel(BaseHTTPRequestHandler):
    """Streams chat completions. The first reply never ends. Later ones do, but none of them is a plan."""

    bodies: list[dict] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        first = len(self.bodies) == 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in PIECES[: 2 if first else 3]:
            self._send({"choices": [{"index": 0, "delta": {"content": piece}}], "model": "slow-1"})
        if first:
            threading.Event().wait(300)  # until the requesting process is dead; the thread ends with the test
            return
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._send({"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 20}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, chunk: dict) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model(stack) -> Iterator[str]:
    SlowModel.bodies = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowModel)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = stack.data / "llm.toml"
    file.write_text(f'[profiles.slow]\nkind = "openai"\nbase_url = "http://127.0.0.1:{server.server_port}/v1"\nmodel = "slow-1"\n')
    stack.await_true(lambda: stack.query("SELECT name FROM llm_profile WHERE name = 'slow'"), "the profile on the page")
    yield "slow"
    file.unlink()
    server.shutdown()


@pytest.mark.slow
def test_only_the_call_in_flight_is_repeated_and_its_cost_counts(stack, person, model):
    run = person.submit(
        "/submit/", title="mid stream", task=TASK, device="cpu", precision="fp32-strict", mode="train", workflow="stitch", llm=model,
        candidates="3", minutes="30", verifier_minutes="10", calls="2",
    )  # fmt: skip

    def streaming() -> list[dict] | None:
        events = person.events(run)
        assert not any(e["kind"] == "run.finished" for e in events), events[-1]["payload"]
        return events if any(e["kind"] == "message.delta" and "thought about" in e["payload"]["text"] for e in events) else None

    before = stack.await_true(streaming, "the first words of the model")
    victim = stack.process_of("orchestrator")
    os.kill(victim, signal.SIGKILL)

    def ended() -> list[dict] | None:
        events = person.events(run)
        return events if any(e["kind"] == "run.finished" for e in events) else None

    events = stack.await_true(ended, "the end of the run")
    assert stack.process_of("orchestrator") != victim
    assert events[: len(before)] == before and [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert len(SlowModel.bodies) == 2 and SlowModel.bodies[0] == SlowModel.bodies[1]
    requested = [e["payload"]["key"] for e in events if e["kind"] == "llm.requested"]
    completed = [e["payload"] for e in events if e["kind"] == "llm.completed"]
    assert len(requested) == 2 and requested[0] == requested[1] and [p["key"] for p in completed] == requested[:1]
    (end,) = [e["payload"] for e in events if e["kind"] == "run.finished"]
    assert end["outcome"] in Outcome.__args__ and "2 model calls" in end["reason"]
    spent = [e["payload"]["spent"] for e in events if e["kind"] == "budget.updated"][-1]
    estimate = next(e["payload"]["estimate"] for e in events if e["kind"] == "llm.requested")
    assert spent["calls"] == 2 and spent["tokens"] == estimate["tokens"] + 1020
    text = ""
    for event in events:
        if event["kind"] == "message.delta" and event["payload"]["message"] == requested[0]:
            text = text[: event["payload"]["offset"]] + event["payload"]["text"]
    assert text == "".join(PIECES)
