// @ts-check
// Computes the figures of a range of the timeline, with times in nanoseconds. The functions are generators that pause every few thousand events, so
// that counting a million events never delays a frame. `inSlices` runs them.
import { busyWithin, firstReaching } from "./tracks.js";

const EVENTS_A_STEP = 8192;
const SLICE = 5; // ms per slice

// Runs a generator between frames and passes on its result. The returned function stops it.
export function inSlices(generator, done) {
  let timer = 0;
  const turn = () => {
    const until = performance.now() + SLICE;
    for (;;) {
      const { done: finished, value } = generator.next();
      if (finished) return done(value);
      if (performance.now() > until) break;
    }
    timer = setTimeout(turn, 0);
  };
  timer = setTimeout(turn, 0);
  return () => clearTimeout(timer);
}

export function atOnce(generator) {
  for (;;) {
    const { done, value } = generator.next();
    if (done) return value;
  }
}

// The devices that the figures cover: each GPU with its streams, or the threads if the device is the CPU.
export function devicesOf(model) {
  const found = new Map();
  const gpu = model.rows.some((row) => row.kind === "gpu" && row.events);
  for (const row of model.rows) {
    if (!row.events || row.kind !== (gpu ? "gpu" : "thread")) continue;
    const name = gpu ? row.group || "GPU" : "CPU threads";
    if (!found.has(name)) found.set(name, { name, gpu, rows: [] });
    found.get(name).rows.push(row);
  }
  return [...found.values()];
}

// The category of a device event. `own` holds the name indices of the program's own kernels, or is null if they are unknown.
export function categories(model, own) {
  const { kinds } = model.header;
  const { kind, name } = model.columns;
  const plain = kinds.map((text) => ({ memcpy: "copies", memset: "copies", graph: "graphs", operator: "library", own: "own", sync: "other", api: "other", nvtx: "other" })[text] ?? "");
  return (event) => plain[kind[event]] || (own ? (own.has(name[event]) ? "own" : "library") : "kernels");
}

export function* figures(model, { from, to, rows = null, own = null, group = null }) {
  const devices = devicesOf(model);
  const category = categories(model, own);
  const wanted = rows ?? devices.flatMap((device) => device.rows);
  const result = { from, to, rows: wanted, devices: [], names: yield* group ? byGroup(model, wanted, from, to, group, category) : byName(model, wanted, from, to, category) };
  for (const device of to > from ? devices : []) {
    const chosen = rows ? device.rows.filter((row) => rows.includes(row)) : device.rows;
    if (chosen.length) result.devices.push(yield* ofDevice(model, { ...device, rows: chosen }, from, to, category));
  }
  result.launches = rows ? null : yield* launchCalls(model, from, to); // calls in the whole range, because they belong to no stream
  result.hiddenGraphs = model.hiddenGraphs.filter((at) => at >= from && at < to).length;
  return result;
}

export function* byName(model, rows, from, to, category = () => "") {
  const { names } = model.header;
  const { name } = model.columns;
  return yield* byGroup(model, rows, from, to, { key: (event) => name[event], label: (key) => names[key] }, category);
}

/**
 * Sums up the events in [from, to) by group key: count, total, shortest and longest time. Nested time counts only once, for the inner event.
 * @param {(event: number) => string} [category]
 */
export function* byGroup(model, rows, from, to, group, category = () => "") {
  const { start, duration, name } = model.columns;
  const sums = new Map();
  let steps = 0;
  for (const row of rows) {
    for (let t = model.firstTrack[row.index]; t < model.firstTrack[row.index + 1]; t += 1) {
      for (let k = firstReaching(model, t, from); k < model.offsets[t + 1] && start[k] < to; k += 1) {
        if ((steps += 1) % EVENTS_A_STEP === 0) yield;
        const end = start[k] + duration[k];
        if (end <= from && duration[k] > 0) continue;
        const inside = end > to || start[k] < from ? (Math.min(end, to) - Math.max(start[k], from)) / (duration[k] || 1) : 1;
        const key = group.key(k);
        let sum = sums.get(key);
        if (!sum) sums.set(key, (sum = { key, label: group.label(key), name: name[k], category: category(k), count: 0, total: 0, least: Infinity, most: 0, first: k }));
        sum.count += 1;
        sum.total += model.own[k] * inside;
        if (duration[k] < sum.least) sum.least = duration[k];
        if (duration[k] > sum.most) sum.most = duration[k];
      }
    }
  }
  return [...sums.values()].sort((a, b) => b.total - a.total);
}

