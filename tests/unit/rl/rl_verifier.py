"""A verifier whose programs declare their outcome: `# status crashed`, `# low 1.4`, `# wait`."""

from __future__ import annotations

import asyncio

from tests.unit.rl.rl_reports import failed, passed
from verifier.jobs import JobResult
from verifier.report import Environment, Report
from verifier.source import sha256

TASK = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.softmax(-1)\n"


def program(**said: object) -> str:
    lines = "".join(f"# {name} {value}\n" for name, value in said.items())
    return f"import torch\n{lines}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


class FakeVerifier:
    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.go = asyncio.Event()
        self.at_work = self.most_at_work = self.cancelled = 0
        self.closed = False

    async def ready(self) -> Environment:
        return Environment.model_validate(passed()["environment"] | {"device": "cpu", "device_name": "test", "device_model": "cpu-test"})

    async def figures(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        self.closed = True

    async def run(self, job, on_stage=None) -> JobResult:
        self.jobs.append(job.kind)
        if job.kind != "verify":
            return JobResult(error="not here")
        said = dict(line[2:].split(" ", 1) for line in job.program_source.splitlines() if line.startswith("# "))
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            if "wait" in said:
                await self.go.wait()
            await asyncio.sleep(float(said.get("seconds", 0)))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.at_work -= 1
        status = said.get("status", "passed")
        if status == "died":
            return JobResult(error="the judge process died twice")
        report = passed() if status == "passed" else failed(status, message=said.get("message", status))
        for one in report["timing"]["comparisons"] if "low" in said else []:
            low = float(said["low"])
            one["speedup"] = {"low": low, "ratio": low * 1.01, "high": low * 1.02}
        hashes = {"task": sha256(job.task_source), "program": sha256(job.program_source)}
        if said.get("of") == "another":
            hashes["program"] = sha256("another")
        return JobResult(report=Report.model_validate(report | hashes))
