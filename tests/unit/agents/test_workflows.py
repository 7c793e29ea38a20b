"""All workflows reach a named outcome whatever happens, never overspend the budget, and continue identically after an interruption at any event."""

import asyncio
from collections import Counter

import pytest
from agent_fakes import FakeClient
from workflow_fakes import BEST, SearchRoles, engine

from agents.choices import workflows as choices
from agents.journal import MemoryJournal
from agents.settings import Settings
from agents.workflows import FUNCTIONS
from tests.slowness import quick

pytestmark = pytest.mark.asyncio
SEARCHES = [name for name in choices.SEARCHES if name != "stitch"]  # stitch has a separate test file
SIDE_BY_SIDE = choices.PARALLEL


def roles() -> SearchRoles:
    return SearchRoles(faults=(0, 1, 0, 4, 0, 9), first_fault=1)


async def test_every_workflow_of_the_settings_is_there():
    assert set(FUNCTIONS) == set(Settings.model_fields["workflow"].annotation.__args__)


@pytest.mark.parametrize("workflow", SEARCHES)
async def test_solves_the_small_landscape(workflow):
    summary = await engine(workflow, roles(), candidates=60).execute()
    assert summary.outcome == "improved" and summary.candidate(summary.best).tier == "full"
    assert summary.speedup.ratio >= 0.85 * BEST and summary.open_spans() == []
    assert [c.number for c in summary.candidates] == list(range(1, len(summary.candidates) + 1))


@pytest.mark.parametrize("workflow", SEARCHES)
async def test_no_program_passes(workflow):
    summary = await engine(workflow, SearchRoles(faults=(99,), first_fault=99), candidates=25).execute()
    assert summary.outcome in ("failed", "out_of_budget") and "no program passed" in summary.reason
    unlimited = await engine(workflow, SearchRoles(faults=(99,), first_fault=99, most_ideas=12)).execute()
    assert unlimited.outcome == "failed" and "no program passed" in unlimited.reason, "and it ends without a budget"


@pytest.mark.parametrize("workflow", SEARCHES)
async def test_nothing_to_write(workflow):
    summary = await engine(workflow, SearchRoles(dry=True), candidates=25).execute()
    assert summary.outcome == "failed" and summary.candidates == [] and summary.open_spans() == []


@pytest.mark.parametrize("workflow", SEARCHES)
async def test_the_budget_ends_it_anywhere(workflow):
    for candidates in range(1, 14):
        summary = await engine(workflow, roles(), candidates=candidates).execute()
        assert len(summary.candidates) <= candidates
        passed = [c for c in summary.candidates if c.status == "passed"]
        assert summary.outcome == ("improved" if any(c.speedup.low > 1 for c in passed) else "matched" if passed else summary.outcome)
        assert summary.outcome in ("improved", "matched", "out_of_budget", "failed")


@pytest.mark.parametrize("workflow", SEARCHES)
async def test_verifier_seconds_end_it_anywhere(workflow):
    for limit in (1e-9, 0.002, 0.01, 0.03):
        run = engine(workflow, roles(), candidates=20, budget={})
        run.ledger.limits = run.settings.budget.model_copy(update={"verifier_seconds": limit})
        summary = await run.execute()
        assert summary.outcome in ("improved", "matched", "out_of_budget", "failed") and summary.reason


@pytest.mark.parametrize("workflow", SEARCHES)
async def test_a_target_ends_it(workflow):
    summary = await engine(workflow, roles(), candidates=60, target=1.01).execute()
    all_of_it = await engine(workflow, roles(), candidates=60).execute()
    assert summary.outcome == "improved" and len(summary.candidates) <= len(all_of_it.candidates)


@pytest.mark.slow
@pytest.mark.parametrize("workflow", quick(SEARCHES, 2))
async def test_killed_after_any_event_it_resumes_to_the_same_end(workflow):
    whole, client = MemoryJournal(), FakeClient()
    first = await engine(workflow, roles(), whole, client, candidates=16).execute()
    calls = Counter(client.calls)
    for cut in range(1, len(whole.events), 11 if workflow in SIDE_BY_SIDE else 5):
        journal = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts)
        again = FakeClient()
        summary = await engine(workflow, roles(), journal, again, candidates=16).execute()
        done = Counter({"verify": 0, **Counter(job_of(whole, e.payload["key"]) for e in whole.events[:cut] if e.kind == "verification.finished")})
        assert summary.outcome == first.outcome and summary.speedup == first.speedup, cut
        assert Counter(c.sha for c in summary.candidates) == Counter(c.sha for c in first.candidates) or workflow in SIDE_BY_SIDE, cut
        assert len(summary.candidates) == len(first.candidates), cut
        assert Counter(again.calls) + done == calls or workflow in SIDE_BY_SIDE, f"cut at {cut}: what had ended is not done again"
        if workflow not in SIDE_BY_SIDE:
            assert [c.number for c in summary.candidates] == [c.number for c in first.candidates]


def job_of(journal, key) -> str:
    return next(e.payload["job"] for e in journal.events if e.kind == "verification.queued" and e.payload["key"] == key)


@pytest.mark.parametrize("workflow", SIDE_BY_SIDE)
async def test_workers_that_were_interrupted_keep_their_numbers(workflow):
    """Verdicts arrive in a different order after a run is resumed; recorded ones do not change."""
    whole = MemoryJournal()
    await engine(workflow, roles(), whole, candidates=30).execute()
    middle = len(whole.events) // 2

    class Later(FakeClient):
        async def run(self, job, on_stage=None):
            if job.kind == "verify":
                await asyncio.sleep(0.003 * (len(job.program_source) % 3))
            return await super().run(job, on_stage)

    journal = MemoryJournal(whole.run, whole.events[:middle], whole.artefacts)
    summary = await engine(workflow, roles(), journal, Later(), candidates=30).execute()
    assert journal.events[:middle] == whole.events[:middle]
    assert [c.number for c in summary.candidates] == list(range(1, len(summary.candidates) + 1))
    ideas = [e.payload["idea"] for e in journal.events if e.kind == "idea.proposed" and e.payload["situation"] != "align"]
    assert len(ideas) == len(set(ideas))
    assert summary.outcome == "improved"
