"""Whole runs of `stitch` against the stand-in, with one fault each. The run makes progress, or ends in a named state from which it can be resumed,
and nothing is lost.

The verifier here recognises the stand-in's mistakes by their markers; test_standin_stitch.py uses the real verifier.
"""

from __future__ import annotations

import pytest
import pytest_asyncio

from agents.events import NewEvent
from agents.journal import MemoryJournal
from agents.llm.models import Models
from agents.local import LocalVerifier
from agents.run import Engine
from agents.settings import Budget, Settings
from tests.engines import engine_of
from tests.standin import CONTENT, KINDS, FaultPlan, StandIn
from tests.standin.answers import Author
from tests.unit.standin.marked_verifier import MarkedVerifier
from tests.unit.standin.prompts_of import TASK

pytestmark = pytest.mark.asyncio
PROFILE = '[profiles.model]\nkind = "openai"\nbase_url = "{url}"\nmodel = "{model}"\nlimits = {{ read_seconds = {read}, retries = {retries} }}\n'
ROLES = {"planner": "model", "coder": "model", "judge": "model"}
SETTINGS = Settings(**ROLES, target=1.0, budget=Budget(calls=12, candidates=12, verifier_seconds=None, seconds=None))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("agents.llm.server.FIRST_WAIT", 0.01)


@pytest.fixture(scope="module")
def author():
    """An author whose capturing process lives as long as the event loop. The graphs that it captures are kept for the next run."""
    return Author()


class Bench:
    def __init__(self, folder, author):
        self.folder, self.author, self.journal, self.verifier = folder, author, MemoryJournal("run"), MarkedVerifier()

    def engine(self, url: str, *, retries: int = 5, read: float = 10, model: str = "stand-in", **changes) -> Engine:
        path = self.folder / "llm.toml"
        path.write_text(PROFILE.format(url=url, retries=retries, read=read, model=model))
        models = Models({"STITCHWORK_LLM_PROFILES": str(path), "DATA_DIR": str(self.folder)})
        local = LocalVerifier(self.journal, self.verifier, "cpu")
        return engine_of(self.journal, local, SETTINGS.model_copy(update=changes), TASK, "small", models=models, on_pause="stop")


@pytest_asyncio.fixture
async def bench(tmp_path, author):
    yield Bench(tmp_path, author)
    await author.close()


async def test_a_trained_policy_behind_such_a_server_is_an_ordinary_profile_and_signs_its_program(bench):
    """The profile uses the model name that `transformers serve`, vLLM and llama.cpp report: the folder or alias, with the revision printed by
    `agents.rl merge`."""
    policy = "/models/coder@3f2a1c9d04be-40"
    async with StandIn(author=bench.author) as server:
        summary = await bench.engine(server.base_url, model=policy).execute()
    assert summary.outcome == "improved", summary.reason
    best = (await bench.journal.get(summary.candidate(summary.best).program.sha)).decode()
    assert best.splitlines()[0] == f"# Written by model ({policy})"
    proposed = [event.payload for event in await bench.journal.load() if event.kind == "candidate.proposed"]
    assert {one["author"] for one in proposed} == {f"model ({policy})"}


async def test_without_faults_plan_and_program_take_one_request_each(bench):
    async with StandIn(author=bench.author) as server:
        summary = await bench.engine(server.base_url).execute()
    assert (summary.outcome, summary.best) == ("improved", 1)
    assert [entry["situation"] for entry in server.record][:2] == ["plan", "first"]
    assert summary.spent["calls"] == len(server.record) <= 3


@pytest.mark.parametrize("rate", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
@pytest.mark.parametrize("workflow", ["stitch", "forge", "pilot", "branch", "beam", "worldmodel"])
async def test_every_workflow_with_a_model_ends_with_its_program(bench, workflow, rate, caplog):
    budget = Budget(calls=40, candidates=12, verifier_seconds=None, seconds=None)
    async with StandIn(FaultPlan(3, rate, CONTENT), author=bench.author) as server:
        summary = await bench.engine(server.base_url, workflow=workflow, target=None, budget=budget).execute()
    assert summary.outcome == "improved", summary.reason
    assert "cannot answer" not in caplog.text
    assert len({entry["situation"] for entry in server.record}) > 1


async def test_the_pair_of_frontend_and_mid_end(bench):
    async with StandIn(author=bench.author) as server:
        summary = await bench.engine(server.base_url, coder_mode="frontend+mid-end", target=None).execute()
    assert summary.outcome == "improved", summary.reason
    assert {entry["role"] for entry in server.record} >= {"planner", "frontend", "verifier"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) if at % 3 else kind for at, kind in enumerate(KINDS)])
async def test_a_fault_in_half_of_the_replies_ends_in_progress(bench, kind):
    async with StandIn(FaultPlan(2, 0.5, (kind,)), author=bench.author, hang=5) as server:
        summary = await bench.engine(server.base_url, read=1.5 if kind == "hang" else 10).execute()
    assert summary.outcome == "improved", summary.reason


@pytest.mark.parametrize("kind", CONTENT)
async def test_a_fault_in_every_reply_ends_with_a_name_and_keeps_what_was_spent(bench, kind):
    async with StandIn(FaultPlan(1, 1.0, (kind,)), author=bench.author) as server:
        summary = await bench.engine(server.base_url).execute()
    assert summary.state == "finished" and summary.reason
    assert summary.outcome in (("improved",) if kind in ("malformed-json", "stale-block") else ("out_of_budget", "failed")), summary.reason
    assert summary.spent["calls"] == len(server.record) <= 14
    assert not any(candidate.status == "passed" for candidate in summary.candidates) or summary.outcome == "improved"


async def test_a_dead_server_pauses_the_run_until_somebody_resumes_it(bench):
    server = await StandIn(author=bench.author).start()
    url = server.base_url
    await server.close()
    summary = await bench.engine(url, retries=1).execute()
    assert summary.state == "paused" and summary.pause.kind_ == "unreachable"
    async with StandIn(author=bench.author, port=server.port):
        await bench.journal.append([NewEvent(kind="control.requested", agent="person", payload={"action": "resume", "by": "a test"})])
        summary = await bench.engine(url).execute()
    assert summary.outcome == "improved"
    assert summary.spent["calls"] <= 5, "failed attempts count, and nothing is asked twice"
