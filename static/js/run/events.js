// What events say, as types for editors. Made from agents/payloads.py by `python -m agents.reference`: do not edit it.

/**
 * @typedef {Object} TaskRef
 * @property {string} [sha] - hash of its source
 * @property {string} [name] - as people call it
 */

/**
 * Content-addressed bytes behind `put/get`.
 * @typedef {Object} ArtefactRef
 * @property {string} sha - its name in the store
 * @property {string} [media_type] - such as "text/x-python", "application/json" or "application/x-stitchwork-timeline"
 * @property {number} [bytes] - its size
 * @property {string} [name] - a file name for people
 */

/**
 * @typedef {Object} Origin
 * @property {string} [run] - the parent's id
 * @property {number} [seq] - its last event that was inherited
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
 * @property {string} [contract] - what must stay as it is
 * @property {number|string|null} [expected] - speedup, or words
 * @property {string} [risk] - what may go wrong
 * @property {string} [reason] - why
 * @property {number|null} [floor_ms] - least possible time, by the built-in Planner
 * @property {string} [bound] - "memory", "compute" or "launch", by the built-in Planner
 * @property {number|null} [expected_ms] - likely time, by the built-in Planner
 */

/**
 * @typedef {Object} TreeNode
 * @property {string} id - name within the tree, such as n4
 * @property {string|null} [parent] - id of the node that it is done to; null of the root, the task's own model
 * @property {string} [title] - a few words, cut where they are many
 * @property {Array<string>} [strategies] - names of the catalogue
 * @property {string} [state] - "open", "done" or "given up"
 * @property {number|null} [promise] - speedup over the parent's program, as the author of the node expects it
 * @property {number} [tries] - programs and replies that came to nothing
 * @property {number|null} [candidate] - number of its program
 * @property {number|null} [level] - speedup of its program over eager, to hold against others; null where it has none
 * @property {number|null} [gain] - of its program over the parent's, measured
 * @property {Interval|null} [belief] - gain over the parent's program that it is believed to bring, with the interval for 80 % of gains
 * @property {Interval|null} [before] - the same before the attempt that the event is about; absent where that did not change it
 * @property {Interval|null} [predicted] - what its last attempt was to gain; absent where it was not tried
 */

/**
 * @typedef {Object} TreeMarks
 * @property {number} [predictions] - attempts whose gain was predicted
 * @property {number} [within] - of those, how many fell into the predicted interval
 * @property {number|null} [off] - factor by which beliefs missed, geometric mean
 * @property {number|null} [promises_off] - factor by which the authors' promises missed
 */

/**
 * @typedef {Object} Figure
 * @property {string} [figure] - what was measured
 * @property {any} [value] - a number or a word
 * @property {string} [unit] - of the value
 * @property {string} [means] - what follows from it
 */

/**
 * @typedef {Object} DocumentRef
 * @property {string} [id] - of the passage
 * @property {string} [title] - of the document
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
 * @property {string|null} [language] - "cuda", "triton" or "cpp"; null: the usual one of the device
 * @property {string} [device] - "cpu", "cuda" or one device, such as "cuda:0"
 * @property {string} [precision] - such as "fp32-strict"
 * @property {string} [mode] - "train" or "eval"
 * @property {number|null} [target] - lower bound of the speedup against eager at which the run stops
 * @property {string} [tier] - of workflow "verify"
 * @property {number|null} [workers] - programs that are written side by side
 * @property {string} [profiles] - "all", "winner" or "none"
 * @property {string} [winner] - "fastest" or "own-kernels"
 * @property {boolean} [review_plan] - whether a person reads the plan first
 * @property {Object<string, number|null>} [budget] - limits by unit: candidates, calls, tokens, dollars, verifier_seconds, seconds
 * @property {number} [seed] - of all that is drawn
 * @property {TaskRef} [task] - the task
 * @property {ArtefactRef|null} [source] - the task's source
 * @property {ArtefactRef|null} [program] - a person's own program, for workflow "verify"
 */

/**
 * The run stands still. `kind` gives the reason if no person paused the run.
 *
 * "configuration", "refused", "too-long", "busy", "unreachable" and "protocol" mean that a model did not answer. "review": the plan is waiting for a
 * person to read it. "asked": a request in the run's directory is waiting for its reply. "device": the next step needs a device that this host does
 * not have.
 * @typedef {Object} RunPaused
 * @property {string} [reason] - a sentence
 * @property {string} [kind] - what the run waits for; empty where a person paused it
 * @property {string} [hint] - what to do about it
 * @property {string} [profile] - the model that did not answer
 * @property {string} [key] - journal key of the exchange that waits ("asked")
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
 * @property {Origin} [from] - what it was forked from
 * @property {number} [asked] - the event that a person named
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
 * @property {Interval|null} [speedup] - of the best candidate against eager, confirmed in tier full
 */

