"""The payload of each kind of event. There is one model per kind, and the fields are described only here.

Writers build these models, so an undefined field is a type error. Readers get them from `Event.body`. A trace keeps the JSON as it was written,
including extra keys. The tables in docs/reference/events.md and the types in static/js/run/events.js are generated from these models with `python -m
agents.reference`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel

from agents.kinds import PAYLOADS as PAYLOADS
from agents.kinds import Amounts as Amounts
from agents.kinds import Limits as Limits
from agents.kinds import Number as Number
from agents.kinds import Part, event, says
from agents.kinds import Payload as Payload
from agents.kinds import read as read
from verifier.report import Interval


class ArtefactRef(BaseModel):
    """Content-addressed bytes, stored and read with `put` and `get`."""

    sha: Annotated[str, says("its name in the store")]
    media_type: Annotated[str, says('such as "text/x-python", "application/json" or "application/x-stitchwork-timeline"')] = ""
    bytes: Annotated[int, says("its size")] = 0
    name: Annotated[str, says("a human-readable file name")] = ""


def artefact(ref: ArtefactRef | None) -> str:
    """The artefact's hash. Raises `ValueError` if the event does not name an artefact."""
    if ref is None:
        raise ValueError("the event names no artefact")
    return ref.sha


class Keyed(Payload):
    key: Annotated[str, says("journal key of the effect, `SPAN#n`")]

    @property
    def effect(self) -> str:
        return self.key


# The run


class TaskRef(Part):
    sha: Annotated[str, says("hash of its source")] = ""
    name: Annotated[str, says("the task's name")] = ""


class Chosen(Payload):
    """All fields of `agents.settings.Settings`, as they were when the run began."""

    workflow: Annotated[str, says("name of the workflow")] = ""
    planner: Annotated[str, says('"built-in", or a profile\'s name')] = ""
    coder: Annotated[str, says('"built-in", or a profile\'s name')] = ""
    coder_mode: Annotated[str, says('"one" or "frontend+mid-end"')] = ""
    judge: Annotated[str, says("the Verifier's agent: \"built-in\", or a profile's name")] = ""
    first_program: Annotated[str, says('"coder", or "built-in": the compiler\'s program is the first candidate')] = ""
    language: Annotated[str | None, says('"cuda", "triton" or "cpp"; null: the default of the device')] = None
    device: Annotated[str, says('"cpu", "cuda" or one device, such as "cuda:0"')] = ""
    precision: Annotated[str, says('such as "fp32-strict"')] = ""
    mode: Annotated[str, says('"train" or "eval"')] = ""
    target: Annotated[Number | None, says("lower bound of the speedup against eager at which the run stops")] = None
    tier: Annotated[str, says('the tier of workflow "verify"')] = ""
    workers: Annotated[int | None, says("number of programs written concurrently")] = None
    profiles: Annotated[str, says('"all", "winner" or "none"')] = ""
    winner: Annotated[str, says('"fastest" or "own-kernels"')] = ""
    review_plan: Annotated[bool, says("whether a person reviews the plan first")] = False
    budget: Annotated[Limits, says("limits by unit: candidates, calls, tokens, dollars, verifier_seconds, seconds")] = {}
    seed: Annotated[int, says("seed of all random choices")] = 0


@event("run.started", "the start of the run", shown="run: running")
class RunStarted(Chosen):
    """The run begins with these settings."""

    task: Annotated[TaskRef, says("the task")] = TaskRef()
    source: Annotated[ArtefactRef | None, says("the task's source")] = None
    program: Annotated[ArtefactRef | None, says('a person\'s own program, for workflow "verify"')] = None


@event("run.paused", "a pause", shown="run: paused", in_order=False)
class RunPaused(Payload):
    """The run is paused. `kind` gives the reason if no person paused it.

    "configuration", "refused", "too-long", "busy", "unreachable" and "protocol" mean that a model did not answer. "review": the plan is waiting for a
    person to read it. "asked": a request in the run's directory is waiting for its reply. "device": the next step needs a device that this host does
    not have.
    """

    reason: Annotated[str, says("a sentence")] = ""
    kind_: Annotated[str, says("what the run is waiting for; empty if a person paused it", "kind")] = ""
    hint: Annotated[str, says("what to do about it")] = ""
    profile: Annotated[str, says("profile of the model that did not answer")] = ""
    key: Annotated[str, says('journal key of the pending exchange ("asked")')] = ""
    request: Annotated[str, says('its id in the mailbox ("asked")')] = ""


