// @ts-check
// One timeline in a box: its header, minimap, labels and canvas. The box (view.js) determines the range that all its lanes show.
import { counted } from "../lib/words.js";
import { h } from "../run/dom.js";
import { iterations } from "./compare.js";
import { tooltip } from "./details.js";
import { count, duration } from "./format.js";
import { Input } from "./input.js";
import { linked } from "./links.js";
import { load } from "./load.js";
import { Minimap } from "./minimap.js";
import { Painter } from "./painter.js";
import { AXIS, Choice, HEIGHTS, labels, layout, lineOf, rowKey, showShares } from "./rows.js";
import { devicesOf } from "./stats.js";
import { firstReaching, hit, trackOf } from "./tracks.js";

export const graphNote = (launches) => `The kernels inside ${counted(launches, "launch")} of CUDA graphs weren't recorded, so they're missing from every count and table. To see them, record with nsys profile --cuda-graph-trace=node.`;

export class Lane {
  constructor(box, index, config) {
    this.box = box;
    this.index = index;
    this.config = config;
    this.name = config.name;
    this.sha = config.sha ?? /[0-9a-f]{64}/.exec(config.url)?.[0] ?? "";
    this.offset = 0; // position of the box's 0 on this timeline's own clock, in ns
    this.selected = this.hover = -1;
    this.partners = [];
    this.measure = this.matches = null;
    this.marks = [];
    this.choice = new Choice();
    this.build();
  }

  build() {
    this.summary = h("p", { class: "timeline-summary" });
    this.notes = h("div", { class: "timeline-notes", hidden: true });
    this.minimapCanvas = h("canvas", { class: "timeline-minimap", "aria-hidden": "true" });
    this.canvas = h("canvas", {
      class: "timeline-canvas",
      tabindex: "0",
      role: "application",
      "aria-label": `Timeline of ${this.name}. W and S zoom, A and D pan, full stop and comma step along a row, slash searches, R measures the selected event. The tables below give the same information as text.`,
    });
    this.labels = h("div", { class: "timeline-labels" });
    this.stage = h("div", { class: "timeline-stage" }, this.canvas);
    this.scroller = h("div", { class: "timeline-scroll" }, h("div", { class: "timeline-body" }, h("div", { class: "timeline-gutter" }, h("div", { class: "timeline-corner" }), this.labels), this.stage));
    this.element = h(
      "section",
      { class: "timeline-lane", "aria-label": `Timeline of ${this.name}`, hidden: true },
      h("div", { class: "timeline-lane-head" }, h("h2", { class: this.box.lanesWanted > 1 ? "" : "visually-hidden" }, this.name), this.summary),
      this.notes,
      h("div", { class: "timeline-overview" }, h("span", { class: "timeline-whole faint" }, this.box.lanesWanted > 1 ? "both, on one scale" : "whole span"), this.minimapCanvas),
      this.scroller,
    );
  }

  async load(worker, signal, say) {
    this.model = await load(this.config.url, { worker, signal, say });
    this.span = this.model.header.span_ns || 1;
    const named = this.config.own ? new Set(this.config.own) : null;
    const listed = this.model.header.own;
    this.own = Array.isArray(listed) ? new Set(listed) : named ? new Set(this.model.header.names.flatMap((name, index) => (named.has(name) ? [index] : []))) : null;
    this.devices = devicesOf(this.model);
    this.calls = iterations(this.model);
  }

  start() {
    const { header } = this.model;
    const notes = [...(header.warnings ?? [])];
    if (this.model.hiddenGraphs.length) notes.unshift(graphNote(this.model.hiddenGraphs.length));
    if (header.truncated) notes.unshift(`Kept only the first ${count(header.truncated.kept)} of ${counted(header.truncated.of, "event")}.`);
    this.notes.hidden = !notes.length;
    this.notes.replaceChildren(...notes.map((note) => h("p", { class: "timeline-note" }, h("span", { "aria-hidden": "true" }, "! "), note)));
    this.summary.textContent = this.about;
    this.element.hidden = false;
    this.painter = new Painter(this.canvas);
    this.minimap = new Minimap(this.minimapCanvas);
    this.input = new Input(this.box, this);
    this.scroller.addEventListener("scroll", () => this.box.draw(), { signal: this.box.aborter.signal, passive: true });
    this.relayout();
  }

  // A one-line summary of the recording.
  get about() {
    const { header, count: events } = this.model;
    const calls = this.calls ? `${counted(this.calls.count, "call")} of ${duration(this.calls.wall)}` : "";
    return [calls, counted(events, "event"), duration(this.span), header.tool, header.device].filter(Boolean).join(" · ");
  }

  get view() {
    return { from: this.box.range.from + this.offset, to: this.box.range.to + this.offset };
  }

