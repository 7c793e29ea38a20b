"""Kills processes with `kill -9` in the middle of a run. The run continues or ends in a named state; every event that was shown is kept, and no
verdict is duplicated."""

from __future__ import annotations

import os
import signal
import urllib.error
from collections import Counter

import pytest

from agents.events import Outcome
from tests.integration.processes.stack import Browser, Stack, alive, descendants

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=1)


def get_inputs():
    return [torch.rand(256, 2048)]


def get_init_inputs():
    return []
"""
RIGHT = TASK.replace("class Model(", "class ModelNew(")
WRONG = RIGHT.replace("x * 2.0", "x * 2.5")  # gets its verdict in the first trial, without minutes of timing

pytestmark = pytest.mark.timeout(600)


def start_run(browser: Browser, title: str, program: str = WRONG) -> str:
    return browser.submit("/verify/", title=title, task=TASK, program=program + f"# {title}\n", device="cpu", precision="fp32-strict", mode="train")


def shown(stack: Stack, browser: Browser, run: str, stage: str) -> list[dict]:
    """Returns the events that a page shows once the program's verification has reached `stage`."""

    def look() -> list[dict] | None:
        events = browser.events(run)
        reached = any(e["kind"] == "verification.stage" and e["payload"]["stage"] == stage and e["span"] != "admit" for e in events)
        assert not any(e["kind"] == "run.finished" for e in events), f"ended before {stage}: {events[-1]['payload']}"
        return events if reached else None

    return stack.await_true(look, f"stage {stage} of run {run}")


def finished(stack: Stack, browser: Browser, run: str, before: list[dict]) -> list[dict]:
    """Returns the whole trace after checking it: everything shown is still there, nothing is missing, no verdict is duplicated, and the run ended in
    a named state."""

    def look() -> list[dict] | None:
        try:
            events = browser.events(run)
        except (urllib.error.URLError, ConnectionError):  # the web process is restarting
            return None
        return events if any(e["kind"] == "run.finished" for e in events) else None

    events = stack.await_true(look, f"the end of run {run}")
    assert events[: len(before)] == before
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    verdicts = Counter(e["payload"]["key"] for e in events if e["kind"] == "verification.finished")
    assert verdicts and max(verdicts.values()) == 1
    ends = [e["payload"] for e in events if e["kind"] == "run.finished"]
    assert len(ends) == 1 and ends[0]["outcome"] in Outcome.__args__
    ((state, outcome),) = stack.query("SELECT state, outcome FROM runs_run WHERE id = %s", run)
    assert (state, outcome) == ("finished", ends[0]["outcome"])
    return events


def verdict(events: list[dict]) -> dict:
    (found,) = [e["payload"] for e in events if e["kind"] == "verification.finished" and e["payload"]["job"] == "verify"]
    return found


@pytest.mark.slow
def test_an_undisturbed_run_has_a_verdict(stack, person):
    run = start_run(person, "undisturbed")
    events = finished(stack, person, run, [])
    assert verdict(events)["status"] == "wrong_result"


@pytest.mark.parametrize("name", ["web", "orchestrator", "verifier"])
def test_kill(stack, person, name):
    run = start_run(person, f"kill {name}")
    before = shown(stack, person, run, "queue")
    victim = stack.process_of(name)
    offspring = descendants(victim)
    os.kill(victim, signal.SIGKILL)
    events = finished(stack, person, run, before)
    assert verdict(events)["status"] == "wrong_result"
    assert stack.process_of(name) != victim
    stack.await_true(lambda: not alive(offspring), f"the end of what {name} had started")
    queued = [e["payload"]["attempt"] for e in events if e["kind"] == "verification.queued" and e["payload"]["key"] == verdict(events)["key"]]
    assert queued == ([1, 2] if name == "verifier" else [1])


def test_kill_everything_that_runs_strangers_code(stack, person):
    """Kills the runner, and with it the reference. The verdict must either blame the right side or report that the host failed."""
    run = start_run(person, "kill runner")
    before = shown(stack, person, run, "queue")
    parties = stack.await_true(stack.parties, "a confined process")
    for pid in parties:
        os.kill(pid, signal.SIGKILL)
    events = finished(stack, person, run, before)
    statuses = [e["payload"]["status"] for e in events if e["kind"] == "verification.finished" and e["payload"]["job"] == "verify"]
    assert statuses and set(statuses) <= {"wrong_result", "crashed", "infrastructure_error"}


@pytest.mark.slow
def test_a_dead_verifier_and_a_dead_orchestrator_at_once(stack, person):
    run = start_run(person, "kill both")
    before = shown(stack, person, run, "queue")
    for name in ("verifier", "orchestrator"):
        os.kill(stack.process_of(name), signal.SIGKILL)
    finished(stack, person, run, before)


def test_cancelling_stops_the_verifier(stack, person):
    run = start_run(person, "cancel", RIGHT)
    before = shown(stack, person, run, "timing")
    person.get(f"/runs/{run}/")
    person.post(f"/runs/{run}/control", action="cancel")

    def ended() -> list[dict] | None:
        events = person.events(run)
        return events if events[-1]["kind"] == "run.finished" else None

    events = stack.await_true(ended, "the cancellation")
    assert events[: len(before)] == before and events[-1]["payload"]["outcome"] == "cancelled"
    stack.await_true(lambda: stack.query("SELECT 1 FROM fleet_device WHERE busy_with = ''"), "the verifier's rest")
    assert not stack.query("SELECT 1 FROM runs_verification WHERE run_id = %s AND state <> 'finished'", run)
