// @ts-check
// Payloads of events, as types for editors. Generated from agents/payloads.py by `python -m agents.reference`: do not edit it.

/**
 * @typedef {Object} TaskRef
 * @property {string} [sha] - hash of its source
 * @property {string} [name] - the task's name
 */

/**
 * Content-addressed bytes, stored and read with `put` and `get`.
 * @typedef {Object} ArtefactRef
 * @property {string} sha - its name in the store
 * @property {string} [media_type] - such as "text/x-python", "application/json" or "application/x-stitchwork-timeline"
 * @property {number} [bytes] - its size
 * @property {string} [name] - a human-readable file name
 */

/**
 * @typedef {Object} Origin
 * @property {string} [run] - the parent's id
 * @property {number} [seq] - the last inherited event
 */

/**
 * A ratio with its 95 % interval (`verifier/timing/intervals.py`); above 1 means the program is faster.
 * @typedef {Object} Interval
 * @property {number} ratio
 * @property {number} low
 * @property {number} high
 */

/**
 * @typedef {Object} Usage
 * @property {number} [input_tokens] - tokens of the request
 * @property {number} [output_tokens] - tokens of the reply
 */

/**
 * @typedef {Object} PlanStep
 * @property {string} [id] - name within the plan
 * @property {string} [title] - a few words
 * @property {Array<string>} [operators] - of the task's graph
 * @property {string} [space] - "own kernel", "library" or "pytorch"
 * @property {Array<string>} [strategies] - names of the catalogue
 * @property {string} [contract] - what must not change
 * @property {number|string|null} [expected] - speedup, or text
 * @property {string} [risk] - what may go wrong
 * @property {string} [reason] - why
 * @property {number|null} [floor_ms] - minimum possible time, from the built-in Planner
 * @property {string} [bound] - "memory", "compute" or "launch", from the built-in Planner
 * @property {number|null} [expected_ms] - expected time, from the built-in Planner
 */

/**
 * @typedef {Object} TreeNode
 * @property {string} id - name within the tree, such as n4
 * @property {string|null} [parent] - id of the node to which it applies; null for the root, the task's own model
 * @property {string} [title] - a few words, truncated if too long
 * @property {Array<string>} [strategies] - names of the catalogue
 * @property {string} [state] - "open", "done" or "given up"
 * @property {number|null} [promise] - speedup over the parent's program that the node's author expects
 * @property {number} [tries] - number of unsuccessful programs and replies
 * @property {number|null} [candidate] - number of its program
 * @property {number|null} [level] - speedup of its program over eager, for comparison; null if it has no program
 * @property {number|null} [gain] - measured speedup of its program over the parent's
 * @property {Interval|null} [belief] - believed gain over the parent's program, with its 80 % interval
 * @property {Interval|null} [before] - the belief before the attempt of this event; absent if the attempt did not change it
 * @property {Interval|null} [predicted] - predicted gain of its last attempt; absent if it was not tried
 */

/**
 * @typedef {Object} TreeMarks
 * @property {number} [predictions] - number of attempts whose gain was predicted
 * @property {number} [within] - number of those that fell within the predicted interval
 * @property {number|null} [off] - factor by which beliefs were off, as a geometric mean
 * @property {number|null} [promises_off] - factor by which the authors' promises were off
 */

/**
 * @typedef {Object} Figure
 * @property {string} [figure] - what was measured
 * @property {any} [value] - a number or a word
 * @property {string} [unit] - unit of the value
 * @property {string} [means] - what the value implies
 */

/**
 * @typedef {Object} DocumentRef
 * @property {string} [id] - id of the passage
 * @property {string} [title] - title of the document
 */

/**
 * The run begins with these settings.
 * @typedef {Object} RunStarted
 * @property {string} [workflow] - name of the workflow
 * @property {string} [planner] - "built-in", or a profile's name
 * @property {string} [coder] - "built-in", or a profile's name
 * @property {string} [coder_mode] - "one" or "frontend+mid-end"
 * @property {string} [judge] - the Verifier's agent: "built-in", or a profile's name
 * @property {string} [first_program] - "coder", or "built-in": the compiler's program is the first candidate
 * @property {string|null} [language] - "cuda", "triton" or "cpp"; null: the default of the device
 * @property {string} [device] - "cpu", "cuda" or one device, such as "cuda:0"
 * @property {string} [precision] - such as "fp32-strict"
 * @property {string} [mode] - "train" or "eval"
 * @property {number|null} [target] - lower bound of the speedup against eager at which the run stops
 * @property {string} [tier] - the tier of workflow "verify"
 * @property {number|null} [workers] - number of programs written concurrently
 * @property {string} [profiles] - "all", "winner" or "none"
 * @property {string} [winner] - "fastest" or "own-kernels"
 * @property {boolean} [review_plan] - whether a person reviews the plan first
 * @property {Object<string, number|null>} [budget] - limits by unit: candidates, calls, tokens, dollars, verifier_seconds, seconds
 * @property {number} [seed] - seed of all random choices
 * @property {TaskRef} [task] - the task
 * @property {ArtefactRef|null} [source] - the task's source
 * @property {ArtefactRef|null} [program] - a person's own program, for workflow "verify"
 */

