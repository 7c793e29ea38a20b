"""A run's rows as a pure function of its events: what lists, headers and tables show can always be rebuilt from the trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, PrivateAttr

from agents.events import ArtefactRef, Event, State
from verifier.report import Interval


class VerificationRow(BaseModel):
    key: str
    verification: str = ""
    job: str
    span: str = ""
    candidate: int | None = None
    state: str = "queued"  # queued, running, finished
    attempt: int = 1
    status: str = ""  # of a report
    message: str = ""
    tier: str = ""
    result: ArtefactRef | None = None
    timeline: ArtefactRef | None = None
    seconds: float | None = None


class CandidateRow(BaseModel):
    """One program. The verdict is the latest one; tier full wins over quick."""

    number: int
    parent: int | None = None
    title: str = ""
    changes: str = ""
    step: str = ""
    strategy: str = ""
    sha: str = ""
    program: ArtefactRef | None = None
    at: str = ""
    span: str = ""
    verification: str = ""
    status: str = ""
    message: str = ""
    tier: str = ""
    speedup: Interval | None = None
    best_baseline: str | None = None
    best_baseline_speedup: Interval | None = None
    program_class: str | None = None
    program_ms: float | None = None
    faster: bool = False
    report: ArtefactRef | None = None  # the JobResult
    timeline: ArtefactRef | None = None
    profile: ArtefactRef | None = None
    diagnosis: dict[str, Any] | None = None


class SpanRow(BaseModel):
    path: str
    title: str = ""
    opened_at: str = ""
    status: str | None = None  # null while it is open
    seconds: float | None = None
    summary: str = ""


class UsageRow(BaseModel):
    """What one profile did for one role."""

    profile: str
    role: str
    calls: int = 0  # requests sent, repeated ones included
    exchanges: int = 0  # answered
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0  # exchanges whose tokens nobody counted
    estimated: int = 0  # exchanges whose tokens were estimated from the length of the text
    dollars: float | None = None  # null: no price is known
    seconds: float = 0.0


class Summary(BaseModel):
    run: str = ""
    state: State = "queued"
    outcome: str = ""
    reason: str = ""
    task: dict[str, Any] = {}
    workflow: str = ""
    device: str = ""
    precision: str = ""
    mode: str = ""
    started: dict[str, Any] = {}  # the payload of run.started
    started_at: str = ""
    finished_at: str = ""
    best: int | None = None
    speedup: Interval | None = None
    flags: list[str] = []
    plan: dict[str, Any] | None = None
    spans: list[SpanRow] = []
    candidates: list[CandidateRow] = []
    verifications: list[VerificationRow] = []
    decisions: list[dict[str, Any]] = []  # with `seq`, and `realised` once it is known
    reference_timeline: ArtefactRef | None = None
    reference_profile: ArtefactRef | None = None
    errors: list[str] = []
    usage: list[UsageRow] = []
    pause: dict[str, Any] = {}  # while it is paused: why, and what to do
    forked: dict[str, Any] = {}  # the payload of the last run.forked
    inherited: dict[str, float] = {}  # spent by the parent, and part of `spent`
    spent: dict[str, float] = {}
    limits: dict[str, float | None] = {}
    last_seq: int = 0
    _spans: dict[str, SpanRow] = PrivateAttr(default_factory=dict)
    _jobs: dict[str, VerificationRow] = PrivateAttr(default_factory=dict)
    queued_at: dict[str, str] = {}  # by key: when a job's present attempt was queued or began

    def candidate(self, number: int | None) -> CandidateRow | None:
        return next((c for c in self.candidates if c.number == number), None)

    def best_candidate(self) -> CandidateRow | None:
        """The one the run named; before it did, the correct one with the highest lower bound."""
        if self.best is not None:
            return self.candidate(self.best)
        passed = [c for c in self.candidates if c.status == "passed" and c.speedup]
        return max(passed, key=lambda c: c.speedup.low, default=None)

    def open_spans(self) -> list[str]:
        return [span.path for span in self.spans if span.status is None]


def project(events: Iterable[Event]) -> Summary:
    summary = Summary()
    for event in events:
        apply(summary, event)
    return summary


def apply(summary: Summary, event: Event) -> None:
    """Take one more event into the summary."""
    summary.run, summary.last_seq = event.run, event.seq
    handler = HANDLERS.get(event.kind)
    if handler is not None:
        handler(summary, event, event.payload)


def _started(s: Summary, event: Event, p: dict[str, Any]) -> None:
    s.state, s.started_at, s.started = "running", event.at, p
    s.task = p.get("task", {})
    for name in ("workflow", "device", "precision", "mode"):
        setattr(s, name, p.get(name, ""))
    s.limits = p.get("budget", {})


def _finished(s: Summary, event: Event, p: dict[str, Any]) -> None:
    s.state, s.finished_at, s.pause = "finished", event.at, {}
    s.outcome, s.reason, s.best = p["outcome"], p.get("reason", ""), p.get("best")
    s.speedup = Interval.model_validate(p["speedup"]) if p.get("speedup") else None


def _paused(s: Summary, event: Event, p: dict[str, Any]) -> None:
    s.state, s.pause = "paused", p


def _resumed(s: Summary, event: Event, p: dict[str, Any]) -> None:
    s.state, s.pause = "running", {}


def _forked(s: Summary, event: Event, p: dict[str, Any]) -> None:
    """The parent's settings and limits end here, and what its verifiers were in the middle of."""
    settings = p.get("settings", {})
    s.state, s.pause, s.forked, s.inherited = "running", {}, p, dict(s.spent)
    s.started = {**s.started, **settings}
    s.workflow, s.limits = settings.get("workflow", s.workflow), settings.get("budget", s.limits)
    s.verifications = [row for row in s.verifications if row.state == "finished"]
    s._jobs = {row.key: row for row in s.verifications}


