"""A run's rows as a pure function of its events, so that the contents of lists, headers and tables can always be rebuilt from the trace."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from pydantic import BaseModel, PrivateAttr, SerializeAsAny

from agents.events import ArtefactRef, Event, Projection, State
from agents.payloads import (
    BudgetUpdated,
    CandidateProposed,
    Chosen,
    DecisionMade,
    DiagnosisMade,
    Exchange,
    Failure,
    Limits,
    LlmCompleted,
    LlmFailed,
    Number,
    PlanEdited,
    PlanPayload,
    PlanProposed,
    ProfileAttached,
    RunFinished,
    RunForked,
    RunPaused,
    RunResumed,
    RunStarted,
    SpanClosed,
    SpanOpened,
    TaskRef,
    TreeChanged,
    Verification,
    VerificationFinished,
    VerificationQueued,
    VerificationStage,
    WayChanged,
)
from agents.ways import WayRow, belongs, change
from verifier.report import Interval


class VerificationRow(BaseModel):
    key: str
    verification: str = ""
    job: str
    span: str = ""
    candidate: int | None = None
    state: str = "queued"  # queued, running, finished
    attempt: int = 1
    status: str = ""  # status in its report
    message: str = ""
    tier: str = ""
    result: ArtefactRef | None = None
    timeline: ArtefactRef | None = None
    seconds: float | None = None


class CandidateRow(BaseModel):
    """One program. The verdict is the latest one, except that a full-tier verdict takes precedence over a quick one."""

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
    diagnosis: DiagnosisMade | None = None


class SpanRow(BaseModel):
    path: str
    title: str = ""
    opened_at: str = ""
    status: str | None = None  # None while it is open
    seconds: float | None = None
    summary: str = ""


class UsageRow(BaseModel):
    """One role's usage of one profile."""

    profile: str
    role: str
    calls: int = 0  # number of requests sent, including repeats
    exchanges: int = 0  # number of answered requests
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0  # number of exchanges without a token count
    estimated: int = 0  # number of exchanges whose tokens were estimated from the text length
    dollars: float | None = None  # None: the price is unknown
    seconds: float = 0.0


class Decision(BaseModel):
    """A decision, including its result once that is known (`made.realised`)."""

    seq: int
    made: DecisionMade


class Summary(BaseModel):
    run: str = ""
    state: State = "queued"
    outcome: str = ""
    reason: str = ""
    task: TaskRef = TaskRef()
    workflow: str = ""
    device: str = ""
    precision: str = ""
    mode: str = ""
    started: RunStarted = RunStarted()  # the start of the run, with the settings of the last fork
    started_at: str = ""
    finished_at: str = ""
    best: int | None = None
    speedup: Interval | None = None
    flags: list[str] = []
    plan: SerializeAsAny[PlanPayload] | None = None
    spans: list[SpanRow] = []
    candidates: list[CandidateRow] = []
    verifications: list[VerificationRow] = []
    decisions: list[Decision] = []
    ways: list[WayRow] = []  # the branches of a workflow that explores more than one at a time
    tree: TreeChanged | None = None  # the latest state of the decision tree
    reference_timeline: ArtefactRef | None = None
    reference_profile: ArtefactRef | None = None
    errors: list[str] = []
    usage: list[UsageRow] = []
    pause: RunPaused | None = None  # while the run is paused: the reason and what to do
    forked: RunForked | None = None  # the last fork
    inherited: dict[str, Number] = {}  # spent by the parent run; included in `spent`
    spent: dict[str, Number] = {}
    limits: Limits = {}
    last_seq: int = 0
    _spans: dict[str, SpanRow] = PrivateAttr(default_factory=dict)
    _jobs: dict[str, VerificationRow] = PrivateAttr(default_factory=dict)
    queued_at: dict[str, str] = {}  # time at which each job's current attempt was queued or began, keyed by effect key

    def candidate(self, number: int | None) -> CandidateRow | None:
        return next((c for c in self.candidates if c.number == number), None)

    def best_candidate(self) -> CandidateRow | None:
        """Returns the candidate that the run named as its best or, until then, the correct one with the highest lower bound."""
        if self.best is not None:
            return self.candidate(self.best)
        passed = [(c.speedup.low, c) for c in self.candidates if c.status == "passed" and c.speedup]
        return max(passed, key=itemgetter(0), default=(0.0, None))[1]

    def open_spans(self) -> list[str]:
        return [span.path for span in self.spans if span.status is None]