/**
 * The run is paused. `kind` gives the reason if no person paused it.
 *
 * "configuration", "refused", "too-long", "busy", "unreachable" and "protocol" mean that a model did not answer. "review": the plan is waiting for a
 * person to read it. "asked": a request in the run's directory is waiting for its reply. "device": the next step needs a device that this host does
 * not have.
 * @typedef {Object} RunPaused
 * @property {string} [reason] - a sentence
 * @property {string} [kind] - what the run is waiting for; empty if a person paused it
 * @property {string} [hint] - what to do about it
 * @property {string} [profile] - profile of the model that did not answer
 * @property {string} [key] - journal key of the pending exchange ("asked")
 * @property {string} [request] - its id in the mailbox ("asked")
 */

/**
 * The run continues after a pause or an interruption.
 * @typedef {Object} RunResumed
 * @property {string} [reason] - who resumed it, or that it had been interrupted
 */

/**
 * All events before this one belong to another run; the settings given here apply from now on.
 * @typedef {Object} RunForked
 * @property {Origin} [from] - the parent run
 * @property {number} [asked] - the event that the person selected
 * @property {Object<string, any>} [changed] - the settings that differ from the parent's
 * @property {Object<string, any>} [settings] - all settings, as in `run.started`
 * @property {string} [by] - who forked it
 */

/**
 * The run has ended.
 * @typedef {Object} RunFinished
 * @property {string} outcome - "improved", "matched", "failed", "cancelled", "out_of_budget" or "inconclusive"
 * @property {string} [reason] - a sentence
 * @property {number|null} [best] - number of the best candidate
 * @property {Interval|null} [speedup] - speedup of the best candidate over eager, confirmed in tier full
 */

/**
 * A span of work begins; the event's `span` is its path.
 * @typedef {Object} SpanOpened
 * @property {string} [title] - the subject of the span
 */

/**
 * A span of work has ended.
 * @typedef {Object} SpanClosed
 * @property {string} [status] - "ok", "failed" or "skipped"
 * @property {number|null} [seconds] - duration without pauses; null if the end of the run closed it
 * @property {string} [summary] - the result
 */

/**
 * A request is sent to a model. After an interruption, the same request may be sent again under its key.
 * @typedef {Object} LlmRequested
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [profile] - name of the model's profile
 * @property {string} [purpose] - which prompt, such as "coder/repair"
 * @property {ArtefactRef|null} [request] - an `agents.llm.messages.Request`
 * @property {Object<string, number>} [estimate] - calls, tokens and dollars reserved until the reply arrives
 * @property {Array<number>} [notes] - seqs of the notes included in the request
 */

/**
 * A model has answered.
 * @typedef {Object} LlmCompleted
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [profile] - name of the model's profile
 * @property {string} [purpose] - which prompt, such as "coder/repair"
 * @property {number} [attempts] - number of requests sent
 * @property {Object<string, number>} [spent] - amounts charged to the budget; estimated from the number of characters if the server reports no counts
 * @property {string} [model] - the server's name for the model
 * @property {string} [finish] - why the reply ended
 * @property {Usage|null} [usage] - tokens, and any further counts from the server
 * @property {string} [counted] - who counted the tokens: "server", "tokenizer", or "estimated" from the text
 * @property {number|null} [dollars] - price; null if unknown
 * @property {number|null} [seconds] - time until the reply was complete
 * @property {ArtefactRef|null} [reply] - a `Reply` without its reasoning
 * @property {ArtefactRef|null} [reasoning] - the reasoning as text; absent if there is none
 */