@event("run.resumed", "the resumption", shown="run: running", in_order=False)
class RunResumed(Payload):
    """The run continues after a pause or an interruption."""

    reason: Annotated[str, says("who resumed it, or that it had been interrupted")] = ""


class Origin(Part):
    run: Annotated[str, says("the parent's id")] = ""
    seq: Annotated[int, says("the last inherited event")] = 0


@event("run.forked", "the fork", shown="run: running, limits", in_order=False)
class RunForked(Payload):
    """All events before this one belong to another run; the settings given here apply from now on."""

    origin: Annotated[Origin, says("the parent run", "from")] = Origin()
    asked: Annotated[int, says("the event that the person selected")] = 0
    changed: Annotated[dict[str, Any], says("the settings that differ from the parent's")] = {}
    settings: Annotated[dict[str, Any], says("all settings, as in `run.started`")] = {}
    by: Annotated[str, says("who forked it")] = ""


@event("run.finished", "the end of the run", shown="run: finished")
class RunFinished(Payload):
    """The run has ended."""

    outcome: Annotated[str, says('"improved", "matched", "failed", "cancelled", "out_of_budget" or "inconclusive"')]
    reason: Annotated[str, says("a sentence")] = ""
    best: Annotated[int | None, says("number of the best candidate")] = None
    speedup: Annotated[Interval | None, says("speedup of the best candidate over eager, confirmed in tier full")] = None


@event("span.opened", "the start of a step", ("span",))
class SpanOpened(Payload):
    """A span of work begins; the event's `span` is its path."""

    title: Annotated[str, says("the subject of the span")] = ""


@event("span.closed", "the end of a step", ("span",))
class SpanClosed(Payload):
    """A span of work has ended."""

    status: Annotated[str, says('"ok", "failed" or "skipped"')] = "ok"
    seconds: Annotated[Number | None, says("duration without pauses; null if the end of the run closed it")] = None
    summary: Annotated[str, says("the result")] = ""


# Models


class Exchange(Keyed):
    profile: Annotated[str, says("name of the model's profile")] = ""
    purpose: Annotated[str, says('which prompt, such as "coder/repair"')] = ""


@event("llm.requested", "a request to a model", ("call",), in_order=False)
class LlmRequested(Exchange):
    """A request is sent to a model. After an interruption, the same request may be sent again under its key."""

    request: Annotated[ArtefactRef | None, says("an `agents.llm.messages.Request`")] = None
    estimate: Annotated[Amounts, says("calls, tokens and dollars reserved until the reply arrives")] = {}
    notes: Annotated[list[int], says("seqs of the notes included in the request")] = []


class Ended(Exchange):
    attempts: Annotated[int, says("number of requests sent")] = 0
    spent: Annotated[Amounts, says("amounts charged to the budget; estimated from the number of characters if the server reports no counts")] = {}


class Usage(Part):
    input_tokens: Annotated[int, says("tokens of the request")] = 0
    output_tokens: Annotated[int, says("tokens of the reply")] = 0


@event("llm.completed", "a model's answer", ("call",), shown="run: usage by profile and role", in_order=False)
class LlmCompleted(Ended):
    """A model has answered."""

    attempts: Annotated[int, says("number of requests sent")] = 1
    model: Annotated[str, says("the server's name for the model")] = ""
    finish: Annotated[str, says("why the reply ended")] = "stop"
    usage: Annotated[Usage | None, says("tokens, and any further counts from the server")] = None
    counted: Annotated[str, says('who counted the tokens: "server", "tokenizer", or "estimated" from the text')] = ""
    dollars: Annotated[Number | None, says("price; null if unknown")] = None
    seconds: Annotated[Number | None, says("time until the reply was complete")] = None
    reply: Annotated[ArtefactRef | None, says("a `Reply` without its reasoning")] = None
    reasoning: Annotated[ArtefactRef | None, says("the reasoning as text; absent if there is none")] = None