/**
 * A span of work begins; the event's `span` is its path.
 * @typedef {Object} SpanOpened
 * @property {string} [title] - what it is about
 */

/**
 * A span of work has ended.
 * @typedef {Object} SpanClosed
 * @property {string} [status] - "ok", "failed" or "skipped"
 * @property {number|null} [seconds] - that it took, pauses left out; null where the end of the run closed it
 * @property {string} [summary] - what came of it
 */

/**
 * A model is asked. After an interruption, the same request may be asked again under its key.
 * @typedef {Object} LlmRequested
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [profile] - name of the model's profile
 * @property {string} [purpose] - which prompt, such as "coder/repair"
 * @property {ArtefactRef|null} [request] - an `agents.llm.messages.Request`
 * @property {Object<string, number>} [estimate] - calls, tokens and dollars that are set aside until the reply is there
 * @property {Array<number>} [notes] - seqs of the notes that went along
 */

/**
 * A model has answered.
 * @typedef {Object} LlmCompleted
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [profile] - name of the model's profile
 * @property {string} [purpose] - which prompt, such as "coder/repair"
 * @property {number} [attempts] - requests that were sent
 * @property {Object<string, number>} [spent] - as the budget counts it; where the server counts nothing, from the characters
 * @property {string} [model] - as the server names it
 * @property {string} [finish] - why the reply ended
 * @property {Usage|null} [usage] - tokens; further counts as the server gives them
 * @property {string} [counted] - who counted the tokens: "server", "tokenizer", or "estimated" from the text
 * @property {number|null} [dollars] - price; null where none is known
 * @property {number|null} [seconds] - until the reply was whole
 * @property {ArtefactRef|null} [reply] - a `Reply` without its reasoning
 * @property {ArtefactRef|null} [reasoning] - the reasoning as text; absent where there is none
 */

/**
 * A model did not answer. The run pauses, and later asks again under the same key.
 * @typedef {Object} LlmFailed
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [profile] - name of the model's profile
 * @property {string} [purpose] - which prompt, such as "coder/repair"
 * @property {number} [attempts] - requests that were sent
 * @property {Object<string, number>} [spent] - as the budget counts it; where the server counts nothing, from the characters
 * @property {string} [role] - the agent that asked
 * @property {string} [kind] - what went wrong, as in `run.paused`
 * @property {string} [message] - a sentence
 * @property {string} [hint] - what to do about it
 */

/**
 * A piece of a message that is still being written. A piece that begins before the end of the text that a reader already has replaces the text
 * from there on.
 * @typedef {Object} MessageDelta
 * @property {string} [message] - the message's journal key; for a model's reply the key of its exchange, which `llm.completed` ends
 * @property {number|null} [characters] - of the whole text, where a page is given its beginning; in no trace
 * @property {number|null} [newlines] - of the whole text, where a page is given its beginning; in no trace
 * @property {number} [offset] - where the piece begins, in characters
 * @property {string} [text] - the piece
 */

/**
 * A message is whole.
 * @typedef {Object} MessageCompleted
 * @property {string} [message] - the message's journal key; for a model's reply the key of its exchange, which `llm.completed` ends
 * @property {number|null} [characters] - of the whole text, where a page is given its beginning; in no trace
 * @property {number|null} [newlines] - of the whole text, where a page is given its beginning; in no trace
 * @property {string|null} [text] - all of it; absent where it is an artefact
 * @property {ArtefactRef|null} [artefact] - a text that is too long for an event
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
 * @property {number} [more] - steps that did not fit
 * @property {number|null} [floor_ms] - least possible time of a call
 */

/**
 * The plan after a person has edited it.
 * @typedef {Object} PlanEdited
 * @property {string} [summary] - a sentence
 * @property {Array<PlanStep>} [steps] - in order
 * @property {number} [more] - steps that did not fit
 * @property {number|null} [floor_ms] - least possible time of a call
 * @property {string} [by] - who edited it
 */

/**
 * A strategy for the whole program, independent of code.
 * @typedef {Object} IdeaProposed
 * @property {string} [situation] - "ideas": one of a list; "cross": out of two; "align": what the surviving program does; "tree": a node
 * @property {number} idea - number within the run, from 1; of a node that of its id
 * @property {Array<number>} [parents] - ideas that it was made from
 * @property {string} [title] - a few words
 * @property {string} [text] - a paragraph
 * @property {Array<string>} [strategies] - names of the catalogue
 * @property {number|null} [expected] - speedup over eager; of a node over its parent's program
 * @property {number|null} [candidate] - the program of "align"
 */

