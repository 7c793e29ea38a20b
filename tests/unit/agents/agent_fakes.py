"""A verifier client and roles that answer immediately and predictably, for testing what the engine does with their answers."""

from __future__ import annotations

import asyncio

from agents.diagnosis import Ceilings, diagnose
from agents.roles.situation import Advice, Edit, Plan, Roles
from agents.settings import Settings
from verifier.graph import Capture, Graph
from verifier.jobs import JobResult, KernelProfile, Profile, StageEvent
from verifier.report import Comparison, Environment, Interval, Protection, Report, Stage, Timing
from verifier.source import sha256
from verifier.task import Admission, TensorSpec

TASK = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.softmax(-1)\n"
CEILINGS = Ceilings("cpu", 20.0, 100.0, 1.0, 2)


def environment() -> Environment:
    return Environment(device="cpu", device_name="test", device_model="cpu-test", torch="2", python="3", compiler="g++")


def compared(baseline: str, program_ms: float, other_ms: float) -> Comparison:
    ratio = other_ms / program_ms
    return Comparison(
        baseline=baseline, speedup=Interval(ratio=ratio, low=ratio * 0.98, high=ratio * 1.02), program_ms=program_ms, baseline_ms=other_ms, blocks=1,
        program_samples_ms=[[1.0, 1.0]], baseline_samples_ms=[[1.0, 1.0]],
    )  # fmt: skip


def report(job, status: str = "passed", ratio: float = 1.5, message: str = "", rival: float | None = None) -> Report:
    """Builds a report. `rival`: the speedup over eager of the program timed alongside."""
    protection = Protection(sandbox="process", layers=[])
    timing = None
    if status == "passed":
        beside = compared("rival", 3.0 / ratio, 3.0 / rival) if rival else None
        comparisons = [compared("eager", 3.0 / ratio, 3.0)]
        timing = Timing(program_ms=3.0 / ratio, bounded=False, clock_agrees=True, round_trip_ms=0.01, comparisons=comparisons, rival=beside)
    return Report(
        task=sha256(job.task_source), program=sha256(job.program_source), tier=job.tier, precision=job.precision, mode=job.mode, status=status,
        message=message, environment=environment(), protection=protection, timing=timing, faster=status == "passed" and ratio > 1.03,
        program_class="custom" if status == "passed" else None, stages=[Stage(name="static", status="passed", seconds=0.1)],
    )  # fmt: skip


class FakeClient:
    """Runs programs that declare their own outcome: `# speed 2.0`, `# status build_failed`. `calls` counts the jobs that were started."""

    def __init__(self, admission_ok: bool = True):
        self.calls: list[str] = []
        self.admission_ok = admission_ok
        self.before = None  # async callable(job) that observes a job or delays it
        self.errors: list[str] = []  # returned for the next jobs

    async def ready(self) -> Environment:
        return environment()

    async def figures(self) -> dict[str, float]:
        return {}

    async def run(self, job, on_stage=None) -> JobResult:
        self.calls.append(job.kind)
        if self.before is not None:
            await self.before(job)
        if on_stage is not None:
            await on_stage(StageEvent(stage="static", status="started"))
            await on_stage(StageEvent(stage="static", status="passed", seconds=0.1))
        await asyncio.sleep(0)
        if self.errors:
            return JobResult(error=self.errors.pop(0))
        if job.kind == "admit":
            problems = [] if self.admission_ok else [{"line": 3, "message": "forward never returns", "hint": "end it"}]
            inputs = [TensorSpec(shape=(4, 8), dtype="float32")]
            return JobResult(admission=Admission(task=sha256(job.task_source), ok=self.admission_ok, problems=problems, inputs=inputs))
        if job.kind == "capture":
            graph = Graph(inputs=[], nodes=[], outputs=[])
            return JobResult(capture=Capture(task=sha256(job.task_source), mode=job.mode, graph=graph, flops=10**6, bytes_min=10**6))
        if job.kind == "profile":
            kernel = KernelProfile(name="softmax", own=True, calls=5, total_us=5.0, mean_us=1.0, share=0.9)
            profile = Profile(
                task=sha256(job.task_source), program=job.program_source and sha256(job.program_source), tool="torch-profiler",
                iterations=5, wall_us_per_iteration=3000.0, kernels=[kernel],
            )  # fmt: skip
            return JobResult(profile=profile, timeline=b"timeline of " + (job.program_source or "the reference").encode())
        lines, rival = said_by(job.program_source), said_by(job.rival_source or "")
        beside = float(rival.get("speed", 1.0)) if job.rival_source is not None else None
        return JobResult(report=report(job, lines.get("status", "passed"), float(lines.get("speed", 1.0)), lines.get("message", ""), beside))


def said_by(source: str) -> dict[str, str]:
    return dict(line[2:].split(" ", 1) for line in source.splitlines() if line.startswith("# "))


class FakeRoles:
    """Writes the given programs in order; the Verifier's route depends on whether another one is left."""

    name = "fake"

    def __init__(self, programs: list[str]):
        self.programs = programs

    def roles(self) -> Roles:
        return Roles(self, self, self)

    async def plan(self, span, situation) -> Plan:
        step = {"id": "g1", "title": "softmax", "operators": ["aten._softmax"], "space": "own kernel", "strategies": ["fuse-row-reduction"]}
        payload = {"summary": "1 group", "steps": [step], "floor_ms": 0.5}
        return Plan(payload, ("1 group, ", "floor 500 us"), floor_ms=0.5, bytes_min=10**7, flops=10**6)

    async def write(self, span, situation, parent, advice):
        number = len(situation.attempts)
        if number >= len(self.programs):
            return None
        return Edit(self.programs[number], f"program {number + 1}", "changed", ("wrote ", f"program {number + 1}"), "vectorise", "g1")

    async def advise(self, span, situation, attempt) -> Advice:
        plan = situation.plan
        found = diagnose(attempt.report, attempt.profile, CEILINGS, bytes_min=plan.bytes_min, flops=plan.flops, floor_ms=plan.floor_ms)
        if attempt.number >= len(self.programs):
            return Advice(found, "stop", "Nothing is left that the catalogue allows.")
        if not attempt.passed:
            return Advice(found, "repair", "It has to be right first.")
        return Advice(found, "optimise", "Wider loads should help.", "vectorise", 1.3)


def settings(**changes) -> Settings:
    return Settings(**changes)