// Analyses one device over [from, to): where its time goes, the gaps between events, and their causes. The idle time before an event is attributed to
// the host until the call that launched it began, and to launching after that. If that call began before the device became idle, the event was
// queued. (The causes are those of HolisticTraceAnalysis.)
function* ofDevice(model, device, from, to, category) {
  const { start, duration, kind } = model.columns;
  const [kernel, graph] = ["kernel", "graph"].map((text) => model.header.kinds.indexOf(text));
  const heads = [];
  for (const row of device.rows) {
    const depths = device.gpu ? row.depths : 1; // on a thread, the first depth contains all nested events
    for (let depth = 0; depth < depths; depth += 1) {
      const track = model.firstTrack[row.index] + depth;
      heads.push({ at: firstReaching(model, track, from), end: model.offsets[track + 1] });
    }
  }
  const where = {};
  const idle = { host: 0, launching: 0, queued: 0, unknown: 0 };
  const gaps = [];
  const latencies = [];
  let longest = null;
  let kernels = 0;
  let graphs = 0;
  let events = 0;
  let until = from;
  let began = false;
  let steps = 0;
  for (;;) {
    if ((steps += 1) % EVENTS_A_STEP === 0) yield;
    let chosen = null;
    for (const head of heads) if (head.at < head.end && (!chosen || start[head.at] < start[chosen.at])) chosen = head;
    const event = chosen ? chosen.at : -1;
    const begin = chosen ? Math.max(start[event], from) : to;
    if (begin >= to) {
      blame(idle, model, event, until, to);
      break;
    }
    chosen.at += 1;
    events += 1;
    if (kind[event] === kernel) kernels += 1;
    else if (kind[event] === graph) graphs += 1;
    const call = model.launch[event];
    if (call && start[event] >= from) latencies.push(start[event] - start[call - 1]);
    const end = Math.min(start[event] + duration[event], to);
    if (end <= until) continue;
    if (begin > until) {
      blame(idle, model, event, until, begin);
      if (began) {
        gaps.push(begin - until);
        if (!longest || begin - until > longest.to - longest.from) longest = { from: until, to: begin };
      }
    }
    const what = category(event);
    where[what] = (where[what] ?? 0) + end - Math.max(begin, until);
    until = end;
    began = true;
  }
  const streams = [];
  for (const row of device.rows) streams.push(yield* ofStream(model, row, from, to));
  const busy = Object.values(where).reduce((sum, part) => sum + part, 0);
  return { name: device.name, gpu: device.gpu, where, busy, idle, span: to - from, gaps: spread(gaps), longest, kernels, graphs, events, latency: spread(latencies), streams };
}

function blame(idle, model, event, from, to) {
  if (to <= from) return;
  const call = event >= 0 ? model.launch[event] : 0;
  if (!call) {
    idle.unknown += to - from;
    return;
  }
  const called = model.columns.start[call - 1];
  if (called <= from) idle.queued += to - from;
  else {
    idle.host += Math.min(called, to) - from;
    idle.launching += Math.max(0, to - called);
  }
}

function* ofStream(model, row, from, to) {
  const { start, duration } = model.columns;
  const track = model.firstTrack[row.index];
  const gaps = [];
  let until = -1;
  let events = 0;
  for (let k = firstReaching(model, track, from); k < model.offsets[track + 1] && start[k] < to; k += 1) {
    if (k % EVENTS_A_STEP === 0) yield;
    events += 1;
    if (until >= 0 && start[k] > until) gaps.push(start[k] - until);
    until = Math.max(until, start[k] + duration[k]);
  }
  return { row, events, busy: busyWithin(model, track, from, to), gaps: spread(gaps) };
}

// The number of calls in the range that launched something on a device.
function* launchCalls(model, from, to) {
  const { start, correlation, kind } = model.columns;
  const api = model.header.kinds.indexOf("api");
  const { head, next } = model.links;
  let calls = 0;
  for (const row of model.rows) {
    if (row.kind !== "api" || !row.events) continue;
    for (let t = model.firstTrack[row.index]; t < model.firstTrack[row.index + 1]; t += 1) {
      for (let k = firstReaching(model, t, from); k < model.offsets[t + 1] && start[k] < to; k += 1) {
        if (k % EVENTS_A_STEP === 0) yield;
        const c = correlation[k];
        if (start[k] >= from && kind[k] === api && c && c < head.length && next[head[c] - 1]) calls += 1;
      }
    }
  }
  return calls;
}

function spread(values) {
  const sorted = Float64Array.from(values).sort(); // sorts several times faster than a plain array
  const at = (part) => (sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] : null);
  return { count: sorted.length, p50: at(0.5), p95: at(0.95), most: sorted.length ? sorted.at(-1) : null };
}