/**
 * A complete decision tree, with the belief about every open node.
 * @typedef {Object} TreeChanged
 * @property {string} [what] - "edited": by a script; "chosen": which node is tried next; "learned": after the attempt
 * @property {number} [revision] - of the tree; a script names the one that it is about
 * @property {string} [node] - id of the node that was chosen, or tried
 * @property {string} [reason] - a sentence
 * @property {Array<TreeNode>} [nodes] - a node's parent stands before it
 * @property {number} [more] - nodes that did not fit
 * @property {Array<string>} [left_out] - what of a script was not carried out, a sentence each
 * @property {Interval|null} [predicted] - "learned": what the attempt was to gain
 * @property {number|null} [came] - "learned": what it gained; 1 where no program was right
 * @property {TreeMarks|null} [marks] - how the run's predictions came true so far
 */

/**
 * A program is recorded.
 * @typedef {Object} CandidateProposed
 * @property {string} [key] - journal key of the effect, `SPAN#n`
 * @property {number} candidate - number within the run, from 1
 * @property {number|null} [parent] - number of the candidate that it was made from
 * @property {string} [title] - a few words
 * @property {string} [step] - id of the plan's step
 * @property {string} [changes] - a sentence
 * @property {string} [strategy] - names of the catalogue
 * @property {string} [sha] - hash of the program's source
 * @property {ArtefactRef|null} [program] - the program's source
 * @property {number|null} [idea] - number of the idea that it realises; absent where there is none
 * @property {string} [author] - who wrote it: a profile, with its model as the server names it; absent for the built-in Coder
 * @property {number|null} [way] - number of the way that it belongs to; absent where the workflow goes one way
 */

/**
 * A verifier is asked to do a job.
 * @typedef {Object} VerificationQueued
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [job] - "admit", "capture", "verify" or "profile"
 * @property {number|null} [candidate] - number of the candidate; null: the task
 * @property {string} [verification] - id of the verification
 * @property {number} [attempt] - 2 and more: asked again after an interruption
 * @property {string|null} [tier] - "quick" or "full"; null for jobs other than "verify"
 * @property {string} [queue] - where it waits; absent where no queue is between
 * @property {ArtefactRef|null} [request] - the `Job` as JSON
 * @property {string} [reason] - why it is asked again
 */

/**
 * A stage of a job begins, makes progress, or has ended.
 * @typedef {Object} VerificationStage
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {number} [attempt] - of the job
 * @property {string} [stage] - such as "build"
 * @property {string} [status] - "started", "passed", "failed", "skipped" or "progress"
 * @property {number|null} [seconds] - that it took
 * @property {string} [detail] - a sentence
 */

/**
 * A job has ended. For `job` "verify" the event has the verdict's figures; for "admit" it has `ok` and `flags`.
 * @typedef {Object} VerificationFinished
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [job] - "admit", "capture", "verify" or "profile"
 * @property {number|null} [candidate] - number of the candidate; null: the task
 * @property {string} [verification] - id of the verification
 * @property {number} [attempt] - 2 and more: asked again after an interruption
 * @property {string|null} [tier] - "quick" or "full"; null for jobs other than "verify"
 * @property {number|null} [seconds] - of verifier time
 * @property {ArtefactRef|null} [result] - the `JobResult` as JSON
 * @property {ArtefactRef|null} [timeline] - absent where none was recorded
 * @property {string} [status] - of the report
 * @property {string} [message] - what went wrong
 * @property {Interval|null} [speedup] - against eager
 * @property {Interval|null} [gain] - over the program that it was made from, timed in turn
 * @property {string|null} [program_class] - who does the work: "custom", "mixed", ...
 * @property {number|null} [own_share] - of GPU time in own kernels
 * @property {number|null} [program_ms] - time of a call
 * @property {boolean} [faster] - whether the interval lies above 1
 * @property {number|null} [floor_fraction] - least possible time over time
 * @property {string|null} [best_baseline] - the fastest baseline that was measured
 * @property {Interval|number|null} [best_baseline_speedup] - against it; a bare number in early traces
 * @property {boolean|null} [ok] - whether the task is sound
 * @property {Array<string>} [flags] - what the task proves little by, such as "trivial"
 */