@event("llm.failed", "a failed request to a model", ("call", "error"), shown="run: usage", in_order=False)
class LlmFailed(Ended):
    """A model did not answer. The run pauses, and later sends the request again under the same key."""

    role: Annotated[str, says("the agent that sent the request")] = ""
    kind_: Annotated[str, says("what went wrong, as in `run.paused`", "kind")] = ""
    message: Annotated[str, says("a sentence")] = ""
    hint: Annotated[str, says("what to do about it")] = ""


# What is said


class Message(Payload):
    message: Annotated[str, says("the message's journal key; for a model's reply, the key of its exchange, which `llm.completed` ends")] = ""
    characters: Annotated[int | None, says("count for the whole text if a page receives only its beginning; never in a trace")] = None
    newlines: Annotated[int | None, says("count for the whole text if a page receives only its beginning; never in a trace")] = None

    @property
    def effect(self) -> str:
        return self.message


@event("message.delta", "a message", ("message",), in_order=False)
class MessageDelta(Message):
    """A piece of a message that is still being written. If it begins before the end of the text that a reader already has, it replaces the text from
    that position on."""

    offset: Annotated[int, says("offset of the piece, in characters")] = 0
    text: Annotated[str, says("the piece")] = ""


@event("message.completed", "a message", ("message",))
class MessageCompleted(Message):
    """A message is complete."""

    text: Annotated[str | None, says("the whole text; absent if it is an artefact")] = None
    artefact: Annotated[ArtefactRef | None, says("the text, if it is too long for an event")] = None


@event("note.added", "a note", ("note",), in_order=False)
class NoteAdded(Payload):
    """A person writes a note to the agents."""

    text: Annotated[str, says("the note")] = ""
    to: Annotated[str, says('"all", "planner", "coder" or "verifier"')] = "all"
    by: Annotated[str, says("who wrote it")] = ""


# Plans and programs


class PlanStep(Part):
    id: Annotated[str, says("name within the plan")] = ""
    title: Annotated[str, says("a few words")] = ""
    operators: Annotated[list[str], says("of the task's graph")] = []
    space: Annotated[str, says('"own kernel", "library" or "pytorch"')] = "own kernel"
    strategies: Annotated[list[str], says("names of the catalogue")] = []
    contract: Annotated[str, says("what must not change")] = ""
    expected: Annotated[Number | str | None, says("speedup, or text")] = None
    risk: Annotated[str, says("what may go wrong")] = ""
    reason: Annotated[str, says("why")] = ""
    floor_ms: Annotated[Number | None, says("minimum possible time, from the built-in Planner")] = None
    bound: Annotated[str, says('"memory", "compute" or "launch", from the built-in Planner')] = ""
    expected_ms: Annotated[Number | None, says("expected time, from the built-in Planner")] = None


class PlanPayload(Payload):
    summary: Annotated[str, says("a sentence")] = ""
    steps: Annotated[list[PlanStep], says("in order")] = []
    more: Annotated[int, says("number of steps that did not fit")] = 0
    floor_ms: Annotated[Number | None, says("minimum possible time of a call")] = None


@event("plan.proposed", "the plan", ("plan",))
class PlanProposed(PlanPayload):
    """The Planner's plan."""


@event("plan.edited", "the edited plan", ("plan",), in_order=False)
class PlanEdited(PlanPayload):
    """The plan after a person has edited it."""

    by: Annotated[str, says("who edited it")] = ""


@event("idea.proposed", "an idea", ("plan",))
class IdeaProposed(Payload):
    """A strategy for the whole program, independent of code."""

    situation: Annotated[str, says('"ideas": one of a list; "cross": combined from two; "align": what the survivor does; "tree": a node')] = ""
    idea: Annotated[int, says("number within the run, from 1; for a node, the number in its id")]
    parents: Annotated[list[int], says("ideas from which it was derived")] = []
    title: Annotated[str, says("a few words")] = ""
    text: Annotated[str, says("a paragraph")] = ""
    strategies: Annotated[list[str], says("names of the catalogue")] = []
    expected: Annotated[Number | None, says("speedup over eager; for a node, over its parent's program")] = None
    candidate: Annotated[int | None, says('the program of "align"')] = None


