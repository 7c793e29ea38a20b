"""The ledger: gains measured side by side, and the strategies of a first program, which are recorded together."""

from __future__ import annotations

import pytest
from agent_fakes import TASK, FakeClient, settings
from scripted_models import ScriptedModels, diagnosis, optimise, plan, program

from agents.events import Event
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.settings import Budget
from agents.strategies.ledger import entries
from tests.engines import engine_of


def trace(gain: dict | None) -> list[Event]:
    def verdict(number, ratio, gain=None):
        speedup = {"ratio": ratio, "low": ratio * 0.98, "high": ratio * 1.02}
        payload = {"key": f"{number}", "job": "verify", "candidate": number, "status": "passed", "tier": "quick", "speedup": speedup, "gain": gain}
        return "verification.finished", payload

    said = [
        ("run.started", {"task": {"sha": "f" * 64}, "device": "cuda:0"}),
        ("candidate.proposed", {"candidate": 1, "parent": None, "strategy": "fuse-block + vectorise"}), verdict(1, 4.23),
        ("candidate.proposed", {"candidate": 2, "parent": 1, "strategy": "lean-forward"}), verdict(2, 5.71, gain),
    ]  # fmt: skip
    return [Event(run="r", seq=n, at="2026-01-01T00:00:00+00:00", span="s", kind=kind, payload=p) for n, (kind, p) in enumerate(said, 1)]


@pytest.mark.parametrize(
    ("gain", "outcome", "realised"),
    [
        ({"ratio": 1.001, "low": 0.99, "high": 1.01}, "no gain", 1.001),
        ({"ratio": 1.2, "low": 1.1, "high": 1.3}, "gained", 1.2),
        ({"ratio": 1.2, "low": 0.9, "high": 1.5}, "no gain", 1.2),
        (None, "not measured", None),
    ],
)
def test_a_gain_is_what_was_timed_in_turn(gain, outcome, realised):
    first, second = entries(trace(gain))
    assert (second.outcome, second.realised) == (outcome, realised)
    assert (first.strategy, first.realised) == ("fuse-block + vectorise", 4.23), "a first program is held against eager, its strategies together"


@pytest.mark.asyncio
async def test_a_run_credits_a_first_programs_strategies_together_and_times_each_step_beside_its_parent():
    script = {
        "planner/plan": [plan("s1").replace('["fuse-row-reduction"]', '["fuse-row-reduction", "vectorise"]')],
        "coder/first": [program(1.5).replace("STRATEGY: none", "STRATEGY: row-cache")],
        "verifier/diagnose": [optimise, diagnosis("stop")],
        "coder/optimise": [program(1.8, tag="second")],
    }
    journal, client, asked = MemoryJournal(), FakeClient(), []

    async def note(job):
        if job.kind == "verify":
            asked.append((job.tier, job.rival_source is not None))

    client.before = note
    chosen = settings(planner="scripted", coder="scripted", judge="scripted", budget=Budget(candidates=2, calls=20))
    summary = await engine_of(journal, LocalVerifier(journal, client, "cpu"), chosen, TASK, "softmax", models=ScriptedModels(script)).execute()
    assert asked[:2] == [("quick", False), ("quick", True)] and asked[-1][1] is False, "the winner is confirmed against all baselines"
    first, second = entries(await journal.load())
    assert first.strategy == "fuse-row-reduction + vectorise + row-cache"
    assert second.realised == pytest.approx(1.2) and second.outcome == "gained" and summary.outcome == "improved"
