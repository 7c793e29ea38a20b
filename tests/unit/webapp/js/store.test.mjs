import assert from "node:assert/strict";
import { test } from "node:test";
import { bestCandidate, createChanges, createState, expectedSeconds, fold } from "../../../../static/js/run/store.js";

let clock = 0;
const event = (seq, kind, payload = {}, { span = "", agent = "engine" } = {}) => ({ v: 1, run: "r", seq, at: new Date(Date.UTC(2026, 0, 1) + (clock += 1000)).toISOString(), span, parent: "", agent, kind, payload });
const list = (...entries) => entries.map(([kind, payload, where], index) => event(index + 1, kind, payload, where));
const verdict = (key, candidate, ratio, tier = "quick", more = {}) => ["verification.finished", { key, job: "verify", candidate, status: "passed", tier, speedup: { ratio, low: ratio - 0.1, high: ratio + 0.1 }, ...more }];

test("events that were seen before are passed over, and a gap stops the fold", () => {
  const state = createState();
  const events = list(["note.added", { text: "a" }], ["note.added", { text: "b" }], ["note.added", { text: "c" }]);
  assert.equal(fold(state, events.slice(0, 2)), true);
  assert.equal(fold(state, events), true);
  assert.equal(state.items.length, 3);
  assert.equal(fold(state, [event(9, "note.added", { text: "z" })]), false);
  assert.equal(state.last, 3);
  assert.deepEqual(state.items.map((item) => item.text), ["a", "b", "c"]);
});

test("one batch or many give the same state", () => {
  const events = list(
    ["span.opened", { title: "Plan" }, { span: "plan" }],
    ["message.delta", { message: "m", offset: 0, text: "Hello " }, { span: "plan" }],
    ["message.delta", { message: "m", offset: 6, text: "world" }, { span: "plan" }],
    ["message.completed", { message: "m", text: "Hello world" }, { span: "plan" }],
    ["candidate.proposed", { candidate: 1, parent: null, title: "first" }, { span: "step-1/attempt-1" }],
    ["verification.queued", { key: "k", job: "verify", candidate: 1 }],
    ["verification.stage", { key: "k", stage: "build", status: "started" }],
    ["verification.stage", { key: "k", stage: "build", status: "passed", seconds: 2 }],
    verdict("k", 1, 2),
  );
  const whole = createState();
  fold(whole, events);
  const pieces = createState();
  for (const one of events) fold(pieces, [one]);
  assert.deepEqual(pieces, whole);
});

test("deltas are assembled by message and offset, in characters", () => {
  const state = createState();
  fold(state, list(["message.delta", { message: "m", offset: 0, text: "a😀" }], ["message.delta", { message: "m", offset: 2, text: "b" }]));
  assert.equal(state.messages.get("m").text, "a😀b");
  // The call is repeated after a crash: the text is told again from the middle.
  fold(state, [event(3, "message.delta", { message: "m", offset: 1, text: "XY" })]);
  assert.equal(state.messages.get("m").text, "aXY");
  fold(state, [event(4, "message.delta", { message: "m", offset: 40, text: "lost" })]);
  assert.equal(state.messages.get("m").text, "aXY");
  assert.equal(state.messages.get("m").gap, true);
  fold(state, [event(5, "message.completed", { message: "m", text: "the whole" })]);
  assert.equal(state.messages.get("m").text, "the whole");
  assert.equal(state.messages.get("m").done, true);
  assert.equal(state.items.length, 1);
});

test("the best is the one with the greatest lower bound, and a full measurement outlives a quick one", () => {
  const state = createState();
  fold(
    state,
    list(
      ["candidate.proposed", { candidate: 1 }],
      verdict("a", 1, 3, "quick"),
      ["candidate.proposed", { candidate: 2, parent: 1 }],
      verdict("b", 2, 2, "quick"),
      verdict("c", 1, 1.5, "full"),
      verdict("d", 1, 9, "quick"),
    ),
  );
  assert.equal(state.candidates.get(1).speedup.ratio, 1.5);
  assert.equal(bestCandidate(state).number, 2);
  fold(state, [event(7, "run.finished", { outcome: "improved", best: 1, speedup: { ratio: 1.5, low: 1.4, high: 1.6 } })]);
  assert.equal(bestCandidate(state).number, 1);
  assert.equal(state.run.state, "finished");
});

