// What a run is made of, as its events tell it: the shapes, and what the folders (folders.js) share. No DOM here.
import { PREVIEW, characters, newlines, preview } from "./preview.js";

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
    items: [], // the conversation, in order of first appearance; an item's `index` is its place
    itemById: new Map(),
    messages: new Map(), // message id -> its item
    candidates: new Map(), // number -> candidate
    verifications: new Map(), // journal key -> its item
    calls: new Map(), // journal key of an exchange with a model -> its item
    decisions: new Map(), // seq -> its item
    ways: new Set(), // numbers of those that the run goes at once; empty where it goes one
    told: new Map(), // seq of an event that tells more of an earlier item -> that item
    bestLow: 1, // the greatest lower bound of a passing candidate so far: what a next one has to improve on
    timelines: [], // {seq, candidate, title, tool, timeline}; candidate null is the reference
    stageSeconds: new Map(), // "job/stage/tier" -> seconds of those that ended, for what to expect
    tree: 0, // seq of the last event that shows a tree of decisions
    usage: new Map(), // "role/profile" -> what that model did for that role
    spent: {},
    limits: {},
  };
}

// What changed since the last draw: ids of items, paths of spans, numbers of candidates, and flags for the rest.
export function createChanges() {
  return { items: new Set(), spans: new Set(), candidates: new Set(), header: false, chart: false, tree: false, timelines: false, ways: false, notices: [] };
}

export function addItem(state, changes, event, kind, fields = {}) {
  const item = { id: `e${event.seq}`, seq: event.seq, index: state.items.length, kind, at: event.at, agent: event.agent || "engine", span: event.span || "", ...fields };
  if (event.cut) item.cut = event.cut; // {field: characters} of strings that came as a preview
  state.items.push(item);
  state.itemById.set(item.id, item);
  changes.items.add(item.id);
  return item;
}

export function ensureSpan(state, path, changes) {
  let span = state.spans.get(path);
  if (span) return span;
  const cut = path.lastIndexOf("/");
  const parent = cut < 0 ? "" : path.slice(0, cut);
  span = { path, parent, title: path.slice(cut + 1), openedAt: null, closedAt: null, status: "open", seconds: null, summary: "", children: [], candidates: [], firstItem: null, own: { tokens: 0, dollars: 0, calls: 0, failures: 0 } };
  state.spans.set(path, span);
  if (parent) ensureSpan(state, parent, changes).children.push(path);
  else state.roots.push(path);
  changes.spans.add(path);
  changes.tree = true;
  return span;
}

export function messageItem(state, event, id, changes) {
  let item = state.messages.get(id);
  if (!item) {
    item = addItem(state, changes, event, "message", { message: id, text: "", characters: 0, newlines: 0, done: false, gap: false, whole: true, artefact: null });
    state.messages.set(id, item);
  }
  changes.items.add(item.id);
  return item;
}

// A text that is finished keeps a preview and its counts: the page asks for the rest when somebody wants to read it.
export function finishText(item) {
  if (item.characters > PREVIEW) item.text = preview(item.text);
  item.whole = !item.gap && !item.artefact && characters(item.text) === item.characters;
}

// A piece of a streamed text. A stretch of the trace brings many pieces as one, with counts of the whole beside a preview.
/** @param {import("./events.js").MessageDelta} payload */
export function addText(item, payload) {
  const text = payload.text ?? "";
  if (payload.offset > item.characters) {
    item.gap = true; // the finished message brings the whole text
    return;
  }
  if (payload.offset < item.characters) {
    // The call was in flight when its writer died, and is told again from here.
    item.text = [...item.text].slice(0, payload.offset).join("");
    item.characters = payload.offset;
    item.newlines = newlines(item.text);
  }
  item.text += text;
  item.characters += payload.characters ?? characters(text);
  item.newlines += payload.newlines ?? newlines(text);
}

// The event `seq` says more of an item that is there already: a link to the event leads to it.
export function tell(state, event, item) {
  if (item.seq !== event.seq) state.told.set(event.seq, item);
}

// What a span took by itself; the tree adds up what is below it.
export function spend(state, event, changes, amounts) {
  if (!event.span) return;
  const { own } = ensureSpan(state, event.span, changes);
  for (const [name, amount] of Object.entries(amounts)) own[name] += amount ?? 0;
  changes.tree = true;
}

// The item that shows an event: its own, or the one that it says more of; a piece of a text belongs to the text.
export function itemOf(state, seq) {
  if (!(seq <= state.last)) return null;
  const told = state.told.get(seq);
  if (told) return told;
  let low = 0;
  let high = state.items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (state.items[middle].seq <= seq) low = middle + 1;
    else high = middle;
  }
  return state.items[low - 1] ?? null;
}

export function candidateOf(state, number, changes) {
  let candidate = state.candidates.get(number);
  if (!candidate) {
    candidate = {
      number, parent: null, title: "", changes: "", strategy: "", step: "", span: "", seq: 0, at: null, sha: "", program: null, author: "",
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
export const numbered = (candidate) => (candidate == null || candidate === "" ? null : Number(candidate));

/** @param {import("./events.js").VerificationQueued | import("./events.js").VerificationStage | import("./events.js").VerificationFinished} payload */
export function verificationItem(state, event, payload, changes) {
  let item = state.verifications.get(payload.key);
  if (!item) {
    item = addItem(state, changes, event, "verification", {
      key: payload.key, job: payload.job ?? "verify", candidate: numbered(payload.candidate), queuedAt: event.at, startedAt: null, finishedAt: null,
      attempt: 1, stages: [], status: "", message: "", tier: "", speedup: null, faster: false, programClass: "", programMs: null, result: null, ok: null, flags: [],
    });
    state.verifications.set(payload.key, item);
  }
  tell(state, event, item);
  changes.items.add(item.id);
  return item;
}

// The full measurement is the result; a quick one only guides the search.
/** @param {import("./events.js").VerificationFinished} payload */
export function takeVerdict(candidate, payload, seq) {
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

// A full measurement takes several times as long as a quick one: each tier has an estimate of its own.
export const stageName = (item, stage) => `${item.job}/${stage}/${item.tier}`;

// Median seconds of a stage in this run, of the same kind of job; null before one has ended.
export function expectedSeconds(state, item, stage) {
  const seen = state.stageSeconds.get(stageName(item, stage));
  if (!seen?.length) return null;
  const sorted = [...seen].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

const SETTINGS = ["workflow", "planner", "coder", "judge", "device", "precision", "mode", "target", "task"];

export function takeSettings(run, given) {
  for (const name of SETTINGS) if (given[name] != null) run[name] = given[name];
}

/** @param {import("./events.js").LlmCompleted | import("./events.js").LlmFailed} payload */
export function usageOf(state, payload, role) {
  const key = `${role}/${payload.profile ?? ""}`;
  if (!state.usage.has(key)) state.usage.set(key, { role, profile: payload.profile ?? "", calls: 0, failed: 0, input: 0, output: 0, uncounted: 0, dollars: null, seconds: 0 });
  return state.usage.get(key);
}

/** @param {import("./events.js").ProfileAttached} payload */
export function takeTimeline(state, event, payload, changes) {
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
