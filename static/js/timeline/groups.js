// @ts-check
// The groupings of a range's table, as {key(event), label(key)} for stats.byGroup.
import { firstFrom } from "./tracks.js";

export const GROUPS = { name: "name", module: "module", stream: "stream", grid: "grid and block" };
export const NO_MODULE = "(no module)";

export function groupOf(model, by) {
  const { name, row } = model.columns;
  if (by === "module") {
    const modules = modulesOf(model);
    return { key: (event) => modules[event], label: (key) => (key ? model.header.names[key - 1] : NO_MODULE) };
  }
  if (by === "stream") return { key: (event) => row[event], label: (key) => (model.rows[key].group ? `${model.rows[key].group}, ${model.rows[key].name}` : model.rows[key].name) };
  if (by === "grid") return { key: (event) => gridOf(model, event), label: (key) => key };
  return { key: (event) => name[event], label: (key) => model.header.names[key] };
}

const triple = (value) => (Array.isArray(value) ? value.join(" × ") : "");

function gridOf(model, event) {
  const detail = model.header.details?.table?.[model.columns.detail[event] - 1];
  const [grid, block] = [triple(detail?.grid), triple(detail?.block)];
  return grid ? `grid ${grid}${block ? `, block ${block}` : ""}` : "(no grid)";
}

// For each event, 1 + the name index of the innermost module in which it was launched (or ran, on a thread), or 0 if there is none. Cached in the
// model.
export function modulesOf(model) {
  if (model.modules) return model.modules;
  const { start, name, kind } = model.columns;
  const module = model.header.kinds.indexOf("module");
  const found = new Uint32Array(kind.length);
  const tracks = [];
  for (const row of model.rows) if (row.kind === "nvtx" && row.events) for (let t = model.firstTrack[row.index]; t < model.firstTrack[row.index + 1]; t += 1) if (kind[model.offsets[t]] === module) tracks.push(t);
  for (let event = 0; tracks.length && event < kind.length; event += 1) {
    const at = model.launch[event] ? start[model.launch[event] - 1] : start[event];
    const inner = innermost(model, tracks, at);
    if (inner >= 0) found[event] = name[inner] + 1;
  }
  return (model.modules = found);
}

// The range in these tracks that contains `at` and began last, or -1 if there is none.
function innermost(model, tracks, at) {
  const { start, duration } = model.columns;
  let best = -1;
  for (const track of tracks) {
    let k = firstFrom(model, track, at);
    if (k === model.offsets[track + 1] || start[k] > at) k -= 1;
    if (k >= model.offsets[track] && start[k] + duration[k] >= at && (best < 0 || start[k] >= start[best])) best = k;
  }
  return best;
}