def _usage(s: Summary, event: Event, p: dict[str, Any], role: str) -> UsageRow:
    for row in s.usage:
        if (row.profile, row.role) == (p.get("profile", ""), role):
            return row
    s.usage.append(UsageRow(profile=p.get("profile", ""), role=role))
    return s.usage[-1]


def _replied(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = _usage(s, event, p, event.agent)
    row.calls += p.get("attempts", 1)
    row.exchanges += 1
    row.seconds = round(row.seconds + (p.get("seconds") or 0.0), 3)
    if p.get("usage"):
        row.input_tokens += p["usage"].get("input_tokens", 0)
        row.output_tokens += p["usage"].get("output_tokens", 0)
        row.estimated += p.get("counted") == "estimated"
    else:
        row.uncounted += 1
    if p.get("dollars") is not None:
        row.dollars = round((row.dollars or 0.0) + p["dollars"], 6)


def _unanswered(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = _usage(s, event, p, p.get("role", ""))
    row.calls += p.get("attempts", 0)
    row.failed += 1


def _span_opened(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = SpanRow(path=event.span, title=p.get("title", ""), opened_at=event.at)
    s.spans.append(row)
    s._spans[event.span] = row


def _span_closed(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = s._spans.get(event.span)
    if row is not None:
        row.status, row.seconds, row.summary = p.get("status", "ok"), p.get("seconds"), p.get("summary", "")


def _plan(s: Summary, event: Event, p: dict[str, Any]) -> None:
    s.plan = p


def _candidate(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = CandidateRow(
        number=p["candidate"], parent=p.get("parent"), title=p.get("title", ""), changes=p.get("changes", ""), step=p.get("step", ""),
        strategy=p.get("strategy") or "", sha=p.get("sha", ""), program=p.get("program"), at=event.at, span=event.span,
    )  # fmt: skip
    s.candidates.append(row)


def _job(s: Summary, event: Event, p: dict[str, Any]) -> VerificationRow:
    key = p["key"]
    row = s._jobs.get(key)
    if row is None:
        row = VerificationRow(key=key, job=p.get("job", ""), span=event.span, candidate=p.get("candidate"))
        s._jobs[key] = row
        s.verifications.append(row)
    row.verification = p.get("verification") or row.verification
    return row


def _queued(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = _job(s, event, p)
    row.tier = p.get("tier") or row.tier
    s.queued_at[p["key"]] = event.at


def _stage(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = _job(s, event, p)
    attempt = p.get("attempt", 1)
    if row.state == "queued" or attempt > row.attempt:
        s.queued_at[p["key"]] = event.at
    row.state, row.attempt = "running", max(row.attempt, attempt)


def _verified(s: Summary, event: Event, p: dict[str, Any]) -> None:
    row = _job(s, event, p)
    row.state, row.seconds = "finished", p.get("seconds")
    row.status, row.message, row.tier = p.get("status") or "", p.get("message") or "", p.get("tier") or ""
    row.result = ArtefactRef.model_validate(p["result"]) if p.get("result") else None
    row.timeline = ArtefactRef.model_validate(p["timeline"]) if p.get("timeline") else None
    if p.get("job") == "admit":
        s.flags = p.get("flags") or []
    candidate = s.candidate(p.get("candidate"))
    if candidate is None or p.get("job") != "verify" or (candidate.tier == "full" and row.tier == "quick"):
        return
    candidate.verification, candidate.report = row.verification, row.result
    candidate.status, candidate.message, candidate.tier = row.status, row.message, row.tier
    candidate.speedup = Interval.model_validate(p["speedup"]) if p.get("speedup") else None
    candidate.best_baseline = p.get("best_baseline")
    best = p.get("best_baseline_speedup")
    candidate.best_baseline_speedup = Interval.model_validate(best) if isinstance(best, dict) else None
    candidate.program_class, candidate.program_ms = p.get("program_class"), p.get("program_ms")
    candidate.faster = bool(p.get("faster"))


def _profile(s: Summary, event: Event, p: dict[str, Any]) -> None:
    timeline = ArtefactRef.model_validate(p["timeline"]) if p.get("timeline") else None
    profile = ArtefactRef.model_validate(p["profile"]) if p.get("profile") else None
    candidate = s.candidate(p.get("candidate"))
    if candidate is not None:
        candidate.timeline, candidate.profile = timeline, profile
    elif p.get("candidate") is None:
        s.reference_timeline, s.reference_profile = timeline, profile


def _diagnosis(s: Summary, event: Event, p: dict[str, Any]) -> None:
    candidate = s.candidate(p.get("candidate"))
    if candidate is not None:
        candidate.diagnosis = p


def _decision(s: Summary, event: Event, p: dict[str, Any]) -> None:
    if p.get("of") is not None:
        for decision in s.decisions:
            if decision["seq"] == p["of"]:
                decision["realised"] = p.get("realised")
        return
    s.decisions.append({"seq": event.seq, **p})


def _budget(s: Summary, event: Event, p: dict[str, Any]) -> None:
    s.spent, s.limits = p.get("spent", s.spent), p.get("limits", s.limits)


def _error(s: Summary, event: Event, p: dict[str, Any]) -> None:
    s.errors.append(p.get("message", ""))


HANDLERS = {
    "run.started": _started,
    "run.finished": _finished,
    "run.paused": _paused,
    "run.resumed": _resumed,
    "run.forked": _forked,
    "llm.completed": _replied,
    "llm.failed": _unanswered,
    "span.opened": _span_opened,
    "span.closed": _span_closed,
    "plan.proposed": _plan,
    "plan.edited": _plan,
    "candidate.proposed": _candidate,
    "verification.queued": _queued,
    "verification.stage": _stage,
    "verification.finished": _verified,
    "profile.attached": _profile,
    "diagnosis.made": _diagnosis,
    "decision.made": _decision,
    "budget.updated": _budget,
    "error": _error,
}