class TreeNode(Part):
    id: Annotated[str, says("name within the tree, such as n4")]
    parent: Annotated[str | None, says("id of the node to which it applies; null for the root, the task's own model")] = None
    title: Annotated[str, says("a few words, truncated if too long")] = ""
    strategies: Annotated[list[str], says("names of the catalogue")] = []
    state: Annotated[str, says('"open", "done" or "given up"')] = "open"
    promise: Annotated[Number | None, says("speedup over the parent's program that the node's author expects")] = None
    tries: Annotated[int, says("number of unsuccessful programs and replies")] = 0
    candidate: Annotated[int | None, says("number of its program")] = None
    level: Annotated[Number | None, says("speedup of its program over eager, for comparison; null if it has no program")] = None
    gain: Annotated[Number | None, says("measured speedup of its program over the parent's")] = None
    belief: Annotated[Interval | None, says("believed gain over the parent's program, with its 80 % interval")] = None
    before: Annotated[Interval | None, says("the belief before the attempt of this event; absent if the attempt did not change it")] = None
    predicted: Annotated[Interval | None, says("predicted gain of its last attempt; absent if it was not tried")] = None


class TreeMarks(Part):
    predictions: Annotated[int, says("number of attempts whose gain was predicted")] = 0
    within: Annotated[int, says("number of those that fell within the predicted interval")] = 0
    off: Annotated[Number | None, says("factor by which beliefs were off, as a geometric mean")] = None
    promises_off: Annotated[Number | None, says("factor by which the authors' promises were off")] = None


@event("tree.changed", "the tree", ("plan",))
class TreeChanged(Payload):
    """A complete decision tree, with the belief about every open node."""

    what: Annotated[str, says('"edited": a script edited it; "chosen": the next node to try was chosen; "learned": an attempt updated it')] = ""
    revision: Annotated[int, says("revision of the tree; a script names the revision to which it applies")] = 0
    node: Annotated[str, says("id of the node that was chosen or tried")] = ""
    reason: Annotated[str, says("a sentence")] = ""
    nodes: Annotated[list[TreeNode], says("nodes; each follows its parent")] = []
    more: Annotated[int, says("number of nodes that did not fit")] = 0
    left_out: Annotated[list[str], says("the parts of a script that were not carried out, one sentence each")] = []
    predicted: Annotated[Interval | None, says('"learned": predicted gain of the attempt')] = None
    came: Annotated[Number | None, says('"learned": measured gain of the attempt; 1 if no program was correct')] = None
    marks: Annotated[TreeMarks | None, says("accuracy of the run's predictions so far")] = None


@event("candidate.proposed", "a new candidate", ("candidate",), shown="candidate")
class CandidateProposed(Payload):
    """A program is recorded."""

    key: Annotated[str, says("journal key of the effect, `SPAN#n`")] = ""
    candidate: Annotated[int, says("number within the run, from 1")]
    parent: Annotated[int | None, says("number of its parent candidate")] = None
    title: Annotated[str, says("a few words")] = ""
    step: Annotated[str, says("id of the plan's step")] = ""
    changes: Annotated[str, says("a sentence")] = ""
    strategy: Annotated[str, says("names of the catalogue")] = ""
    sha: Annotated[str, says("hash of the program's source")] = ""
    program: Annotated[ArtefactRef | None, says("the program's source")] = None
    idea: Annotated[int | None, says("number of the idea that it implements; absent if there is none")] = None
    author: Annotated[str, says("who wrote it: a profile, with the server's name for its model; absent for the built-in Coder")] = ""
    way: Annotated[int | None, says("number of the search path (way) to which it belongs; absent if the workflow has only one")] = None

    @property
    def effect(self) -> str:
        return self.key


# Verification


class Verification(Keyed):
    job: Annotated[str, says('"admit", "capture", "verify" or "profile"')] = ""
    candidate: Annotated[int | None, says("number of the candidate; null: the task")] = None
    verification: Annotated[str, says("id of the verification")] = ""
    attempt: Annotated[int, says("2 or more: repeated after an interruption")] = 1
    tier: Annotated[str | None, says('"quick" or "full"; null for jobs other than "verify"')] = None


