"""Finished runs with real traces for the leaderboard's tests: everything in its tables comes from the projection."""

from __future__ import annotations

from agents.events import NewEvent
from verifier.jobs import JobResult
from verifier.report import CLOCK, Comparison, Environment, Interval, Protection, Report, Timing
from verifier.source import sha256
from webapp.accounts.models import User
from webapp.runs import artefacts
from webapp.runs.models import Run
from webapp.runs.trace.append import append
from webapp.tasks.models import Suite, Task

DEVICES = {"cuda": ("h200", "NVIDIA H200"), "cpu": ("cpu-x86_64-2c", "Example CPU")}
BASELINE_MS = {"eager": 3.0, "compile": 2.4, "cuda-graph": 2.0}


def source_of(name: str) -> str:
    return f"import torch.nn as nn\n\n\nclass Model(nn.Module):\n    name = {name!r}\n\n    def forward(self, x):\n        return x.exp()\n"


def make_task(user: User, name: str, suite: Suite | None = None) -> Task:
    source = source_of(name)
    defaults = {"name": name, "source": source, "suite": suite}
    return Task.objects.get_or_create(team=user.personal_team, sha=sha256(source), defaults=defaults)[0]


def make_suite(user: User, names: list[str], name: str = "KernelBench L3", slug: str = "kernelbench-level3") -> Suite:
    suite = Suite.objects.create(team=user.personal_team, name=name, slug=slug)
    for task in names:
        make_task(user, task, suite)
    return suite


def report_of(task: Task, ratio: float, *, device: str, spread: float, program_class: str, flags: list[str], clock: int) -> Report:
    """Builds a report. The speedup over eager is `ratio` ± `spread`; torch.compile is 1.25 times as fast as eager, and a CUDA graph 1.5 times."""

    def against(baseline: str) -> Comparison:
        value = ratio * BASELINE_MS[baseline] / BASELINE_MS["eager"]
        speedup = Interval(ratio=value, low=value * (1 - spread), high=value * (1 + spread))
        samples = [[1.0, 1.1], [1.0, 1.2]]
        return Comparison(
            baseline=baseline, speedup=speedup, program_ms=3.0 / ratio, baseline_ms=BASELINE_MS[baseline], blocks=2,
            program_samples_ms=samples, baseline_samples_ms=samples,
        )  # fmt: skip

    model, name = DEVICES[device]
    environment = Environment(device=device, device_name=name, device_model=model, torch="2.13.0", python="3.11", compiler="nvcc 13.0", cuda="13.0")
    return Report(
        task=task.sha, program=sha256(f"program of {task.name} {ratio}"), tier="full", precision="fp32-strict", mode="train", status="passed",
        environment=environment,
        protection=Protection(sandbox="bubblewrap", layers=["seccomp"]), faster=ratio * (1 - spread) > 1, program_class=program_class, own_share=0.9,
        timing=Timing(
            program_ms=3.0 / ratio, bounded=False, clock_agrees=True, clock=clock, round_trip_ms=0.01, comparisons=[against(b) for b in BASELINE_MS],
        ),
        flags=flags, floor_fraction=0.5, peak_bytes=1_000_000,
    )  # fmt: skip


def make_ranked(
    user: User,
    task: str = "softmax",
    ratio: float | None = 2.0,
    *,
    workflow: str = "stitch",
    llm: str = "built-in",
    device: str = "cuda",
    precision: str = "fp32-strict",
    spread: float = 0.05,
    program_class: str = "custom",
    flags: list[str] | None = None,
    dollars: float = 0.0,
    outcome: str | None = None,
    published: bool = False,
    clock: int = CLOCK,
) -> Run:
    """Creates a finished run of the user's team whose candidate 1 was confirmed at `ratio`. None means that no program passed, because the only
    verification gave a wrong result."""
    found = make_task(user, task)
    team = user.personal_team
    settings = {"planner": llm, "coder": llm, "judge": llm, "mode": "train", "device": device, "precision": precision, "workflow": workflow}
    run = Run.objects.create(
        team=team, task=found, title=task, workflow=workflow, settings=settings, device_kind=device, precision=precision, created_by=user,
        published=published,
    )  # fmt: skip
    program = artefacts.put(team.pk, f"class ModelNew: {task!r}, {ratio}\n".encode(), "text/x-python", "program.py").model_dump()
    report = report_of(found, ratio or 1.0, device=device, spread=spread, program_class=program_class, flags=flags or [], clock=clock)
    if ratio is None:
        report = report.model_copy(update={"status": "wrong_result", "timing": None, "faster": False, "program_class": None, "own_share": None})
    result = artefacts.put(team.pk, JobResult(report=report).model_dump_json().encode(), "application/json", "result.json").model_dump()
    speedup = {"ratio": ratio, "low": ratio * (1 - spread), "high": ratio * (1 + spread)} if ratio else None
    outcome = outcome or ("failed" if ratio is None else "improved" if speedup["low"] > 1 else "matched")
    proposed = {
        "candidate": 1,
        "parent": None,
        "title": "A program",
        "step": "s",
        "program": program,
        "sha": program["sha"],
        "changes": "",
        "strategy": "",
    }
    key = {"key": "confirm#1", "job": "verify", "candidate": 1}
    spent = {"calls": 3, "tokens": 1200, "dollars": dollars, "candidates": 1, "verifier_seconds": 5.0, "seconds": 60.0}
    started = {"task": {"sha": found.sha, "name": task}, "workflow": workflow, "device": device, "precision": precision}
    append(
        run.pk,
        [
            NewEvent(kind="run.started", payload=started),
            NewEvent(kind="candidate.proposed", payload=proposed),
            NewEvent(kind="verification.queued", payload=key | {"queue": f"verify.{device}"}),
            NewEvent(kind="verification.finished", payload=key | {"status": report.status, "tier": "full", "result": result, "flags": flags or []}),
            NewEvent(kind="budget.updated", payload={"spent": spent}),
            NewEvent(kind="run.finished", payload={"outcome": outcome, "reason": "as told", "best": 1 if ratio else None, "speedup": speedup}),
        ],
    )
    return Run.objects.get(pk=run.pk)
