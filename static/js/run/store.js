// A run as its events tell it. `fold` is the only way in: the same events in the same order always give the same state,
// so live, late, reconnected and replayed pages cannot differ. No DOM here.

export function createState() {
  return {
    last: 0, // seq of the last event folded
    run: {
      state: "queued", outcome: "", reason: "", best: null, speedup: null, startedAt: null, finishedAt: null,
      pause: null, forked: null, refused: false, planned: 0,
      workflow: "", planner: "", coder: "", judge: "", device: "", precision: "", mode: "", target: null, task: null, waiting: "",
    },
    spans: new Map(), // path -> span
    roots: [], // paths of spans without a parent, as they were opened
    items: [], // the conversation, in order of first appearance
    itemById: new Map(),
    messages: new Map(), // message id -> its item
    candidates: new Map(), // number -> candidate
    verifications: new Map(), // journal key -> its item
    decisions: new Map(), // seq -> its item
    timelines: [], // {seq, candidate, title, tool, timeline}; candidate null is the reference
    stageSeconds: new Map(), // "job/stage/tier" -> seconds of those that ended, for what to expect
    usage: new Map(), // "role/profile" -> what that model did for that role
    spent: {},
    limits: {},
  };
}

// What changed since the last draw: ids of items, paths of spans, numbers of candidates, and flags for the rest.
export function createChanges() {
  return { items: new Set(), spans: new Set(), candidates: new Set(), header: false, chart: false, tree: false, timelines: false, notices: [] };
}

// Folds `events` into `state`, noting what changed. Events seen before are passed over; at a gap it stops and returns false,
// so that the caller asks again from `state.last`.
export function fold(state, events, changes = createChanges()) {
  for (const event of events) {
    if (event.seq <= state.last) continue;
    if (event.seq !== state.last + 1) return false;
    state.last = event.seq;
    const folder = FOLDERS[event.kind];
    if (folder) folder(state, event, event.payload ?? {}, changes);
  }
  return true;
}

function addItem(state, changes, event, kind, fields = {}) {
  const item = { id: `e${event.seq}`, seq: event.seq, kind, at: event.at, agent: event.agent || "engine", span: event.span || "", ...fields };
  state.items.push(item);
  state.itemById.set(item.id, item);
  changes.items.add(item.id);
  return item;
}

function ensureSpan(state, path, changes) {
  let span = state.spans.get(path);
  if (span) return span;
  const cut = path.lastIndexOf("/");
  const parent = cut < 0 ? "" : path.slice(0, cut);
  span = { path, parent, title: path.slice(cut + 1), openedAt: null, closedAt: null, status: "open", seconds: null, summary: "", children: [], candidates: [], firstItem: null };
  state.spans.set(path, span);
  if (parent) ensureSpan(state, parent, changes).children.push(path);
  else state.roots.push(path);
  changes.spans.add(path);
  changes.tree = true;
  return span;
}

function messageItem(state, event, id, changes) {
  let item = state.messages.get(id);
  if (!item) {
    item = addItem(state, changes, event, "message", { message: id, text: "", characters: 0, done: false, gap: false, artefact: null });
    state.messages.set(id, item);
  }
  changes.items.add(item.id);
  return item;
}

