// @ts-check
// The lines of a timeline: group headings (a GPU, the CUDA calls, the ranges) and their rows, with their positions. Labels are HTML, so that they can
// be read by screen readers and folded with the keyboard.
import { h, setText } from "../run/dom.js";
import { mean, reading } from "./counters.js";
import { percent } from "./format.js";
import { busyWithin } from "./tracks.js";

export const AXIS = 24; // height of the time axis above the rows
export const HEIGHTS = { low: 13, normal: 18, high: 26 }; // height of one line of boxes, including its gap
export const MAX_DEPTH = 12; // deeper nesting is left out, and the label says so
const HEADING = 22;
const ROW_GAP = 5;

export const rowKey = (row) => (row.group ? `${row.group} / ${row.name}` : row.name);

const COUNTER = 40; // height of a counter's line

export const counterKey = (counter) => `counter:${counter.group} / ${counter.name}`;

// Determines which tracks are shown. `folded` holds the keys of rows that are shown as one line, and of groups ("group:" + name) that are shown as
// one line with the activity of all their rows. `pinned` rows come first, `hidden` ones aren't shown, and all others must contain the text `filter`.
export class Choice {
  constructor() {
    this.folded = new Set();
    this.pinned = new Set();
    this.hidden = new Set();
    this.filter = "";
  }

  shows(key) {
    if (this.hidden.has(key)) return false;
    return this.pinned.has(key) || !this.filter || key.toLowerCase().includes(this.filter.toLowerCase());
  }

  toggle(set, key) {
    if (this[set].has(key)) this[set].delete(key);
    else this[set].add(key);
  }
}

// Everything that can be shown as a line: {key, name, group, row or counter}, in display order.
function parts(model) {
  const rows = model.rows.filter((row) => row.events).map((row) => ({ key: rowKey(row), name: row.name, group: row.group || KINDS[row.kind] || "Other", row }));
  const counters = (model.header.counters ?? []).filter(({ times }) => times.length).map((counter) => ({ key: counterKey(counter), name: counter.name, group: counter.group || KINDS.gpu, counter }));
  return [...rows, ...counters];
}

export function layout(model, choice, track) {
  const all = parts(model);
  const shown = all.filter(({ key }) => choice.shows(key));
  const groups = new Map();
  for (const part of shown) {
    const name = choice.pinned.has(part.key) ? PINNED : part.group;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(part);
  }
  const lines = [];
  let y = AXIS;
  const add = (line) => {
    lines.push(line);
    y += line.height;
  };
  for (const [name, members] of [...groups].sort(([a], [b]) => Number(b === PINNED) - Number(a === PINNED))) {
    const heading = headingOf(model, name, members, choice, track, y);
    add(heading);
    if (heading.closed) continue;
    for (const part of members) add(part.counter ? counterLine(part, choice, y) : rowLine(model, part, choice, track, y));
  }
  return { lines, height: y + 4, hidden: all.length - shown.length };
}

const PINNED = "Pinned";

function headingOf(model, name, members, choice, track, y) {
  const key = `group:${name}`;
  const closed = choice.folded.has(key);
  const rows = members.flatMap(({ row }) => row ?? []);
  const height = closed ? Math.max(HEADING, track) + 2 : HEADING;
  return { kind: "group", key, name, rows, closed, y, top: closed ? y + (height - track) / 2 : y, height, depths: closed && rows.length ? 1 : 0, tracks: closed ? rows.map((row) => model.firstTrack[row.index]) : [] };
}

function rowLine(model, { key, name, row }, choice, track, y) {
  const closed = choice.folded.has(key);
  const depths = closed ? 1 : Math.min(row.depths, MAX_DEPTH);
  const tracks = Array.from({ length: depths }, (_, depth) => model.firstTrack[row.index] + depth);
  return { kind: "row", key, name, rows: [row], row, closed, pinned: choice.pinned.has(key), y, top: y + ROW_GAP / 2, height: depths * track + ROW_GAP, depths, tracks };
}

function counterLine({ key, name, counter }, choice, y) {
  return { kind: "counter", key, name, rows: [], counter, closed: false, pinned: choice.pinned.has(key), y, top: y + ROW_GAP / 2, height: COUNTER, depths: 0, tracks: [] };
}

const KINDS = { gpu: "GPU", api: "CUDA", nvtx: "NVTX", thread: "Threads" };

// `act` has the methods fold(key), pin(key) and hide(key).
export function labels(lines, act) {
  return lines.map((line) => {
    const can = line.kind === "group" || line.row?.depths > 1;
    const deeper = line.kind === "row" && line.row.depths > MAX_DEPTH && !line.closed ? ` (+${line.row.depths - MAX_DEPTH})` : "";
    const text = h("span", { class: "line-name" }, `${line.name}${deeper}`);
    line.share = h("span", { class: "line-share", title: line.counter ? "mean of the visible range" : "share of the visible time spent working" });
    const inside = can
      ? h("button", { type: "button", class: "line-fold", "aria-expanded": String(!line.closed), title: `${line.closed ? "Unfold" : "Fold"} ${line.key.replace(/^group:/, "")}`, onclick: () => act.fold(line.key) }, h("span", { class: "fold", "aria-hidden": "true" }, line.closed ? "▸" : "▾"), text)
      : h("span", { class: "line-still", title: line.key.replace(/^counter:/, "") }, text);
    const label = h("div", { class: `line ${line.kind}` }, inside, line.kind === "group" ? null : h("span", { class: "line-end" }, line.counter || line.row.kind === "gpu" ? line.share : null, trackButtons(line, act)));
    label.style.height = `${line.height}px`;
    return label;
  });
}

function trackButtons(line, act) {
  const button = (sign, what, action, pressed) => h("button", { type: "button", class: "line-act", title: what, "aria-label": `${what}: ${line.name}`, "aria-pressed": pressed == null ? null : String(pressed), onclick: action }, sign);
  return [button("⇡", line.pinned ? "Unpin" : "Pin to the top", () => act.pin(line.key), line.pinned), button("✕", "Hide", () => act.hide(line.key))];
}

// Shows how busy each stream is in the visible range, and the counter values there. Only text that has changed is written.
export function showShares(model, lines, from, to) {
  for (const line of lines) {
    if (line.counter) setText(line.share, reading(line.counter, mean(line.counter, from, to)));
    else if (line.kind === "row" && line.row.kind === "gpu") setText(line.share, percent(busyWithin(model, line.tracks[0], from, to) / (to - from)));
  }
}

export function lineOf(lines, model, event) {
  const row = model.rows[model.columns.row[event]];
  const key = rowKey(row);
  return lines.find((line) => line.kind === "row" && line.key === key) ?? lines.find((line) => line.kind === "group" && line.rows.includes(row));
}

// The row height is stored only in this browser.
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
    // Storage is blocked, so the height is not remembered.
  }
}
