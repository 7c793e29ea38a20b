// @ts-check
// The state of a run, derived from its events: the data structures, and helpers shared by the folders (folders.js). It doesn't use the DOM.
import { PREVIEW, characters, newlines, preview } from "./preview.js";

export function createState() {
  return {
    last: 0, // seq of the last event applied
    run: {
      state: "queued", outcome: "", reason: "", best: null, speedup: null, startedAt: null, finishedAt: null,
      pause: null, forked: null, refused: false, planned: 0,
      workflow: "", planner: "", coder: "", judge: "", device: "", precision: "", mode: "", target: null, task: null, waiting: "",
    },
    spans: new Map(), // path -> span
    roots: [], // paths of spans without a parent, in the order in which they were opened
    items: [], // the conversation, in order of first appearance; an item's `index` is its position here
    itemById: new Map(),
    messages: new Map(), // message id -> its item
    candidates: new Map(), // number -> candidate
    verifications: new Map(), // journal key -> its item
    calls: new Map(), // journal key of an exchange with a model -> its item
    decisions: new Map(), // seq -> its item
    ways: new Set(), // numbers of the branches (ways) that the run explores concurrently; empty if there is only one
    told: new Map(), // seq of an event that adds to an earlier item -> that item
    bestLow: 1, // the highest lower bound of a passing candidate so far, which the next one has to exceed
    timelines: [], // {seq, candidate, title, tool, timeline}; `candidate` is null for the reference
    stageSeconds: new Map(), // "job/stage/tier" -> seconds of the stages that have ended, for estimates
    tree: 0, // seq of the last event with a decision tree
    usage: new Map(), // "role/profile" -> what the model has done in this role
    spent: {},
    limits: {},
  };
}

// The changes since the last draw: ids of items, paths of spans, numbers of candidates, and flags for the rest.
export function createChanges() {
  return { items: new Set(), spans: new Set(), candidates: new Set(), header: false, chart: false, tree: false, timelines: false, ways: false, notices: [] };
}

export function addItem(state, changes, event, kind, fields = {}) {
  /** @type {{ id: string, [field: string]: any }} */
  const item = { id: `e${event.seq}`, seq: event.seq, index: state.items.length, kind, at: event.at, agent: event.agent || "engine", span: event.span || "", ...fields };
  if (event.cut) item.cut = event.cut; // {field: characters} of strings that arrived as previews
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

// A finished text keeps only a preview and its counts. The page requests the rest when somebody wants to read it.
export function finishText(item) {
  if (item.characters > PREVIEW) item.text = preview(item.text);
  item.whole = !item.gap && !item.artefact && characters(item.text) === item.characters;
}

// Adds a piece of a streamed text. In a stretch of the trace, many pieces are merged into one, with a preview and the counts of the full text.
/** @param {import("./events.js").MessageDelta} payload */
export function addText(item, payload) {
  const text = payload.text ?? "";
  if (payload.offset > item.characters) {
    item.gap = true; // the finished message contains the full text
    return;
  }
  if (payload.offset < item.characters) {
    // The writer died while the call was in flight, and the text starts again from here.
    item.text = [...item.text].slice(0, payload.offset).join("");
    item.characters = payload.offset;
    item.newlines = newlines(item.text);
  }
  item.text += text;
  item.characters += payload.characters ?? characters(text);
  item.newlines += payload.newlines ?? newlines(text);
}

// The event `seq` adds to an existing item, so a link to the event leads to that item.
export function tell(state, event, item) {
  if (item.seq !== event.seq) state.told.set(event.seq, item);
}

// The usage of a span without its children. The tree adds up the spans below it.
export function spend(state, event, changes, amounts) {
  if (!event.span) return;
  const { own } = ensureSpan(state, event.span, changes);
  for (const [name, amount] of Object.entries(amounts)) own[name] += amount ?? 0;
  changes.tree = true;
}

// The item that shows an event: its own, or the earlier item that it adds to. A piece of a text belongs to the text's item.
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

// A verifier identifies a job's candidate as in the request, either by number or by the number as a string.
export const numbered = (candidate) => (candidate == null || candidate === "" ? null : Number(candidate));

/** @param {import("./events.js").VerificationQueued | import("./events.js").VerificationStage | import("./events.js").VerificationFinished} payload */
export function verificationItem(state, event, payload, changes) {
  let item = state.verifications.get(payload.key);
  if (!item) {
    item = addItem(state, changes, event, "verification", {
      key: payload.key, job: ("job" in payload ? payload.job : null) ?? "verify", candidate: numbered("candidate" in payload ? payload.candidate : null), queuedAt: event.at, startedAt: null, finishedAt: null,
      attempt: 1, stages: [], status: "", message: "", tier: "", speedup: null, faster: false, programClass: "", programMs: null, result: null, ok: null, flags: [],
    });
    state.verifications.set(payload.key, item);
  }
  tell(state, event, item);
  changes.items.add(item.id);
  return item;
}

// The full measurement is the result. A quick one only guides the search.
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

// The best candidate so far is the one that the run names or, if it names none, the passing one with the highest lower bound.
export function bestCandidate(state) {
  if (state.run.state === "finished") return state.run.best == null ? null : (state.candidates.get(state.run.best) ?? null);
  let best = null;
  for (const candidate of state.candidates.values()) {
    if (candidate.status !== "passed" || !candidate.speedup) continue;
    if (!best || candidate.speedup.low > best.speedup.low) best = candidate;
  }
  return best;
}

// A full measurement takes several times as long as a quick one, so each tier has its own estimate.
export const stageName = (item, stage) => `${item.job}/${stage}/${item.tier}`;

// The median seconds of a stage in this run for the same kind of job, or null if none has ended yet.
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