// Offsets count characters (code points), as the writer does; a string of JavaScript counts UTF-16 units.
function characters(text) {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

function candidateOf(state, number, changes) {
  let candidate = state.candidates.get(number);
  if (!candidate) {
    candidate = {
      number, parent: null, title: "", changes: "", strategy: "", step: "", span: "", seq: 0, at: null, sha: "", program: null,
      status: "", message: "", tier: "", speedup: null, faster: false, programClass: "", programMs: null, result: null,
      resultSeq: 0, timeline: null, profile: null, tool: "", running: null,
    };
    state.candidates.set(number, candidate);
  }
  changes.candidates.add(number);
  changes.chart = true;
  changes.tree = true;
  return candidate;
}

// A verifier names the candidate of its job as it was asked: as a number or as its digits.
const numbered = (candidate) => (candidate == null || candidate === "" ? null : Number(candidate));

function verificationItem(state, event, payload, changes) {
  let item = state.verifications.get(payload.key);
  if (!item) {
    item = addItem(state, changes, event, "verification", {
      key: payload.key, job: payload.job ?? "verify", candidate: numbered(payload.candidate), queuedAt: event.at, startedAt: null, finishedAt: null,
      attempt: 1, stages: [], status: "", message: "", tier: "", speedup: null, faster: false, programClass: "", programMs: null, result: null, ok: null, flags: [],
    });
    state.verifications.set(payload.key, item);
  }
  changes.items.add(item.id);
  return item;
}

// The full measurement is the result; a quick one only guides the search.
function takeVerdict(candidate, payload, seq) {
  if (candidate.tier === "full" && payload.tier === "quick" && candidate.status) return;
  candidate.status = payload.status ?? (payload.message ? "infrastructure_error" : "");
  candidate.message = payload.message ?? "";
  candidate.tier = payload.tier ?? "";
  candidate.speedup = payload.speedup ?? null;
  candidate.faster = payload.faster ?? false;
  candidate.programClass = payload.program_class ?? "";
  candidate.programMs = payload.program_ms ?? null;
  candidate.result = payload.result ?? null;
  candidate.resultSeq = seq;
}

// The best so far: of those that passed, the one with the greatest lower bound; what the run itself names comes first.
export function bestCandidate(state) {
  if (state.run.state === "finished") return state.run.best == null ? null : (state.candidates.get(state.run.best) ?? null);
  let best = null;
  for (const candidate of state.candidates.values()) {
    if (candidate.status !== "passed" || !candidate.speedup) continue;
    if (!best || candidate.speedup.low > best.speedup.low) best = candidate;
  }
  return best;
}

export function expectedSeconds(state, job, stage) {
  const seen = state.stageSeconds.get(`${job}/${stage}`);
  if (!seen?.length) return null;
  const sorted = [...seen].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

const FOLDERS = {
  "run.started"(state, event, payload, changes) {
    const { run } = state;
    run.state = "running";
    run.startedAt ??= event.at;
    takeSettings(run, payload);
    if (payload.budget) state.limits = payload.budget;
    changes.header = true;
    addItem(state, changes, event, "started", { payload });
  },
  "run.paused"(state, event, payload, changes) {
    state.run.state = "paused";
    state.run.waiting = "";
    state.run.pause = payload;
    changes.header = true;
    addItem(state, changes, event, "state", { title: "Paused", text: [payload.reason, payload.hint].filter(Boolean).join(" – ") });
    changes.notices.push(`The run is paused. ${payload.kind ? (payload.reason ?? "") : ""}`);
  },
  "run.resumed"(state, event, payload, changes) {
    state.run.state = "running";
    state.run.waiting = "";
    state.run.pause = null;
    changes.header = true;
    addItem(state, changes, event, "state", { title: "Resumed", text: payload.reason ?? "" });
    changes.notices.push("The run goes on.");
  },
  "run.forked"(state, event, payload, changes) {
    const { run } = state;
    Object.assign(run, { state: "running", waiting: "", pause: null, forked: payload.from ?? null, refused: false });
    if (payload.settings) takeSettings(run, payload.settings);
    if (payload.settings?.budget) state.limits = payload.settings.budget;
    // What the parent's verifiers and models were in the middle of is not ours.
    for (const item of state.items) if (item.kind === "verification" && !item.finishedAt) Object.assign(item, { finishedAt: event.at, message: "left to the parent" });
    for (const item of state.items) if (item.kind === "llm" && !item.done) Object.assign(item, { done: true, endedAt: event.at });
    changes.header = true;
    addItem(state, changes, event, "forked", { from: payload.from ?? null, changed: payload.changed ?? {}, by: payload.by ?? "" });
  },
  "run.finished"(state, event, payload, changes) {
    Object.assign(state.run, {
      state: "finished", outcome: payload.outcome ?? "", reason: payload.reason ?? "", best: payload.best ?? null,
      speedup: payload.speedup ?? null, finishedAt: event.at, waiting: "",
    });
    changes.header = changes.chart = changes.tree = true;
    addItem(state, changes, event, "finished", { payload });
    changes.notices.push(`The run has ended. ${payload.reason ?? ""}`);
  },
  "span.opened"(state, event, payload, changes) {
    const span = ensureSpan(state, event.span, changes);
    span.title = payload.title || span.title;
    span.openedAt ??= event.at;
    span.status = "open";
    changes.spans.add(span.path);
    changes.tree = true;
    const item = addItem(state, changes, event, "span", { path: event.span, title: span.title });
    span.firstItem ??= item.id;
  },
  "span.closed"(state, event, payload, changes) {
    const span = ensureSpan(state, event.span, changes);
    Object.assign(span, { status: payload.status ?? "ok", seconds: payload.seconds ?? null, summary: payload.summary ?? "", closedAt: event.at });
    changes.spans.add(span.path);
    changes.tree = true;
  },
  "llm.requested"(state, event, payload, changes) {
    const item = addItem(state, changes, event, "llm", {
      key: payload.key, profile: payload.profile ?? "", purpose: payload.purpose ?? "", request: payload.request ?? null, notes: payload.notes?.length ?? 0,
      usage: null, dollars: null, done: false,
    });
    state.itemById.set(`llm:${payload.key}`, item);
    const before = state.messages.get(payload.key); // a fork asks again what its parent had been told
    if (before?.done) Object.assign(before, { done: false, answer: "" });
    changes.header = true;
  },
  "llm.completed"(state, event, payload, changes) {
    const item = state.itemById.get(`llm:${payload.key}`) ?? addItem(state, changes, event, "llm", { key: payload.key, profile: payload.profile ?? "", purpose: payload.purpose ?? "", request: null });
    Object.assign(item, {
      usage: payload.usage ?? null, dollars: payload.dollars ?? null, seconds: payload.seconds ?? null, model: payload.model ?? "", finish: payload.finish ?? "stop",
      attempts: payload.attempts ?? 1, reply: payload.reply ?? null, reasoning: payload.reasoning ?? null, done: true, endedAt: event.at,
    });
    changes.items.add(item.id);
    const message = state.messages.get(payload.key); // the text that was streamed is whole now
    if (message) {
      Object.assign(message, { done: true, gap: false, answer: item.profile, artefact: message.gap ? (payload.reply ?? null) : null });
      changes.items.add(message.id);
    }
    const row = usageOf(state, payload, event.agent);
    row.calls += payload.attempts ?? 1;
    row.seconds += payload.seconds ?? 0;
    if (payload.usage) {
      row.input += payload.usage.input_tokens ?? 0;
      row.output += payload.usage.output_tokens ?? 0;
    } else row.uncounted += 1;
    if (payload.dollars != null) row.dollars = (row.dollars ?? 0) + payload.dollars;
    changes.header = true;
  },
  "llm.failed"(state, event, payload, changes) {
    const item = state.itemById.get(`llm:${payload.key}`);
    if (item && !item.done) {
      Object.assign(item, { done: true, failed: payload.message ?? "no answer", endedAt: event.at });
      changes.items.add(item.id);
    } else addItem(state, changes, event, "llm", { key: payload.key, profile: payload.profile ?? "", purpose: payload.purpose ?? "", done: true, failed: payload.message ?? "no answer" });
    const row = usageOf(state, payload, payload.role ?? event.agent);
    row.calls += payload.attempts ?? 0;
    row.failed += 1;
    changes.header = true;
  },
  "effect.completed"(state, event, payload, changes) {
    if (payload.name === "budget.refused") state.run.refused = changes.header = true;
  },
  "message.delta"(state, event, payload, changes) {
    const item = messageItem(state, event, payload.message, changes);
    const text = payload.text ?? "";
    if (item.done) return;
    if (payload.offset > item.characters) {
      item.gap = true; // the finished message brings the whole text
      return;
    }
    if (payload.offset < item.characters) {
      // The call was in flight when its writer died, and is told again from here.
      item.text = [...item.text].slice(0, payload.offset).join("");
      item.characters = payload.offset;
    }
    item.text += text;
    item.characters += characters(text);
  },
  "message.completed"(state, event, payload, changes) {
    const item = messageItem(state, event, payload.message, changes);
    if (typeof payload.text === "string") {
      item.text = payload.text;
      item.characters = characters(payload.text);
    }
    item.artefact = payload.artefact ?? null;
    item.done = true;
    item.gap = false;
  },
  "note.added"(state, event, payload, changes) {
    addItem(state, changes, event, "note", { text: payload.text ?? "", to: payload.to ?? "", by: payload.by ?? "" });
  },
  "plan.proposed"(state, event, payload, changes) {
    state.run.planned = event.seq;
    addItem(state, changes, event, "plan", { plan: payload, edited: false });
  },
  "plan.edited"(state, event, payload, changes) {
    addItem(state, changes, event, "plan", { plan: payload, edited: true });
  },
  "candidate.proposed"(state, event, payload, changes) {
    const candidate = candidateOf(state, payload.candidate, changes);
    Object.assign(candidate, {
      parent: payload.parent ?? null, title: payload.title ?? "", changes: payload.changes ?? "", strategy: payload.strategy ?? "", step: payload.step ?? "",
      span: event.span, seq: event.seq, at: event.at, sha: payload.sha ?? "", program: payload.program ?? null,
    });
    if (event.span) ensureSpan(state, event.span, changes).candidates.push(candidate.number);
    addItem(state, changes, event, "candidate", { candidate: candidate.number });
  },
  "verification.queued"(state, event, payload, changes) {
    const item = verificationItem(state, event, payload, changes);
    Object.assign(item, { job: payload.job ?? item.job, candidate: numbered(payload.candidate) ?? item.candidate });
    if (payload.attempt > item.attempt) Object.assign(item, { attempt: payload.attempt, stages: [], startedAt: null }); // its verifier died: it waits again
    if (item.candidate != null && item.job === "verify") candidateOf(state, item.candidate, changes).running = item.id;
  },
  "verification.stage"(state, event, payload, changes) {
    const item = verificationItem(state, event, payload, changes);
    if (payload.attempt && payload.attempt > item.attempt) {
      item.attempt = payload.attempt; // the job was rescued: its stages are told again
      item.stages = [];
    }
    item.startedAt ??= event.at;
    let stage = item.stages.find((known) => known.name === payload.stage);
    if (!stage) {
      stage = { name: payload.stage, status: "", seconds: null, detail: "", startedAt: event.at };
      item.stages.push(stage);
    }
    stage.status = payload.status ?? "";
    if (payload.detail) stage.detail = payload.detail;
    if (payload.seconds != null) stage.seconds = payload.seconds;
    if (payload.status === "started") stage.startedAt = event.at;
    if (payload.status === "passed" && payload.seconds != null) {
      const name = `${item.job}/${payload.stage}`;
      if (!state.stageSeconds.has(name)) state.stageSeconds.set(name, []);
      state.stageSeconds.get(name).push(payload.seconds);
    }
    if (item.candidate != null) changes.candidates.add(item.candidate);
  },
  "verification.finished"(state, event, payload, changes) {
    const item = verificationItem(state, event, payload, changes);
    const job = payload.job ?? item.job;
    const candidate = numbered(payload.candidate) ?? item.candidate;
    Object.assign(item, {
      job, candidate, finishedAt: event.at, status: payload.status ?? "", message: payload.message ?? "", tier: payload.tier ?? "", speedup: payload.speedup ?? null,
      faster: payload.faster ?? false, programClass: payload.program_class ?? "", programMs: payload.program_ms ?? null, result: payload.result ?? null,
      ok: payload.ok ?? null, flags: payload.flags ?? [],
    });
    const well = job === "verify" ? item.status === "passed" : item.ok !== false && !item.message;
    for (const stage of item.stages) if (stage.status === "started" || stage.status === "progress") stage.status = well ? "passed" : "failed";
    if (candidate != null && job === "verify") {
      const known = candidateOf(state, candidate, changes);
      takeVerdict(known, payload, event.seq);
      known.running = null;
      changes.header = true;
      changes.notices.push(`Candidate ${candidate}: ${(known.status || "no verdict").replaceAll("_", " ")}${known.speedup ? `, ${known.speedup.ratio.toFixed(2)} times eager` : ""}.`);
    }
    if (payload.timeline) takeTimeline(state, event, { candidate, timeline: payload.timeline, tool: "", profile: null }, changes);
  },
  "profile.attached"(state, event, payload, changes) {
    takeTimeline(state, event, payload, changes);
    addItem(state, changes, event, "profile", { candidate: numbered(payload.candidate), tool: payload.tool ?? "", timeline: payload.timeline ?? null });
  },
  "artefact.attached"(state, event, payload, changes) {
    addItem(state, changes, event, "artefact", { artefact: payload.artefact ?? null, title: payload.title ?? "" });
  },
  "diagnosis.made"(state, event, payload, changes) {
    addItem(state, changes, event, "diagnosis", { diagnosis: payload });
  },
  "decision.made"(state, event, payload, changes) {
    const earlier = payload.of != null ? state.decisions.get(payload.of) : null;
    if (earlier) {
      earlier.realised = payload.realised ?? null;
      changes.items.add(earlier.id);
      return;
    }
    const item = addItem(state, changes, event, "decision", { decision: payload, realised: payload.realised ?? null });
    state.decisions.set(event.seq, item);
  },
  "budget.updated"(state, event, payload, changes) {
    state.spent = payload.spent ?? state.spent;
    state.limits = payload.limits ?? state.limits;
    changes.header = true;
  },
  "control.requested"(state, event, payload, changes) {
    state.run.waiting = { pause: "pausing", cancel: "cancelling", resume: "resuming" }[payload.action] ?? state.run.waiting;
    changes.header = true;
    addItem(state, changes, event, "control", { agent: "person", action: payload.action ?? "", by: payload.by ?? "" });
  },
  error(state, event, payload, changes) {
    addItem(state, changes, event, "error", { message: payload.message ?? "", where: payload.where ?? "", kept: payload.kept ?? "" });
    changes.notices.push(`Error: ${payload.message ?? ""}`);
  },
};

const SETTINGS = ["workflow", "planner", "coder", "judge", "device", "precision", "mode", "target", "task"];

function takeSettings(run, given) {
  for (const name of SETTINGS) if (given[name] != null) run[name] = given[name];
}

function usageOf(state, payload, role) {
  const key = `${role}/${payload.profile ?? ""}`;
  if (!state.usage.has(key)) state.usage.set(key, { role, profile: payload.profile ?? "", calls: 0, failed: 0, input: 0, output: 0, uncounted: 0, dollars: null, seconds: 0 });
  return state.usage.get(key);
}

function takeTimeline(state, event, payload, changes) {
  if (!payload.timeline?.sha) return;
  const candidate = numbered(payload.candidate);
  if (!state.timelines.some((known) => known.timeline.sha === payload.timeline.sha && known.candidate === candidate))
    state.timelines.push({ seq: event.seq, candidate, tool: payload.tool ?? "", timeline: payload.timeline });
  changes.timelines = true;
  if (candidate != null) {
    const known = candidateOf(state, candidate, changes);
    known.timeline = payload.timeline;
    known.tool = payload.tool || known.tool;
    if (payload.profile) known.profile = payload.profile;
  }
}
