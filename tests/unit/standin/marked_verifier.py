"""A verifier client that recognises the stand-in's mistakes by the marks that they leave in a program, and reports them as the real verifier does."""

from __future__ import annotations

import re

from tests.standin.spoiling import OFF
from tests.unit.agents.agent_fakes import FakeClient, report
from verifier.jobs import JobResult


class MarkedVerifier(FakeClient):
    async def run(self, job, on_stage=None) -> JobResult:
        if job.kind != "verify":
            return await super().run(job, on_stage)
        self.calls.append("verify")
        source = job.program_source
        undeclared = re.search(r"rows_of_tile_\d+", source)
        if "class Reference" in source:
            found = report(job, "wrong_result", message="output 0: 12 of 64 of the elements are off")
        elif undeclared:
            found = report(job, "build_failed", message=f"kernels.cpp:9:24: error: '{undeclared[0]}' was not declared in this scope")
        elif OFF[:-1] in source:
            found = report(job, "wrong_result", message="output 0: 64 of 64 of the elements are off")
        else:
            found = report(job, "passed", 1.3)
        return JobResult(report=found)
