"""Measures a diff end to end on the CPU device, with real queue rows, the real verifier, one hunk that matters and one that does not."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.webapp.cast import SOURCE
from tests.unit.webapp.diffs.programs import NEW, OLD, measured_run
from tests.unit.webapp.people import People
from tests.verifier_data import prepared
from verifier.client import Verifier
from webapp.diffs.effects import effect_of
from webapp.diffs.measured import plan, start
from webapp.diffs.measuring import execute
from webapp.diffs.models import MeasuredHunk
from webapp.diffs.sides import side_of_candidate
from webapp.runs.models import Run
from webapp.tasks.models import Task


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.django_db(transaction=True)
def test_what_each_hunk_is_worth(tmp_path):
    run = measured_run(People.make().alice)
    Task.objects.filter(pk=run.task_id).update(source=SOURCE.replace("16, 1024", "256, 4096"))
    run = Run.objects.get(pk=run.pk)
    old, new = side_of_candidate(run, 1), side_of_candidate(run, 2)
    assert (old.source, new.source) == (OLD, NEW)
    assert [hunk.status for hunk in plan(old, new).hunks] == ["same", "names", "", "", ""]
    measured = start(old, new, "quick", by=run.created_by)

    async def work() -> None:
        client = Verifier("cpu", prepared(tmp_path))  # the usual timing budget; with one second, intervals on a busy machine can span 0.6 to 5
        try:
            for _ in range(3):  # an inconclusive result on a busy machine is requested again, as a person would do
                rows = [row async for row in MeasuredHunk.objects.filter(measured=measured, state="queued")]
                for row in rows:
                    await execute(client, None, row.pk, row.attempt)
                await asyncio.to_thread(lambda: start(old, new, "quick", by=run.created_by))
        finally:
            await client.close()

    asyncio.run(work())
    rows = {row.number: row for row in measured.hunks.all()}
    said = {number: (row.status, row.message, effect_of(row).text) for number, row in rows.items()}
    assert rows[3].low > 1.5, said  # forty times as much work
    assert rows[0].low > 1.5, said
    assert rows[4].low < rows[3].low / 4 and rows[4].status == "passed", said  # a single copy, which can take half of a light task's time
    assert effect_of(rows[1]).text == "no effect" and "cannot be reverted alone" in effect_of(rows[2]).text
    assert rows[5].status == "passed" and rows[5].low < 1.2, said
    assert rows[3].result is not None