test("a candidate that was refused has its reason and no speedup", () => {
  const state = createState();
  fold(state, list(["candidate.proposed", { candidate: 1 }], ["verification.finished", { key: "a", job: "verify", candidate: "1", status: "wrong_result", message: "nan at 3", tier: "quick", speedup: null }]));
  assert.equal(state.candidates.get(1).status, "wrong_result");
  assert.equal(state.candidates.get(1).message, "nan at 3");
  assert.equal(bestCandidate(state), null);
});

test("a job that was rescued tells its stages again", () => {
  const state = createState();
  fold(
    state,
    list(
      ["verification.queued", { key: "k", job: "verify", candidate: 1, tier: "quick" }],
      ["verification.stage", { key: "k", stage: "static", status: "passed", seconds: 0.1, attempt: 1 }],
      ["verification.stage", { key: "k", stage: "build", status: "started", attempt: 1 }],
      ["verification.stage", { key: "k", stage: "static", status: "passed", seconds: 0.1, attempt: 2 }],
    ),
  );
  assert.deepEqual(state.verifications.get("k").stages.map((stage) => stage.name), ["static"]);
  assert.equal(state.verifications.get("k").attempt, 2);
  assert.equal(expectedSeconds(state, { job: "verify", tier: "quick" }, "static"), 0.1);
  assert.equal(expectedSeconds(state, { job: "verify", tier: "quick" }, "timing"), null);
  assert.equal(expectedSeconds(state, { job: "verify", tier: "full" }, "static"), null); // it takes several times as long
});

test("what a decision came to is told at the decision", () => {
  const state = createState();
  fold(state, list(["decision.made", { route: "optimise", reason: "r", expected: 1.3 }], ["decision.made", { of: 1, realised: 1.25 }]));
  assert.equal(state.items.length, 1);
  assert.equal(state.items[0].realised, 1.25);
});

test("spans form a tree, parents first, whatever comes first", () => {
  const state = createState();
  fold(state, list(["span.opened", { title: "Candidate 1" }, { span: "step-1/attempt-1" }], ["span.closed", { status: "ok", seconds: 2 }, { span: "step-1/attempt-1" }]));
  assert.deepEqual(state.roots, ["step-1"]);
  assert.deepEqual(state.spans.get("step-1").children, ["step-1/attempt-1"]);
  assert.equal(state.spans.get("step-1/attempt-1").seconds, 2);
});

test("an unknown kind of event changes nothing but the cursor", () => {
  const state = createState();
  assert.equal(fold(state, list(["something.new", { text: "x" }])), true);
  assert.equal(state.last, 1);
  assert.equal(state.items.length, 0);
});

test("changes name what has to be drawn again", () => {
  const state = createState();
  const changes = createChanges();
  fold(state, list(["candidate.proposed", { candidate: 1 }, { span: "step-1" }], ["budget.updated", { spent: { calls: 1 }, limits: {} }]), changes);
  assert.deepEqual([...changes.candidates], [1]);
  assert.equal(changes.header, true);
  assert.equal(changes.items.size, 1);
});

test("twenty thousand events fold in one go", () => {
  const state = createState();
  const events = [];
  for (let seq = 1; seq <= 20000; seq += 1) events.push(event(seq, "message.delta", { message: `m${seq % 50}`, offset: Math.floor((seq - 1) / 50) * 4, text: "abcd" }));
  assert.equal(fold(state, events), true);
  assert.equal(state.last, 20000);
  assert.equal(state.items.length, 50);
});

