// @ts-check
// Describes the selected event and the events that launched it or that it launched, and shows the tooltip at the pointer.
import { h } from "../run/dom.js";
import { mean, reading } from "./counters.js";
import { duration } from "./format.js";
import { linked } from "./links.js";

const KINDS = { kernel: "kernel", memcpy: "copy", memset: "fill", sync: "synchronisation", api: "API call", nvtx: "NVTX range", operator: "operator", module: "module", own: "own code", graph: "CUDA graph" };
const PARTNERS = 6;

export const nameOf = (model, event) => model.header.names[model.columns.name[event]] ?? "?";
const kindOf = (model, event) => model.header.kinds[model.columns.kind[event]];

export function tooltip(model, event) {
  const { start, duration: took, row } = model.columns;
  const inner = model.own[event] < took[event] * 0.995 ? ` (${duration(model.own[event])} its own)` : "";
  return [
    h("b", { class: "mono" }, nameOf(model, event)),
    h("span", null, `${duration(took[event])}${inner} · at ${duration(start[event])}`),
    h("span", { class: "muted" }, `${KINDS[kindOf(model, event)] ?? ""} · ${model.rows[row[event]].name}`),
  ];
}

// The launch latency of an event in ns, measured from the start and from the return of the call that launched it.
export function latency(model, event) {
  const call = model.launch[event] - 1;
  if (call < 0) return null;
  const { start, duration: took } = model.columns;
  return { call, sinceCall: start[event] - start[call], sinceReturn: start[event] - start[call] - took[call] };
}

// The launch configuration in CUDA's terms, and the other details that the profiler recorded for the event.
function detailPairs(model, event) {
  const at = model.columns.detail[event];
  const found = at ? model.header.details?.table?.[at - 1] : null;
  if (!found || typeof found !== "object") return [];
  return Object.entries(found)
    .filter(([, value]) => value != null && value !== "")
    .map(([name, value]) => [NAMES[name] ?? name.replaceAll("_", " "), Array.isArray(value) ? value.join(" × ") : typeof value === "number" ? `${value.toLocaleString("en")}${UNITS[name] ?? ""}` : String(value)])
    .concat(threadsPair(found));
}

const NAMES = { registers: "registers a thread", shared_static: "static shared memory", shared_dynamic: "dynamic shared memory", shared: "shared memory", local_per_thread: "local memory a thread", graph_node: "node of a CUDA graph", bytes: "size" };
const UNITS = { shared_static: " B", shared_dynamic: " B", shared: " B", local_per_thread: " B", bytes: " B" };

function threadsPair({ grid, block }) {
  if (!Array.isArray(grid) || !Array.isArray(block)) return [];
  return [["threads", [...grid, ...block].reduce((product, size) => product * size, 1).toLocaleString("en")]];
}

// This kernel's counters from Nsight Compute (means over its launches), and the counters sampled while the event ran.
function counterParts(lane, event) {
  const { model, config } = lane;
  if (kindOf(model, event) !== "kernel") return [];
  const counted = config.kernels?.[nameOf(model, event)];
  const { start, duration: took, row } = model.columns;
  const { group } = model.rows[row[event]];
  const sampled = (model.header.counters ?? []).filter((counter) => !counter.group || counter.group === group).map((counter) => [counter.name, reading(counter, mean(counter, start[event], start[event] + took[event]))]);
  const list = (pairs) => h("dl", { class: "facts compact" }, pairs.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, String(value))]));
  return [
    ...(counted?.length ? [h("h4", null, "Hardware counters of this kernel"), list(counted)] : config.kernels ? [h("p", { class: "faint" }, config.uncounted || "No hardware counters were taken of this kernel.")] : []),
    ...(sampled.length ? [h("h4", null, "Counters while it ran"), list(sampled)] : []),
  ];
}

export function selectedPanel(lane, event, choose) {
  const { model } = lane;
  if (event < 0) return [h("h3", null, "Selected"), h("p", { class: "muted" }, "Click an event to select it, drag to measure a range. ", h("kbd", null, "W"), " ", h("kbd", null, "S"), " zoom, ", h("kbd", null, "A"), " ", h("kbd", null, "D"), " pan, ", h("kbd", null, "."), " ", h("kbd", null, ","), " step along the row, ", h("kbd", null, "?"), " lists all keys.")];
  const { start, duration: took, row } = model.columns;
  const partners = linked(model, event);
  const launched = latency(model, event);
  const pairs = [
    ["kind", KINDS[kindOf(model, event)] ?? kindOf(model, event)],
    ["row", model.rows[row[event]].name],
    ["begins", duration(start[event])],
    ["took", duration(took[event])],
    ...(model.own[event] < took[event] * 0.995 ? [["its own", duration(model.own[event])]] : []),
    ...(launched ? [["launch latency", `${duration(launched.sinceCall)} after the call began, ${launched.sinceReturn >= 0 ? `${duration(launched.sinceReturn)} after it returned` : `${duration(-launched.sinceReturn)} before it returned`}`]] : []),
    ...detailPairs(model, event),
  ];
  return [
    h("h3", { class: "mono" }, nameOf(model, event)),
    h("dl", { class: "facts compact" }, pairs.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, String(value))])),
    ...counterParts(lane, event),
    partners.length ? h("p", { class: "links" }, partners.slice(0, PARTNERS).map((partner) => partnerButton(model, event, partner, choose)), partners.length > PARTNERS ? h("span", { class: "faint" }, `and ${partners.length - PARTNERS} more from the same launch`) : null) : null,
  ].filter(Boolean);
}

function partnerButton(model, event, partner, choose) {
  const { start } = model.columns;
  const by = start[partner] - start[event];
  const text = model.launch[event] === partner + 1 ? `launched by ${nameOf(model, partner)}` : model.launch[partner] === event + 1 ? `launches ${nameOf(model, partner)}` : nameOf(model, partner);
  return h("button", { type: "button", class: "button small", onclick: () => choose(partner) }, `${by >= 0 ? "→" : "←"} ${text.length > 70 ? `${text.slice(0, 69)}…` : text} (${duration(Math.abs(by))} ${by >= 0 ? "later" : "before"})`);
}