@event("verification.queued", "a queued verification", ("verification",), shown="verification", in_order=False)
class VerificationQueued(Verification):
    """A job is sent to a verifier."""

    queue: Annotated[str, says("the queue in which it waits; absent if there is no queue")] = ""
    request: Annotated[ArtefactRef | None, says("the `Job` as JSON")] = None
    reason: Annotated[str, says("why it is repeated")] = ""


@event("verification.stage", "a verification in progress", ("verification",), in_order=False)
class VerificationStage(Keyed):
    """A stage of a job begins, makes progress, or has ended."""

    attempt: Annotated[int, says("attempt of the job")] = 1
    stage: Annotated[str, says('such as "build"')] = ""
    status: Annotated[str, says('"started", "passed", "failed", "skipped" or "progress"')] = ""
    seconds: Annotated[Number | None, says("duration")] = None
    detail: Annotated[str, says("a sentence")] = ""


@event("verification.finished", "a verdict", ("verification",), shown="verification, candidate", in_order=False)
class VerificationFinished(Verification):
    """A job has ended. For `job` "verify" the event has the verdict's figures; for "admit" it has `ok` and `flags`."""

    seconds: Annotated[Number | None, says("seconds of verifier time")] = None
    result: Annotated[ArtefactRef | None, says("the `JobResult` as JSON")] = None
    timeline: Annotated[ArtefactRef | None, says("the timeline; absent if none was recorded")] = None
    status: Annotated[str, says("status of the report")] = ""
    message: Annotated[str, says("what went wrong")] = ""
    speedup: Annotated[Interval | None, says("against eager")] = None
    gain: Annotated[Interval | None, says("speedup over its parent program, with both timed in alternation")] = None
    program_class: Annotated[str | None, says('whose kernels do the work: "custom", "mixed", ...')] = None
    own_share: Annotated[Number | None, says("share of GPU time in own kernels")] = None
    program_ms: Annotated[Number | None, says("time per call")] = None
    faster: Annotated[bool, says("whether the whole interval is above 1")] = False
    floor_fraction: Annotated[Number | None, says("minimum possible time divided by the measured time")] = None
    best_baseline: Annotated[str | None, says("the fastest measured baseline")] = None
    best_baseline_speedup: Annotated[Interval | Number | None, says("speedup over it; a bare number in early traces")] = None
    ok: Annotated[bool | None, says("whether the task is sound")] = None
    flags: Annotated[list[str], says('reasons why the task proves little, such as "trivial"')] = []


@event("profile.attached", "a profile", shown="candidate")
class ProfileAttached(Payload):
    """A profile was recorded."""

    candidate: Annotated[int | None, says("null: the reference")] = None
    tool: Annotated[str, says("which profiler")] = ""
    timeline: Annotated[ArtefactRef | None, says("the timeline; absent if none was recorded")] = None
    profile: Annotated[ArtefactRef | None, says("the `Profile` as JSON")] = None


@event("artefact.attached", "a file")
class ArtefactAttached(Payload):
    """A file that belongs to the run."""

    artefact: Annotated[ArtefactRef | None, says("the file")] = None
    title: Annotated[str, says("what it is")] = ""


# Judgement


class Figure(Part):
    figure: Annotated[str, says("what was measured")] = ""
    value: Annotated[Any, says("a number or a word")] = None
    unit: Annotated[str, says("unit of the value")] = ""
    means: Annotated[str, says("what the value implies")] = ""


class DocumentRef(Part):
    id: Annotated[str, says("id of the passage")] = ""
    title: Annotated[str, says("title of the document")] = ""