def project(events: Iterable[Event]) -> Summary:
    summary = Summary()
    for event in events:
        apply(summary, event)
    return summary


def apply(summary: Summary, event: Event) -> None:
    """Applies one more event to the summary. Raises `ValueError` if a payload does not match its kind."""
    summary.run, summary.last_seq = event.run, event.seq
    ROWS.take(summary, event)


ROWS: Projection[Summary, Event] = Projection()


@ROWS.on(RunStarted)
def _started(s: Summary, event: Event, p: RunStarted) -> None:
    s.state, s.started_at, s.started = "running", event.at, p
    s.task, s.limits = p.task, p.budget
    _chosen(s, p)


def _chosen(s: Summary, p: Chosen) -> None:
    s.workflow, s.device, s.precision, s.mode = p.workflow, p.device, p.precision, p.mode


@ROWS.on(RunFinished)
def _finished(s: Summary, event: Event, p: RunFinished) -> None:
    s.state, s.finished_at, s.pause = "finished", event.at, None
    s.outcome, s.reason, s.best, s.speedup = p.outcome, p.reason, p.best, p.speedup


@ROWS.on(RunPaused)
def _paused(s: Summary, event: Event, p: RunPaused) -> None:
    s.state, s.pause = "paused", p


@ROWS.on(RunResumed)
def _resumed(s: Summary, event: Event, p: RunResumed) -> None:
    s.state, s.pause = "running", None


@ROWS.on(RunForked)
def _forked(s: Summary, event: Event, p: RunForked) -> None:
    """Discards the parent's settings and limits, and the jobs that its verifiers had in progress."""
    s.state, s.pause, s.forked, s.inherited = "running", None, p, dict(s.spent)
    s.started = RunStarted.model_validate({**s.started.written(), **p.settings})
    s.limits = s.started.budget if "budget" in p.settings else s.limits
    _chosen(s, s.started)
    s.verifications = [row for row in s.verifications if row.state == "finished"]
    s._jobs = {row.key: row for row in s.verifications}


def _usage(s: Summary, p: Exchange, role: str) -> UsageRow:
    for row in s.usage:
        if (row.profile, row.role) == (p.profile, role):
            return row
    s.usage.append(UsageRow(profile=p.profile, role=role))
    return s.usage[-1]


@ROWS.on(LlmCompleted)
def _replied(s: Summary, event: Event, p: LlmCompleted) -> None:
    row = _usage(s, p, event.agent)
    row.calls += p.attempts
    row.exchanges += 1
    row.seconds = round(row.seconds + (p.seconds or 0.0), 3)
    if p.usage:
        row.input_tokens += p.usage.input_tokens
        row.output_tokens += p.usage.output_tokens
        row.estimated += p.counted == "estimated"
    else:
        row.uncounted += 1
    if p.dollars is not None:
        row.dollars = round((row.dollars or 0.0) + p.dollars, 6)


@ROWS.on(LlmFailed)
def _unanswered(s: Summary, event: Event, p: LlmFailed) -> None:
    row = _usage(s, p, p.role)
    row.calls += p.attempts
    row.failed += 1


@ROWS.on(SpanOpened)
def _span_opened(s: Summary, event: Event, p: SpanOpened) -> None:
    row = SpanRow(path=event.span, title=p.title, opened_at=event.at)
    s.spans.append(row)
    s._spans[event.span] = row


@ROWS.on(SpanClosed)
def _span_closed(s: Summary, event: Event, p: SpanClosed) -> None:
    row = s._spans.get(event.span)
    if row is not None:
        row.status, row.seconds, row.summary = p.status, p.seconds, p.summary


@ROWS.on(PlanProposed, PlanEdited)
def _plan(s: Summary, event: Event, p: PlanPayload) -> None:
    s.plan = p


