"""Runs `stitch` with the stand-in as its model and the real verifier on the CPU. The stand-in stops making a mistake once the verifier's diagnostics
explain it."""

from __future__ import annotations

import asyncio

import pytest

from agents.journal import MemoryJournal
from agents.llm.models import Models
from agents.local import LocalVerifier
from agents.settings import Budget, Settings
from tests.engines import engine_of
from tests.integration.agents.brief import Brief
from tests.standin import FaultPlan, StandIn
from tests.unit.standin.prompts_of import TASK
from verifier.limits import Limits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TASK = TASK.replace("torch.rand(64, 96)", "torch.rand(4096, 96)")
PROFILE = '[profiles.model]\nkind = "openai"\nbase_url = "{url}"\nmodel = "stand-in"\n'
ROLES = {"planner": "model", "coder": "model", "judge": "model"}
ORDER = ("does-not-compile", "wrong-result", "cheat")


class InTurn(FaultPlan):
    """A coder that makes these mistakes in order, each until it is explained, and none after that."""

    def __init__(self, order):
        super().__init__(seed=1, rate=1.0)
        self.left, self.made = list(order), []

    def _transport(self, place, request):
        return None

    def _content(self, place, evidence, applicable, cheats):
        self.kinds = self.left[:1] if "/coder/" in place else []
        fault = super()._content(place, evidence, applicable, ["17_memo_by_address"])
        if fault is not None and fault not in self.made:
            self.made.append(fault)
            self.left.pop(0)
        return fault


def test_three_mistakes_are_explained_by_the_verifier_and_mended(tmp_path):
    async def run():
        from verifier.client import Verifier

        faults, client, journal = InTurn(ORDER), Verifier("cpu", tmp_path / "data", limits=Limits(quick_timing=1)), MemoryJournal("run")
        try:
            async with StandIn(faults) as server:
                (tmp_path / "llm.toml").write_text(PROFILE.format(url=server.base_url))
                models = Models({"STITCHWORK_LLM_PROFILES": str(tmp_path / "llm.toml"), "DATA_DIR": str(tmp_path)})
                budget = Budget(calls=12, candidates=5, verifier_seconds=None, seconds=None)
                settings = Settings(**ROLES, target=0.01, budget=budget)
                engine = engine_of(journal, LocalVerifier(journal, Brief(client), "cpu"), settings, TASK, "small", models=models, on_pause="stop")
                return faults, await engine.execute()
        finally:
            await client.close()

    (tmp_path / "data").mkdir()
    faults, summary = asyncio.run(run())
    assert [fault.kind for fault in faults.made] == list(ORDER)
    assert [candidate.status for candidate in summary.candidates[:3]] == ["build_failed", "wrong_result", "wrong_result"], summary.reason
    assert len(summary.candidates) == 4, summary.reason
    assert summary.candidates[3].status in ("passed", "inconclusive"), summary.candidates[3].message
    assert summary.outcome in ("improved", "matched") or "inconclusive" in summary.reason, "a busy machine gives no interval"