  // Lays out the rows again after folding or a change of the row height or box size.
  relayout() {
    const track = HEIGHTS[this.box.rowHeight];
    this.laid = layout(this.model, this.choice, track);
    this.painter.use(this.model, this.laid, track);
    this.labels.replaceChildren(...labels(this.laid.lines, { fold: (key) => this.change("folded", key), pin: (key) => this.change("pinned", key), hide: (key) => this.hide(key) }));
    this.stage.style.height = `${Math.max(this.laid.height, 96)}px`;
    this.resize();
  }

  // The minimap shows the box's widest range, on this timeline's own clock.
  overview() {
    const { from, to } = this.box.bounds();
    this.minimap.use(this.model, this.devices, this.span, { from: from + this.offset, to: to + this.offset });
    this.minimap.resize();
  }

  resize() {
    const width = this.stage.clientWidth;
    const limit = parseFloat(getComputedStyle(this.scroller).maxHeight);
    const height = Math.min(Math.max(this.laid.height, 96), Number.isFinite(limit) ? limit : 480);
    if (!width) return;
    this.painter.resize(width, height);
    this.overview();
  }

  // Folds, pins or hides a line, or undoes that. The keyboard focus stays on the same label.
  change(set, key) {
    this.choice.toggle(set, key);
    this.changed();
  }

  hide(key) {
    this.change("hidden", key);
    this.box.say(`${key.replace(/^counter:/, "")} is hidden.`);
  }

  changed() {
    const focused = [...this.labels.querySelectorAll("button")].indexOf(document.activeElement);
    this.relayout();
    const buttons = this.labels.querySelectorAll("button");
    if (focused >= 0 && buttons.length) buttons[Math.min(focused, buttons.length - 1)].focus();
    this.box.tracksChanged();
  }

  paint() {
    const { view } = this;
    const top = this.scroller.scrollTop;
    this.painter.draw({ view, top, origin: this.offset, selected: this.selected, hover: this.hover, partners: this.partners, measure: this.measure, matches: this.matches, marks: this.marks });
    this.minimap.draw(view, this.painter.palette, this.marks);
  }

  showShares() {
    showShares(this.model, this.laid.lines, this.view.from, this.view.to);
  }

  select(event) {
    this.selected = event;
    this.partners = event >= 0 ? linked(this.model, event).slice(0, 64) : [];
  }

  // Scrolls the event's row into view and unfolds its group.
  showRow(event) {
    const row = this.model.rows[this.model.columns.row[event]];
    const line = lineOf(this.laid.lines, this.model, event);
    if (!line && this.choice.hidden.has(rowKey(row))) this.change("hidden", rowKey(row));
    else if (!line) this.box.filterTracks("");
    if (line?.kind === "group" && this.choice.folded.has(line.key)) this.change("folded", line.key);
    if (this.choice.folded.has(rowKey(row)) && this.model.columns.depth[event] > 0) this.change("folded", rowKey(row));
    const y = this.painter.placeOf(event);
    const { scrollTop, clientHeight } = this.scroller;
    if (y != null && (y < scrollTop + AXIS || y > scrollTop + clientHeight - 24)) this.scroller.scrollTop = Math.max(0, y - clientHeight / 2);
  }

  // The event after (1) or before (-1) the selected one in its track. If none is selected, the device's first visible event.
  next(by) {
    const { model } = this;
    if (this.selected < 0) {
      const row = this.devices[0]?.rows[0] ?? model.rows.find((known) => known.events);
      const track = model.firstTrack[row.index];
      const first = firstReaching(model, track, Math.max(0, this.view.from));
      return first < model.offsets[track + 1] ? first : -1;
    }
    const track = trackOf(model, this.selected);
    const at = this.selected + by;
    return at >= model.offsets[track] && at < model.offsets[track + 1] ? at : -1;
  }

  under({ x, y }) {
    if (y < AXIS) return -1;
    const place = this.painter.at(y + this.scroller.scrollTop);
    if (!place) return -1;
    const { view } = this;
    const slack = ((view.to - view.from) / this.painter.width) * 2;
    for (const track of place.tracks) {
      const found = hit(this.model, track, this.painter.time(x, view), slack);
      if (found >= 0) return found;
    }
    return -1;
  }

  // The lines between two y positions on the canvas. An empty list means all lines, which is the case if the drag began on the time axis.
  linesBetween(a, b) {
    const top = this.scroller.scrollTop;
    const [low, high] = a < b ? [a, b] : [b, a];
    return a < AXIS ? [] : this.laid.lines.filter((line) => line.tracks.length && line.y < high + top && line.y + line.height > low + top);
  }

  rowsOf(lines) {
    return lines.flatMap((line) => line.rows);
  }

  hoverAt(at) {
    const found = at ? this.under(at) : -1;
    this.canvas.classList.toggle("over-event", found >= 0);
    if (found !== this.hover) {
      this.hover = found;
      this.box.draw();
    }
    this.box.tip(this, found, at, found >= 0 ? () => tooltip(this.model, found) : null);
  }
}
