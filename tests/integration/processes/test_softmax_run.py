"""The whole path with agents: the softmax example from the submit page to the end of its run, with one process after another killed on the way."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.processes import stack as stack_module
from tests.integration.processes.stack import Browser, Stack
from tests.integration.processes.test_kills import finished
from webapp.environment import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


def reached(stack: Stack, browser: Browser, run: str, kind: str, **payload) -> list[dict]:
    def look() -> list[dict] | None:
        try:
            events = browser.events(run)
        except OSError:  # the web process is restarting
            return None
        return events if any(e["kind"] == kind and payload.items() <= e["payload"].items() for e in events) else None

    return stack.await_true(look, f"{kind} {payload}")


@pytest.mark.timed
def test_softmax_survives_four_kills(stack, person, monkeypatch):
    monkeypatch.setattr(stack_module, "PATIENCE", 1200.0)
    task = (ROOT / "examples" / "softmax.py").read_text().replace("1536, 4096", "256, 2048")  # the same processes are killed, but they restart sooner
    assert "256, 2048" in task
    run = person.submit(
        "/submit/",
        title="softmax",
        task=task,
        device="cpu",
        precision="fp32-strict",
        mode="train",
        candidates="1",
        minutes="60",
        verifier_minutes="60",
    )
    reached(stack, person, run, "plan.proposed")
    os.kill(stack.process_of("web"), signal.SIGKILL)
    reached(stack, person, run, "verification.stage", stage="build", status="passed")
    os.kill(stack.process_of("orchestrator"), signal.SIGKILL)
    reached(stack, person, run, "run.resumed")
    os.kill(stack.process_of("verifier"), signal.SIGKILL)
    reached(stack, person, run, "verification.stage", attempt=2, stage="correctness", status="started")
    for pid in stack.parties():
        os.kill(pid, signal.SIGKILL)
    before = person.events(run)
    events = finished(stack, person, run, before)
    assert events[-1]["payload"]["outcome"] in ("improved", "matched"), events[-1]["payload"]
    best = events[-1]["payload"]["best"]
    assert b"class ModelNew" in person.get(f"/runs/{run}/best.py").encode() if best is not None else True
    proposed = [e["payload"]["candidate"] for e in events if e["kind"] == "candidate.proposed"]
    assert proposed == sorted(set(proposed))  # replay proposes no program twice