/**
 * A model did not answer. The run pauses, and later sends the request again under the same key.
 * @typedef {Object} LlmFailed
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [profile] - name of the model's profile
 * @property {string} [purpose] - which prompt, such as "coder/repair"
 * @property {number} [attempts] - number of requests sent
 * @property {Object<string, number>} [spent] - amounts charged to the budget; estimated from the number of characters if the server reports no counts
 * @property {string} [role] - the agent that sent the request
 * @property {string} [kind] - what went wrong, as in `run.paused`
 * @property {string} [message] - a sentence
 * @property {string} [hint] - what to do about it
 */

/**
 * A piece of a message that is still being written. If it begins before the end of the text that a reader already has, it replaces the text from
 * that position on.
 * @typedef {Object} MessageDelta
 * @property {string} [message] - the message's journal key; for a model's reply, the key of its exchange, which `llm.completed` ends
 * @property {number|null} [characters] - count for the whole text if a page receives only its beginning; never in a trace
 * @property {number|null} [newlines] - count for the whole text if a page receives only its beginning; never in a trace
 * @property {number} [offset] - offset of the piece, in characters
 * @property {string} [text] - the piece
 */

/**
 * A message is complete.
 * @typedef {Object} MessageCompleted
 * @property {string} [message] - the message's journal key; for a model's reply, the key of its exchange, which `llm.completed` ends
 * @property {number|null} [characters] - count for the whole text if a page receives only its beginning; never in a trace
 * @property {number|null} [newlines] - count for the whole text if a page receives only its beginning; never in a trace
 * @property {string|null} [text] - the whole text; absent if it is an artefact
 * @property {ArtefactRef|null} [artefact] - the text, if it is too long for an event
 */

/**
 * A person writes a note to the agents.
 * @typedef {Object} NoteAdded
 * @property {string} [text] - the note
 * @property {string} [to] - "all", "planner", "coder" or "verifier"
 * @property {string} [by] - who wrote it
 */

/**
 * The Planner's plan.
 * @typedef {Object} PlanProposed
 * @property {string} [summary] - a sentence
 * @property {Array<PlanStep>} [steps] - in order
 * @property {number} [more] - number of steps that did not fit
 * @property {number|null} [floor_ms] - minimum possible time of a call
 */

/**
 * The plan after a person has edited it.
 * @typedef {Object} PlanEdited
 * @property {string} [summary] - a sentence
 * @property {Array<PlanStep>} [steps] - in order
 * @property {number} [more] - number of steps that did not fit
 * @property {number|null} [floor_ms] - minimum possible time of a call
 * @property {string} [by] - who edited it
 */

/**
 * A strategy for the whole program, independent of code.
 * @typedef {Object} IdeaProposed
 * @property {string} [situation] - "ideas": one of a list; "cross": combined from two; "align": what the survivor does; "tree": a node
 * @property {number} idea - number within the run, from 1; for a node, the number in its id
 * @property {Array<number>} [parents] - ideas from which it was derived
 * @property {string} [title] - a few words
 * @property {string} [text] - a paragraph
 * @property {Array<string>} [strategies] - names of the catalogue
 * @property {number|null} [expected] - speedup over eager; for a node, over its parent's program
 * @property {number|null} [candidate] - the program of "align"
 */

/**
 * A complete decision tree, with the belief about every open node.
 * @typedef {Object} TreeChanged
 * @property {string} [what] - "edited": a script edited it; "chosen": the next node to try was chosen; "learned": an attempt updated it
 * @property {number} [revision] - revision of the tree; a script names the revision to which it applies
 * @property {string} [node] - id of the node that was chosen or tried
 * @property {string} [reason] - a sentence
 * @property {Array<TreeNode>} [nodes] - nodes; each follows its parent
 * @property {number} [more] - number of nodes that did not fit
 * @property {Array<string>} [left_out] - the parts of a script that were not carried out, one sentence each
 * @property {Interval|null} [predicted] - "learned": predicted gain of the attempt
 * @property {number|null} [came] - "learned": measured gain of the attempt; 1 if no program was correct
 * @property {TreeMarks|null} [marks] - accuracy of the run's predictions so far
 */

/**
 * A program is recorded.
 * @typedef {Object} CandidateProposed
 * @property {string} [key] - journal key of the effect, `SPAN#n`
 * @property {number} candidate - number within the run, from 1
 * @property {number|null} [parent] - number of its parent candidate
 * @property {string} [title] - a few words
 * @property {string} [step] - id of the plan's step
 * @property {string} [changes] - a sentence
 * @property {string} [strategy] - names of the catalogue
 * @property {string} [sha] - hash of the program's source
 * @property {ArtefactRef|null} [program] - the program's source
 * @property {number|null} [idea] - number of the idea that it implements; absent if there is none
 * @property {string} [author] - who wrote it: a profile, with the server's name for its model; absent for the built-in Coder
 * @property {number|null} [way] - number of the search path (way) to which it belongs; absent if the workflow has only one
 */