const exchange = (key, more = {}) => [
  ["llm.requested", { key, profile: "fast", purpose: "coder/first", request: { sha: "r" }, estimate: {} }, { agent: "coder" }],
  ["message.delta", { message: key, offset: 0, text: "half" }, { agent: "coder" }],
  ["llm.completed", { key, profile: "fast", purpose: "coder/first", usage: { input_tokens: 100, output_tokens: 20 }, dollars: 0.01, attempts: 2, seconds: 3, reply: { sha: "a" }, ...more }, { agent: "coder" }],
];

test("an exchange with a model ends the text that it streamed, and counts by role and model", () => {
  const state = createState();
  fold(state, list(...exchange("s#1"), ...exchange("s#2", { usage: null, dollars: null })));
  assert.equal(state.messages.get("s#1").done, true);
  assert.equal(state.messages.get("s#1").answer, "fast");
  const row = state.usage.get("coder/fast");
  assert.deepEqual([row.calls, row.input, row.output, row.uncounted, row.dollars, row.seconds], [4, 100, 20, 1, 0.01, 6]);
});

test("a pause says why, and a model that did not answer is an entry of its own", () => {
  const state = createState();
  fold(
    state,
    list(
      ["llm.requested", { key: "s#1", profile: "fast" }, { agent: "coder" }],
      ["llm.failed", { key: "s#1", profile: "fast", role: "coder", kind: "refused", message: "no key", attempts: 1 }],
      ["run.paused", { reason: "no key", kind: "refused", hint: "set it" }],
    ),
  );
  assert.equal(state.run.pause.kind, "refused");
  assert.equal(state.items.find((item) => item.kind === "llm").failed, "no key");
  assert.equal(state.usage.get("coder/fast").failed, 1);
  fold(state, [event(4, "run.resumed", { reason: "resumed by ada" })]);
  assert.equal(state.run.pause, null);
});

test("a fork takes over the settings, and leaves to the parent what was in flight", () => {
  const state = createState();
  fold(
    state,
    list(
      ["run.started", { workflow: "stitch", coder: "built-in", budget: { calls: 5 } }],
      ...exchange("s#1"),
      ["verification.queued", { key: "s#2", job: "verify", candidate: 1 }],
      ["effect.completed", { key: "s#3", name: "budget.refused", value: {} }],
      ["run.forked", { from: { run: "p", seq: 6 }, changed: { coder: "fast" }, settings: { workflow: "stitch", coder: "fast", budget: { calls: 9 } } }],
    ),
  );
  assert.equal(state.run.coder, "fast");
  assert.equal(state.limits.calls, 9);
  assert.equal(state.run.refused, false);
  assert.ok(state.verifications.get("s#2").finishedAt);
  fold(state, [event(8, "llm.requested", { key: "s#1", profile: "other" }), event(9, "message.delta", { message: "s#1", offset: 0, text: "anew" })]);
  assert.equal(state.messages.get("s#1").text, "anew");
});

test("what became of a way is an entry, and asks for the ways to be drawn anew, as its programs and their verdicts do", () => {
  const state = createState();
  const changes = createChanges();
  fold(state, list(["candidate.proposed", { candidate: 1, title: "alone" }], verdict("k", 1, 2)), changes);
  assert.equal(changes.ways, false, "a run that goes one way has none");
  const more = [event(3, "way.changed", { way: 2, what: "begun", round: 1, idea: 1, reason: "It tries idea 1." }), event(4, "candidate.proposed", { candidate: 2, way: 2, title: "idea 1" })];
  fold(state, more, changes);
  assert.equal(changes.ways, true);
  assert.deepEqual([...state.ways], [2]);
  assert.equal(state.items.find((item) => item.kind === "way").way.reason, "It tries idea 1.");
  const later = createChanges();
  fold(state, [{ ...list(verdict("l", 2, 3))[0], seq: 5 }], later);
  assert.equal(later.ways, true);
});
