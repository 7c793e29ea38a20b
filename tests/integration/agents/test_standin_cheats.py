"""Tries some of the stand-in's cheats on a task outside the corpus. The verifier must refuse them there too. bench/standin_cheats.py runs all of
them."""

from __future__ import annotations

import asyncio

import pytest

from tests.standin.cheats import REFUSALS, cheat
from tests.unit.standin.prompts_of import TASK
from verifier.jobs import VerifyJob
from verifier.limits import Limits

NAMES = ("22_one_call_behind", "24_last_output_again", "63_string_pieces", "69_wrong_dtype")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_cheats_carried_over_to_another_task_are_refused(tmp_path):
    async def verdicts():
        from verifier.client import Verifier

        client = Verifier("cpu", tmp_path, limits=Limits(quick_timing=1))
        try:
            jobs = [VerifyJob(task_source=TASK, program_source=cheat(name, TASK, "cpu"), tier="quick") for name in NAMES]
            return {name: (await client.run(job)).report.status for name, job in zip(NAMES, jobs, strict=True)}
        finally:
            await client.close()

    found = asyncio.run(verdicts())
    assert all(status in REFUSALS for status in found.values()), found