/**
 * A job is sent to a verifier.
 * @typedef {Object} VerificationQueued
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [job] - "admit", "capture", "verify" or "profile"
 * @property {number|null} [candidate] - number of the candidate; null: the task
 * @property {string} [verification] - id of the verification
 * @property {number} [attempt] - 2 or more: repeated after an interruption
 * @property {string|null} [tier] - "quick" or "full"; null for jobs other than "verify"
 * @property {string} [queue] - the queue in which it waits; absent if there is no queue
 * @property {ArtefactRef|null} [request] - the `Job` as JSON
 * @property {string} [reason] - why it is repeated
 */

/**
 * A stage of a job begins, makes progress, or has ended.
 * @typedef {Object} VerificationStage
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {number} [attempt] - attempt of the job
 * @property {string} [stage] - such as "build"
 * @property {string} [status] - "started", "passed", "failed", "skipped" or "progress"
 * @property {number|null} [seconds] - duration
 * @property {string} [detail] - a sentence
 */

/**
 * A job has ended. For `job` "verify" the event has the verdict's figures; for "admit" it has `ok` and `flags`.
 * @typedef {Object} VerificationFinished
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [job] - "admit", "capture", "verify" or "profile"
 * @property {number|null} [candidate] - number of the candidate; null: the task
 * @property {string} [verification] - id of the verification
 * @property {number} [attempt] - 2 or more: repeated after an interruption
 * @property {string|null} [tier] - "quick" or "full"; null for jobs other than "verify"
 * @property {number|null} [seconds] - seconds of verifier time
 * @property {ArtefactRef|null} [result] - the `JobResult` as JSON
 * @property {ArtefactRef|null} [timeline] - the timeline; absent if none was recorded
 * @property {string} [status] - status of the report
 * @property {string} [message] - what went wrong
 * @property {Interval|null} [speedup] - against eager
 * @property {Interval|null} [gain] - speedup over its parent program, with both timed in alternation
 * @property {string|null} [program_class] - whose kernels do the work: "custom", "mixed", ...
 * @property {number|null} [own_share] - share of GPU time in own kernels
 * @property {number|null} [program_ms] - time per call
 * @property {boolean} [faster] - whether the whole interval is above 1
 * @property {number|null} [floor_fraction] - minimum possible time divided by the measured time
 * @property {string|null} [best_baseline] - the fastest measured baseline
 * @property {Interval|number|null} [best_baseline_speedup] - speedup over it; a bare number in early traces
 * @property {boolean|null} [ok] - whether the task is sound
 * @property {Array<string>} [flags] - reasons why the task proves little, such as "trivial"
 */

/**
 * A profile was recorded.
 * @typedef {Object} ProfileAttached
 * @property {number|null} [candidate] - null: the reference
 * @property {string} [tool] - which profiler
 * @property {ArtefactRef|null} [timeline] - the timeline; absent if none was recorded
 * @property {ArtefactRef|null} [profile] - the `Profile` as JSON
 */

/**
 * A file that belongs to the run.
 * @typedef {Object} ArtefactAttached
 * @property {ArtefactRef|null} [artefact] - the file
 * @property {string} [title] - what it is
 */

/**
 * The cause that limits a program's speed.
 * @typedef {Object} DiagnosisMade
 * @property {number|null} [candidate] - number of the candidate
 * @property {string} [bottleneck] - "memory", "compute", "latency", "launch", "occupancy", "defect" or "none"
 * @property {number|null} [headroom] - measured time divided by the minimum possible time
 * @property {number|null} [host_share] - share of a call in which the GPU waits for the host
 * @property {Array<Figure>} [evidence] - the evidence for it
 * @property {string|null} [method] - the strategy that addresses it
 * @property {string} [text] - a paragraph
 * @property {string} [grade] - how good the evidence is
 * @property {Array<Object<string, any>>} [faults] - causes, most expensive first
 * @property {Array<string>} [methods] - applicable strategies of the catalogue, in order
 * @property {Object<string, number>} [groups] - milliseconds per call in each step's kernels; absent if unknown
 * @property {Array<DocumentRef>} [documents] - passages that the diagnosis used; absent if there are none
 */

