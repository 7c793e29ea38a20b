"""Rows are derived from the events: rewriting them changes no correct row and repairs the wrong ones."""

from __future__ import annotations

import pytest
from django.forms.models import model_to_dict

from agents.events import NewEvent
from agents.payloads import NoteAdded
from tests.unit.webapp.cast import PROGRAM, SOURCE
from verifier.jobs import JobResult, VerifyJob
from verifier.report import CLOCK, Comparison, Environment, Interval, Protection, Report, Timing
from verifier.source import sha256
from webapp.fleet.models import Device
from webapp.knowledge import learned
from webapp.leaderboard import recording
from webapp.llm import calls
from webapp.review import standing
from webapp.runs import artefacts
from webapp.runs.headline import headline_of
from webapp.runs.models import Candidate, Run, Verification
from webapp.runs.trace.append import append
from webapp.runs.trace.parts import PARTS, Part, register
from webapp.runs.trace.projection import rebuild
from webapp.runs.workers import handover
from webapp.runs.workers.handover import Claim


def report(tier: str, ratio: float) -> Report:
    def against(baseline: str, ratio: float) -> Comparison:
        speedup = Interval(ratio=ratio, low=ratio - 0.1, high=ratio + 0.1)
        samples = [[1.0, 1.1], [1.0, 1.2]]
        return Comparison(
            baseline=baseline, speedup=speedup, program_ms=1.0, baseline_ms=ratio, blocks=2, program_samples_ms=samples, baseline_samples_ms=samples
        )

    comparisons = [against("eager", ratio), *([against("compile", ratio / 2)] if tier == "full" else [])]
    return Report(
        task=sha256(SOURCE),
        program=sha256(PROGRAM),
        tier=tier,
        precision="fp32-strict",
        mode="train",
        status="passed",
        environment=Environment(device="cpu", device_name="A CPU", device_model="cpu-2c", torch="2.13.0", python="3.11", compiler="g++ 12"),
        protection=Protection(sandbox="bubblewrap", layers=["seccomp"]),
        timing=Timing(program_ms=1.0, bounded=False, clock_agrees=True, clock=CLOCK, round_trip_ms=0.01, comparisons=comparisons),
        faster=True,
        program_class="custom",
        own_share=0.9,
        flags=["trivial"],
    )


@pytest.fixture
def worked(run) -> Run:
    """Creates a run as its writers leave it: two candidates, one failed and two passed verifications, one of which a second verifier repeated."""
    device = Device.objects.create(worker="w-cpu", kind="cpu", device="cpu", name="A CPU", model="cpu-2c", queue="verify.cpu")
    Run.objects.filter(pk=run.pk).update(lease_epoch=1)
    program = artefacts.put(run.team_id, PROGRAM.encode(), "text/x-python", "program.py").model_dump()
    started = {"task": {"sha": sha256(SOURCE), "name": "softmax"}, "workflow": "stitch", "device": "cpu", "precision": "tf32"}
    append(run.pk, [NewEvent(kind="run.started", payload=started)], epoch=1)
    for number, tier, result in [
        (1, "quick", JobResult(error="the disk is full")),
        (2, "full", JobResult(report=report("full", 3.0), timeline=b"timeline")),
        (2, "quick", JobResult(report=report("quick", 2.0))),
    ]:
        proposed = {
            "candidate": number, "parent": None if number == 1 else 1, "title": f"Candidate {number}", "step": "s", "program": program,
            "sha": program["sha"], "changes": "less traffic", "strategy": "fuse",
        }  # fmt: skip
        append(run.pk, [NewEvent(kind="candidate.proposed", span="step-1", payload=proposed)], epoch=1)
        job = VerifyJob(task_source=SOURCE, program_source=PROGRAM, tier=tier)
        key = f"step-1#{number}{tier}"
        claim = Claim(handover.ask(run.pk, job, key=key, span="step-1", candidate=number, queue="verify.cpu", epoch=1), 1, 0)
        handover.start(claim, device)
        if tier == "quick":
            handover.verifier_died(claim)
            claim = Claim(claim.verification, 2, 1)
            handover.start(claim, device)
        handover.finish(claim, result)
    attached = {
        "candidate": 2,
        "tool": "torch-profiler",
        "timeline": artefacts.put(run.team_id, b"t", "application/x-stitchwork-timeline").model_dump(),
    }
    spent = {"spent": {"candidates": 2}, "limits": {}}
    ended = {"outcome": "improved", "reason": "done", "best": 2, "speedup": {"ratio": 3.0, "low": 2.9, "high": 3.1}}
    append(
        run.pk,
        [
            NewEvent(kind="profile.attached", payload=attached),
            NewEvent(kind="run.paused", payload={"reason": ""}),
            NewEvent(kind="run.resumed", payload={"reason": ""}),
            NewEvent(kind="budget.updated", payload=spent),
            NewEvent(kind="run.finished", payload=ended),
        ],
        epoch=1,
    )
    return Run.objects.get(pk=run.pk)


