"""A run's headline describes its last verdict: a busy host is named and the job retried, and no program is blamed or credited for it."""

from __future__ import annotations

import pytest

from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.run import Engine
from agents.workflows import measuring
from agents.workflows.outcome import outcome_of
from tests.engines import engine_of
from tests.unit.agents.agent_fakes import TASK, FakeClient, FakeRoles, report, settings
from verifier.jobs import KernelProfile, Profile, VerifyJob

pytestmark = pytest.mark.asyncio

BUSY = "# status inconclusive\n# message this host is busy: other work took the processors in 31% of the calls"
CLOCKS = "# status inconclusive\n# message of 0.1 ms that the program saves a call, 1.4 ms are spent outside the interval"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(measuring, "LATER_SECONDS", (0, 0))


def engine(client, programs=None, program_source=None, **changes) -> Engine:
    chosen, roles = settings(**changes), FakeRoles(programs or []).roles()
    journal = MemoryJournal()
    return engine_of(journal, LocalVerifier(journal, client, "cpu"), chosen, TASK, "softmax", program_source=program_source, roles=roles)


def quiet_after(client: FakeClient, verdicts: int) -> None:
    async def calmer(job):
        if job.kind == "verify" and client.calls.count("verify") > verdicts:
            job.program_source = job.program_source.replace("# status inconclusive", "# status passed\n# speed 2.0")

    client.before = calmer


async def test_a_busy_host_is_tried_again_later_and_then_named_instead_of_the_program():
    client = FakeClient()
    summary = await engine(client, workflow="verify", program_source=BUSY).execute()
    assert client.calls.count("verify") == 3 and summary.outcome == "inconclusive"
    assert "this host is busy" in summary.reason and "nothing wrong was found" in summary.reason and "did not pass" not in summary.reason


async def test_once_it_is_quieter_the_verdict_counts():
    client = FakeClient()
    quiet_after(client, 2)
    summary = await engine(client, workflow="verify", program_source=BUSY).execute()
    assert summary.outcome == "improved" and client.calls.count("verify") == 3


async def test_clocks_that_disagree_are_no_busy_host():
    client = FakeClient()
    summary = await engine(client, workflow="verify", program_source=CLOCKS).execute()
    assert summary.outcome == "failed" and client.calls.count("verify") == 2


async def test_a_search_on_a_busy_host_measures_its_last_program_again_at_the_end():
    client = FakeClient()
    quiet_after(client, 3)
    summary = await engine(client, [BUSY], workflow="stitch").execute()
    assert summary.outcome == "improved" and summary.best == 1
    never = await engine(FakeClient(), [BUSY], workflow="stitch").execute()
    assert never.outcome == "inconclusive" and "this host is busy" in never.reason and "no program passed" not in never.reason


async def test_the_only_program_of_a_busy_run_is_measured_again_too():
    client = FakeClient()
    quiet_after(client, 3)
    summary = await engine(client, [BUSY], workflow="stitch", budget={"candidates": 1}).execute()
    assert summary.outcome == "improved" and client.calls.count("verify") == 4


async def test_the_headline_names_the_shapes_that_were_tried():
    summary = await engine(FakeClient(), workflow="verify", program_source="# speed 2.0").execute()
    assert "Tried with inputs float32[4, 8]." in summary.reason
    searched = await engine(FakeClient(), ["# speed 2.0"], workflow="stitch").execute()
    assert "Tried with inputs float32[4, 8]." in searched.reason


async def test_the_task_handed_back_is_never_called_faster():
    program = "# speed 1.4\n" + TASK.replace("class Model(", "class ModelNew(")
    summary = await engine(FakeClient(), workflow="verify", program_source=program).execute()
    assert summary.outcome == "matched" and "the task's own code" in summary.reason
    searched = await engine(FakeClient(), [program], workflow="stitch").execute()
    assert searched.outcome == "matched" and "the task's own code" in searched.reason


def profile(*names: str, own: bool = False) -> Profile:
    kernels = [KernelProfile(name=name, own=own, calls=5, total_us=5.0, mean_us=1.0, share=0.5) for name in names]
    return Profile(task="t", program=None, tool="torch-profiler", iterations=5, wall_us_per_iteration=10.0, kernels=kernels)


@pytest.mark.parametrize(
    ("program", "own_share", "outcome"),
    [
        (profile("aten::addmm", "aten::relu"), 0.0, "matched"),
        (profile("aten::addmm"), 0.0, "improved"),
        (profile("aten::addmm", "aten::relu", own=True), 0.4, "improved"),
        (None, 0.0, "improved"),
    ],
)
async def test_the_same_operators_on_a_cpu_are_never_called_faster(program, own_share, outcome):
    job = VerifyJob(task_source=TASK, program_source="class ModelNew: ...", tier="full", precision="fp32-strict", mode="train")
    found = report(job, ratio=1.4).model_copy(update={"own_share": own_share})
    assert outcome_of(found, TASK, job.program_source, profile("aten::addmm", "aten::relu"), program)[0] == outcome