/**
 * What will be done next, and why. A second event, with `of`, records the result.
 * @typedef {Object} DecisionMade
 * @property {number|null} [of] - seq of the decision to which this result belongs; absent in the decision itself
 * @property {string} [route] - "repair", "optimise", "next-step", "re-plan" or "stop"
 * @property {string} [reason] - a sentence
 * @property {number|null} [expected] - speedup over the parent
 * @property {string|null} [method] - strategy
 * @property {number|null} [realised] - resulting speedup over the parent
 */

/**
 * The state of one of a workflow's concurrent branches (`way` in fields and names of events) changes.
 *
 * "begun": a new branch starts. "leads": its program is the fastest of all branches, according to one measurement that also timed the previous
 * leader. "trails": it seemed faster, but that joint measurement showed that it is not. "migrated": it made no progress, and continues from another
 * branch's program. "ended": it has nothing left to gain, or it lost too often.
 * @typedef {Object} WayChanged
 * @property {number} way - number within the run, from 1
 * @property {string} [what] - "begun", "leads", "trails", "migrated" or "ended"
 * @property {number} [round] - round in which it happened, from 1
 * @property {number|null} [candidate] - the program from which it continues, with which it leads, or that it drops; null: the task's own
 * @property {number|null} [of] - the way from whose program it continues; absent if the program is its own
 * @property {number|null} [beside] - "leads" and "trails": the program of the previous leader
 * @property {Interval|null} [speedup] - speedup over that program, with both timed in alternation in one measurement on one device
 * @property {number|null} [idea] - number of the idea that it tries next; absent if there is none
 * @property {string} [reason] - the rule, as a sentence
 */

/**
 * The result of a small effect: the clock, a random number, a search.
 *
 * "budget.refused", {unit, spent, limit, wanted}: the budget did not allow a call. "notes", {agent, notes}: notes that were inserted directly into a
 * prompt; the agent "built-in" is the compiler. "plan.reviewed", {edited: seq or null}.
 * @typedef {Object} EffectCompleted
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [name] - what was done
 * @property {any} [value] - the result
 */

/**
 * The amounts that the run has spent so far.
 * @typedef {Object} BudgetUpdated
 * @property {Object<string, number>} [spent] - by unit: candidates, calls, tokens, dollars, verifier_seconds, seconds
 * @property {Object<string, number|null>} [limits] - by unit; null means no limit
 */

/**
 * A person asks to pause, resume or cancel the run, or to raise its budget.
 * @typedef {Object} ControlRequested
 * @property {string} [action] - "pause", "resume", "cancel" or "raise-budget"
 * @property {string} [by] - who made the request
 * @property {Object<string, number|null>} [limits] - of "raise-budget", by unit
 */

/**
 * Something went wrong.
 * @typedef {Object} Failure
 * @property {string} [message] - a sentence
 * @property {string} [where] - the span, or the part of the program
 * @property {string} [kept] - what is preserved
 */

/**
 * @typedef {{
 *   "run.started": RunStarted,
 *   "run.paused": RunPaused,
 *   "run.resumed": RunResumed,
 *   "run.forked": RunForked,
 *   "run.finished": RunFinished,
 *   "span.opened": SpanOpened,
 *   "span.closed": SpanClosed,
 *   "llm.requested": LlmRequested,
 *   "llm.completed": LlmCompleted,
 *   "llm.failed": LlmFailed,
 *   "message.delta": MessageDelta,
 *   "message.completed": MessageCompleted,
 *   "note.added": NoteAdded,
 *   "plan.proposed": PlanProposed,
 *   "plan.edited": PlanEdited,
 *   "idea.proposed": IdeaProposed,
 *   "tree.changed": TreeChanged,
 *   "candidate.proposed": CandidateProposed,
 *   "verification.queued": VerificationQueued,
 *   "verification.stage": VerificationStage,
 *   "verification.finished": VerificationFinished,
 *   "profile.attached": ProfileAttached,
 *   "artefact.attached": ArtefactAttached,
 *   "diagnosis.made": DiagnosisMade,
 *   "decision.made": DecisionMade,
 *   "way.changed": WayChanged,
 *   "effect.completed": EffectCompleted,
 *   "budget.updated": BudgetUpdated,
 *   "control.requested": ControlRequested,
 *   "error": Failure,
 * }} Payloads
 */

/** @typedef {{ [K in keyof Payloads]?: (state: any, event: any, payload: Payloads[K], changes: any) => void }} Folders how each kind of event changes the state */

export {};