def rows(run: Run) -> dict:
    def plain(objects) -> list[dict]:
        return [{name: value for name, value in model_to_dict(row).items() if name != "id"} for row in objects]

    candidates = plain(Candidate.objects.filter(run=run).order_by("number"))
    verifications = plain(Verification.objects.filter(run=run).order_by("key"))
    return {"run": plain([Run.objects.get(pk=run.pk)]), "candidates": candidates, "verifications": verifications}


def test_what_the_rows_say(worked):
    assert (worked.state, worked.outcome, worked.best_candidate, worked.precision) == ("finished", "improved", 2, "tf32")
    assert worked.speedup["low"] == 2.9 and worked.spent == {"candidates": 2}
    assert worked.started_at and worked.finished_at
    assert (worked.headline, worked.gain) == (headline_of(worked).outcome, headline_of(worked).first.ratio)
    first, second = Candidate.objects.filter(run=worked).order_by("number")
    assert first.verification.status == "infrastructure_error" and first.verification.attempt == 2
    assert second.verification.tier == "full"  # the quick one came later and does not take precedence
    assert second.timeline is not None and second.parent_number == 1
    verdict = second.verification
    assert (verdict.speedup, verdict.speedup_low, verdict.best_baseline, verdict.best_baseline_speedup) == (3.0, 2.9, "compile", 1.5)
    assert (verdict.device_model, verdict.program_class, verdict.own_share, verdict.flags) == ("cpu-2c", "custom", 0.9, ["trivial"])


def test_rebuilding_changes_nothing(worked):
    before = rows(worked)
    rebuild(worked.pk)
    assert rows(worked) == before


def test_rebuilding_mends(worked):
    before = rows(worked)
    Candidate.objects.filter(run=worked, number=1).delete()
    Run.objects.filter(pk=worked.pk).update(outcome="failed", best_candidate=None, state="running")
    Verification.objects.filter(run=worked).update(status="passed", speedup=99, state="queued")
    rebuild(worked.pk)
    assert rows(worked) == before


def test_apps_keep_their_part_of_a_run(run):
    heard: list[str] = []
    part = Part(forget=lambda run: heard.append("forget"), restore=lambda run: heard.append("restore"))
    part.rows.on(NoteAdded)(lambda run, event, p: heard.append(p.text))
    register(part)
    try:
        append(run.pk, [NewEvent.of(NoteAdded(text="one")), NewEvent.of(NoteAdded(text="two"))])
        assert heard == ["one", "two"]
        rebuild(run.pk)
        assert heard[2:] == ["forget", "one", "two", "restore"]
    finally:
        PARTS.remove(part)


def test_each_app_has_registered_its_part():
    assert all(module.PART in PARTS for module in (calls, learned, recording, standing))
