// The lines of a timeline: headings of groups (a GPU, the CUDA calls, the ranges) and their rows, with where each stands. Labels are HTML, so
// that they can be read aloud and folded by keyboard.
import { h, setText } from "../run/dom.js";
import { percent } from "./format.js";
import { busyWithin } from "./tracks.js";

export const AXIS = 24; // height of the time axis above the rows
export const HEIGHTS = { low: 13, normal: 18, high: 26 }; // of one line of boxes, with its gap
export const MAX_DEPTH = 12; // deeper nesting is left out, and the label says so
const HEADING = 22;
const ROW_GAP = 5;

export const rowKey = (row) => (row.group ? `${row.group} / ${row.name}` : row.name);

// `folded` holds keys of rows (shown as one line) and of groups ("group:" + name; shown as one line of all that their rows do).
export function layout(model, folded, track) {
  const lines = [];
  const groups = new Map();
  for (const row of model.rows) {
    if (!row.events) continue;
    const name = row.group || KINDS[row.kind] || "Other";
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  let y = AXIS;
  for (const [name, rows] of groups) {
    const key = `group:${name}`;
    const closed = folded.has(key);
    lines.push({ kind: "group", key, name, rows, closed, y, top: y, height: closed ? Math.max(HEADING, track) + 2 : HEADING, depths: closed ? 1 : 0, tracks: closed ? rows.map((row) => model.firstTrack[row.index]) : [] });
    y += lines.at(-1).height;
    if (closed) {
      lines.at(-1).top += (lines.at(-1).height - track) / 2;
      continue;
    }
    for (const row of rows) {
      const shut = folded.has(rowKey(row));
      const depths = shut ? 1 : Math.min(row.depths, MAX_DEPTH);
      const height = depths * track + ROW_GAP;
      lines.push({ kind: "row", key: rowKey(row), name: row.name, rows: [row], row, closed: shut, y, top: y + ROW_GAP / 2, height, depths, tracks: Array.from({ length: depths }, (_, depth) => model.firstTrack[row.index] + depth) });
      y += height;
    }
  }
  return { lines, height: y + 4 };
}

const KINDS = { gpu: "GPU", api: "CUDA", nvtx: "NVTX", thread: "Threads" };

export function labels(model, lines, toggle) {
  return lines.map((line) => {
    const can = line.kind === "group" || line.row.depths > 1;
    const hidden = line.kind === "row" && line.row.depths > MAX_DEPTH && !line.closed ? ` (+${line.row.depths - MAX_DEPTH})` : "";
    const text = h("span", { class: "line-name" }, `${line.name}${hidden}`);
    line.share = h("span", { class: "line-share", title: "share of the visible time spent working" });
    const inside = can
      ? h("button", { type: "button", "aria-expanded": String(!line.closed), title: `${line.closed ? "Unfold" : "Fold"} ${line.key.replace(/^group:/, "")}`, onclick: () => toggle(line.key) }, h("span", { class: "fold", "aria-hidden": "true" }, line.closed ? "▸" : "▾"), text)
      : h("span", { class: "line-still", title: line.key }, text);
    const label = h("div", { class: `line ${line.kind}` }, inside, line.kind === "row" && line.row.kind === "gpu" ? line.share : null);
    label.style.height = `${line.height}px`;
    return label;
  });
}

// How busy each stream is within the visible range; only the text that changed is written.
export function showShares(model, lines, from, to) {
  for (const line of lines) if (line.kind === "row" && line.row.kind === "gpu") setText(line.share, percent(busyWithin(model, line.tracks[0], from, to) / (to - from)));
}

export function lineOf(lines, model, event) {
  const row = model.rows[model.columns.row[event]];
  const key = rowKey(row);
  return lines.find((line) => line.kind === "row" && line.key === key) ?? lines.find((line) => line.kind === "group" && line.rows.includes(row));
}

// The row height is remembered on this machine only.
const STORED = "timeline-rows";

export function rememberedHeight() {
  try {
    const found = localStorage.getItem(STORED);
    return found in HEIGHTS ? found : "normal";
  } catch {
    return "normal";
  }
}

export function rememberHeight(name) {
  try {
    localStorage.setItem(STORED, name);
  } catch {
    // Not remembered, then.
  }
}