@event("diagnosis.made", "a diagnosis", ("diagnosis",))
class DiagnosisMade(Payload):
    """The cause that limits a program's speed."""

    candidate: Annotated[int | None, says("number of the candidate")] = None
    bottleneck: Annotated[str, says('"memory", "compute", "latency", "launch", "occupancy", "defect" or "none"')] = ""
    headroom: Annotated[Number | None, says("measured time divided by the minimum possible time")] = None
    host_share: Annotated[Number | None, says("share of a call in which the GPU waits for the host")] = None
    evidence: Annotated[list[Figure], says("the evidence for it")] = []
    method: Annotated[str | None, says("the strategy that addresses it")] = None
    text: Annotated[str, says("a paragraph")] = ""
    grade: Annotated[str, says("how good the evidence is")] = ""
    faults: Annotated[list[dict[str, Any]], says("causes, most expensive first")] = []
    methods: Annotated[list[str], says("applicable strategies of the catalogue, in order")] = []
    groups: Annotated[dict[str, Number], says("milliseconds per call in each step's kernels; absent if unknown")] = {}
    documents: Annotated[list[DocumentRef], says("passages that the diagnosis used; absent if there are none")] = []


@event("decision.made", "a decision", ("decision",))
class DecisionMade(Payload):
    """What will be done next, and why. A second event, with `of`, records the result."""

    of: Annotated[int | None, says("seq of the decision to which this result belongs; absent in the decision itself")] = None
    route: Annotated[str, says('"repair", "optimise", "next-step", "re-plan" or "stop"')] = ""
    reason: Annotated[str, says("a sentence")] = ""
    expected: Annotated[Number | None, says("speedup over the parent")] = None
    method: Annotated[str | None, says("strategy")] = None
    realised: Annotated[Number | None, says("resulting speedup over the parent")] = None


@event("way.changed", "a way", ("decision",))
class WayChanged(Payload):
    """The state of one of a workflow's concurrent branches (`way` in fields and names of events) changes.

    "begun": a new branch starts. "leads": its program is the fastest of all branches, according to one measurement that also timed the previous
    leader. "trails": it seemed faster, but that joint measurement showed that it is not. "migrated": it made no progress, and continues from another
    branch's program. "ended": it has nothing left to gain, or it lost too often.
    """

    way: Annotated[int, says("number within the run, from 1")]
    what: Annotated[str, says('"begun", "leads", "trails", "migrated" or "ended"')] = ""
    round: Annotated[int, says("round in which it happened, from 1")] = 0
    candidate: Annotated[int | None, says("the program from which it continues, with which it leads, or that it drops; null: the task's own")] = None
    of: Annotated[int | None, says("the way from whose program it continues; absent if the program is its own")] = None
    beside: Annotated[int | None, says('"leads" and "trails": the program of the previous leader')] = None
    speedup: Annotated[Interval | None, says("speedup over that program, with both timed in alternation in one measurement on one device")] = None
    idea: Annotated[int | None, says("number of the idea that it tries next; absent if there is none")] = None
    reason: Annotated[str, says("the rule, as a sentence")] = ""


# The engine


@event("effect.completed", "an internal step", in_order=False)
class EffectCompleted(Keyed):
    """The result of a small effect: the clock, a random number, a search.

    "budget.refused", {unit, spent, limit, wanted}: the budget did not allow a call. "notes", {agent, notes}: notes that were inserted directly into a
    prompt; the agent "built-in" is the compiler. "plan.reviewed", {edited: seq or null}.
    """

    name: Annotated[str, says("what was done")] = ""
    value: Annotated[Any, says("the result")] = None


@event("budget.updated", "the budget", shown="run: spent", in_order=False)
class BudgetUpdated(Payload):
    """The amounts that the run has spent so far."""

    spent: Annotated[Amounts, says("by unit: candidates, calls, tokens, dollars, verifier_seconds, seconds")] = {}
    limits: Annotated[Limits, says("by unit; null means no limit")] = {}


@event("control.requested", "a control request", in_order=False)
class ControlRequested(Payload):
    """A person asks to pause, resume or cancel the run, or to raise its budget."""

    action: Annotated[str, says('"pause", "resume", "cancel" or "raise-budget"')] = ""
    by: Annotated[str, says("who made the request")] = ""
    limits: Annotated[Limits, says('of "raise-budget", by unit')] = {}


@event("error", "an error", ("error",))
class Failure(Payload):
    """Something went wrong."""

    message: Annotated[str, says("a sentence")] = ""
    where: Annotated[str, says("the span, or the part of the program")] = ""
    kept: Annotated[str, says("what is preserved")] = ""
