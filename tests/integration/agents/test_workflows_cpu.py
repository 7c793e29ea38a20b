"""Runs each workflow with the built-in roles on a real task, with the real compiler and the real verifier, for two programs each.

All workflows share one verifier, which performs each job only once even if several workflows request it (`Brief`).
"""

from __future__ import annotations

import asyncio

import pytest

from agents.call_graph import call_graph
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.settings import Budget, Settings
from agents.workflows.yielding import TAKEN
from tests.engines import engine_of
from tests.integration.agents.brief import Brief
from verifier.limits import Limits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("workflows on the CPU")]
TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)


def get_inputs():
    return [torch.rand(256, 2048)]


def get_init_inputs():
    return []
"""
WORKFLOWS = ("forge", "pilot", "branch", "beam", "worldmodel", "descend", "random")


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """Returns `solved(workflow)`, which runs a workflow. All workflows share a verifier, whose processes are started only once."""
    from verifier.client import Verifier

    with asyncio.Runner() as runner:

        async def opened():
            return Brief(Verifier("cpu", tmp_path_factory.mktemp("verifier"), limits=Limits(quick_timing=1)))

        brief = runner.run(opened())

        async def solve(workflow):
            journal = MemoryJournal()
            settings = Settings(workflow=workflow, budget=Budget(candidates=2, verifier_seconds=None, seconds=None), seed=1)
            return await engine_of(journal, LocalVerifier(journal, brief, "cpu"), settings, TASK, "softmax").execute(), journal

        yield lambda workflow: runner.run(solve(workflow))
        runner.run(brief.client.close())


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_solves_softmax(solved, workflow):
    summary, journal = solved(workflow)
    unclear = any(v.status == "inconclusive" for v in summary.verifications)  # because of other work on the host; a wrong program has another status
    assert summary.outcome in ("improved", "matched") or unclear, summary.reason
    searched = [c for c in summary.candidates if c.strategy != TAKEN]  # on a busy host a baseline may be faster, and is then tried as a program too
    assert 1 <= len(searched) <= 2 and summary.open_spans() == []
    assert all(c.status in ("passed", "inconclusive") for c in summary.candidates), [(c.title, c.status, c.message) for c in summary.candidates]
    kinds = {call.situation for call in call_graph(journal.events)}
    assert kinds >= {
        "forge": {"first", "diagnose"}, "pilot": {"first", "ideas", "realise"}, "branch": {"ideas", "realise"}, "beam": {"first"},
        "worldmodel": {"edit", "realise"}, "descend": {"first", "diagnose"}, "random": {"first"},
    }[workflow], kinds  # fmt: skip