/**
 * A profile was recorded.
 * @typedef {Object} ProfileAttached
 * @property {number|null} [candidate] - null: the reference
 * @property {string} [tool] - which profiler
 * @property {ArtefactRef|null} [timeline] - absent where none was recorded
 * @property {ArtefactRef|null} [profile] - the `Profile` as JSON
 */

/**
 * A file that belongs to the run.
 * @typedef {Object} ArtefactAttached
 * @property {ArtefactRef|null} [artefact] - the file
 * @property {string} [title] - what it is
 */

/**
 * What limits a program's speed.
 * @typedef {Object} DiagnosisMade
 * @property {number|null} [candidate] - number of the candidate
 * @property {string} [bottleneck] - "memory", "compute", "latency", "launch", "occupancy", "defect" or "none"
 * @property {number|null} [headroom] - time over the least possible one
 * @property {number|null} [host_share] - of a call in which a GPU waits for the host
 * @property {Array<Figure>} [evidence] - what it rests on
 * @property {string|null} [method] - strategy that answers it
 * @property {string} [text] - a paragraph
 * @property {string} [grade] - how good the evidence is
 * @property {Array<Object<string, any>>} [faults] - causes, those that cost most first
 * @property {Array<string>} [methods] - strategies that the catalogue allows, in order
 * @property {Object<string, number>} [groups] - by step: milliseconds a call that its kernels took; absent where nothing is known
 * @property {Array<DocumentRef>} [documents] - passages that it used; absent where there are none
 */

/**
 * What will be done next, and why. A second event, with `of`, records the result.
 * @typedef {Object} DecisionMade
 * @property {number|null} [of] - seq of the decision whose result this is; absent in a decision itself
 * @property {string} [route] - "repair", "optimise", "next-step", "re-plan" or "stop"
 * @property {string} [reason] - a sentence
 * @property {number|null} [expected] - speedup over the parent
 * @property {string|null} [method] - strategy
 * @property {number|null} [realised] - speedup over the parent that came of it
 */

/**
 * One of the several ways that a workflow follows concurrently has begun, leads, trails, has migrated, or has ended.
 *
 * "begun": a new way. "leads": its program is the fastest of all ways, according to one measurement that also timed the previous leader. "trails":
 * it seemed faster, but that joint measurement showed that it is not. "migrated": it made no progress, and continues from another way's program.
 * "ended": it has nothing left to gain, or it lost too often.
 * @typedef {Object} WayChanged
 * @property {number} way - number within the run, from 1
 * @property {string} [what] - "begun", "leads", "trails", "migrated" or "ended"
 * @property {number} [round] - in which it happened, from 1
 * @property {number|null} [candidate] - the program that it goes on from, leads with, or leaves behind; null: the task's own
 * @property {number|null} [of] - the way whose program it goes on from; absent where it is its own
 * @property {number|null} [beside] - "leads" and "trails": the program that led before
 * @property {Interval|null} [speedup] - over that program, both timed in turn by one measurement on one device
 * @property {number|null} [idea] - number of the idea that it tries next; absent where there is none
 * @property {string} [reason] - the rule, a sentence
 */

/**
 * The result of a small effect: the clock, a random number, a search.
 *
 * "budget.refused", {unit, spent, limit}: the budget did not allow a call. "notes", {agent, notes}: notes that were placed in a prompt itself; the
 * agent "built-in" is the compiler. "plan.reviewed", {edited: seq or null}.
 * @typedef {Object} EffectCompleted
 * @property {string} key - journal key of the effect, `SPAN#n`
 * @property {string} [name] - what was done
 * @property {any} [value] - what came of it
 */

/**
 * What the run has spent so far.
 * @typedef {Object} BudgetUpdated
 * @property {Object<string, number>} [spent] - by unit: candidates, calls, tokens, dollars, verifier_seconds, seconds
 * @property {Object<string, number|null>} [limits] - by unit; null is no limit
 */

/**
 * A person requests something from the run.
 * @typedef {Object} ControlRequested
 * @property {string} [action] - "pause", "resume", "cancel" or "raise-budget"
 * @property {string} [by] - who asks
 * @property {Object<string, number|null>} [limits] - of "raise-budget", by unit
 */

/**
 * Something went wrong.
 * @typedef {Object} Failure
 * @property {string} [message] - a sentence
 * @property {string} [where] - the span, or the part of the program
 * @property {string} [kept] - what is not lost by it
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

/** @typedef {{ [K in keyof Payloads]?: (state: any, event: any, payload: Payloads[K], changes: any) => void }} Folders what each kind of event does to the state */

export {};