@ROWS.on(TreeChanged)
def _tree(s: Summary, event: Event, p: TreeChanged) -> None:
    s.tree = p


@ROWS.on(CandidateProposed)
def _candidate(s: Summary, event: Event, p: CandidateProposed) -> None:
    row = CandidateRow(
        number=p.candidate, parent=p.parent, title=p.title, changes=p.changes, step=p.step, strategy=p.strategy, sha=p.sha, program=p.program,
        at=event.at, span=event.span,
    )  # fmt: skip
    s.candidates.append(row)
    belongs(s.ways, p)


@ROWS.on(WayChanged)
def _way(s: Summary, event: Event, p: WayChanged) -> None:
    change(s.ways, p)


def _job(s: Summary, event: Event, p: Verification | VerificationStage) -> VerificationRow:
    row = s._jobs.get(p.key)
    if row is None:
        row = VerificationRow(key=p.key, job="", span=event.span)
        if isinstance(p, Verification):
            row.job, row.candidate = p.job, p.candidate
        s._jobs[p.key] = row
        s.verifications.append(row)
    if isinstance(p, Verification):
        row.verification = p.verification or row.verification
    return row


@ROWS.on(VerificationQueued)
def _queued(s: Summary, event: Event, p: VerificationQueued) -> None:
    row = _job(s, event, p)
    row.tier = p.tier or row.tier
    s.queued_at[p.key] = event.at


@ROWS.on(VerificationStage)
def _stage(s: Summary, event: Event, p: VerificationStage) -> None:
    row = _job(s, event, p)
    if row.state == "queued" or p.attempt > row.attempt:
        s.queued_at[p.key] = event.at
    row.state, row.attempt = "running", max(row.attempt, p.attempt)


@ROWS.on(VerificationFinished)
def _verified(s: Summary, event: Event, p: VerificationFinished) -> None:
    row = _job(s, event, p)
    row.state, row.seconds = "finished", p.seconds
    row.status, row.message, row.tier = p.status, p.message, p.tier or ""
    row.result, row.timeline = p.result, p.timeline
    if p.job == "admit":
        s.flags = p.flags
    candidate = s.candidate(p.candidate)
    if candidate is None or p.job != "verify" or (candidate.tier == "full" and row.tier == "quick"):
        return
    candidate.verification, candidate.report = row.verification, row.result
    candidate.status, candidate.message, candidate.tier = row.status, row.message, row.tier
    candidate.speedup, candidate.best_baseline = p.speedup, p.best_baseline
    best = p.best_baseline_speedup
    candidate.best_baseline_speedup = best if isinstance(best, Interval) else None
    candidate.program_class, candidate.program_ms, candidate.faster = p.program_class, p.program_ms, p.faster


@ROWS.on(ProfileAttached)
def _profile(s: Summary, event: Event, p: ProfileAttached) -> None:
    candidate = s.candidate(p.candidate)
    if candidate is not None:
        candidate.timeline, candidate.profile = p.timeline, p.profile
    elif p.candidate is None:
        s.reference_timeline, s.reference_profile = p.timeline, p.profile


@ROWS.on(DiagnosisMade)
def _diagnosis(s: Summary, event: Event, p: DiagnosisMade) -> None:
    candidate = s.candidate(p.candidate)
    if candidate is not None:
        candidate.diagnosis = p


@ROWS.on(DecisionMade)
def _decision(s: Summary, event: Event, p: DecisionMade) -> None:
    if p.of is None:
        s.decisions.append(Decision(seq=event.seq, made=p))
    for decision in s.decisions:
        if decision.seq == p.of:
            decision.made = decision.made.model_copy(update={"realised": p.realised})


@ROWS.on(BudgetUpdated)
def _budget(s: Summary, event: Event, p: BudgetUpdated) -> None:
    said = p.model_fields_set
    s.spent = p.spent if "spent" in said else s.spent
    s.limits = p.limits if "limits" in said else s.limits


@ROWS.on(Failure)
def _error(s: Summary, event: Event, p: Failure) -> None:
    s.errors.append(p.message)
