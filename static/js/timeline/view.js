// @ts-check
// Shows one timeline, or two on the same scale, in a box, and holds the visible range, selection, measurement and search. Each timeline is a lane.
// For other modules, the box's `timeline` is this view, and `box.marks = [{start_ns, end_ns, label, id, sha?}]` are drawn. The box dispatches
// `timeline:range` {sha, start_ns, end_ns, rows} when a range has been measured, and `timeline:mark` {id} when a mark has been clicked.
import { counted } from "../lib/words.js";
import { h } from "../run/dom.js";
import { anchors } from "./compare.js";
import { keysOnCanvas } from "./keys.js";
import { Lane } from "./lane.js";
import { acceptMarks, placeMarks } from "./marks.js";
import { nameOf } from "./details.js";
import { duration } from "./format.js";
import { Panels } from "./panels.js";
import { HEIGHTS, rememberedHeight, rememberHeight, rowKey } from "./rows.js";
import { find, stepMatch } from "./search.js";
import { Toolbar } from "./toolbar.js";

const LEAST_SPAN = 20; // smallest visible range in ns
const REST = 120; // ms after the last move before the figures are computed

export class TimelineView {
  /**
   * @param {HTMLElement & { timeline?: TimelineView }} element
   * @param {{ url?: string, name?: string, worker?: string | null, lanes?: { url: string, name: string, sha?: string, own?: string[] }[] }} shown -
   *   one or two `lanes`; for a single one, `url` and `name` suffice. `own` holds the names of the program's own kernels.
   */
  constructor(element, { url, name = "", worker = null, lanes = [{ url, name }] }) {
    this.element = element;
    this.workerUrl = worker;
    this.lanesWanted = lanes.length;
    this.range = { from: 0, to: 1 };
    this.grouping = "name"; // grouping of the table (groups.js)
    this.rowHeight = rememberedHeight();
    this.aborter = new AbortController();
    this.toolbar = new Toolbar(this);
    this.lanes = lanes.map((config, index) => new Lane(this, index, config));
    this.active = this.lanes[0];
    this.panels = new Panels(this);
    this.tipElement = h("div", { class: "timeline-tip", hidden: true });
    this.status = h("p", { class: "timeline-status", role: "status" }, "Loading the timeline …");
    this.spoken = h("p", { class: "visually-hidden", role: "status" });
    element.timeline = this;
    element.classList.toggle("comparing", lanes.length > 1);
    element.replaceChildren(this.toolbar.element, this.status, this.panels.first, ...this.lanes.map((lane) => lane.element), this.panels.element, this.tipElement, this.spoken);
    acceptMarks(this);
    this.ready = this.load();
  }

  destroy() {
    this.aborter.abort();
    this.sizes?.disconnect();
    this.panels.stop();
    clearTimeout(this.resting);
  }

  async load() {
    for (const lane of this.lanes) {
      try {
        await lane.load(this.workerUrl, this.aborter.signal, (text) => (this.status.textContent = text));
      } catch (error) {
        if (this.aborter.signal.aborted) return false;
        this.fail(lane, error);
        return false;
      }
      if (this.aborter.signal.aborted) return false;
    }
    this.start();
    return true;
  }

  fail(lane, error) {
    this.element.replaceChildren(
      h(
        "div",
        { class: "notice bad timeline-problem", role: "alert" },
        h("span", { class: "sign", "aria-hidden": "true" }, "✕"),
        h(
          "div",
          null,
          h("p", null, h("strong", null, `The timeline${lane.name ? ` of ${lane.name}` : ""} cannot be drawn: `), `${error.message}.`),
          h("p", null, "The stored recording is unchanged. Try again; if it still fails, download the file and profile the candidate again."),
          h("p", { class: "row" }, h("button", { type: "button", class: "button small", onclick: () => this.again() }, "Try again"), h("a", { class: "button small", href: `${lane.config.url}?download` }, "Download the file")),
        ),
      ),
    );
  }

  again() {
    const lanes = this.lanes.map((lane) => lane.config);
    this.destroy();
    return new TimelineView(this.element, { worker: this.workerUrl, lanes });
  }

  start() {
    const { signal } = this.aborter;
    const bare = this.lanes.filter((lane) => !lane.model.count);
    if (bare.length) {
      const lacks = bare.flatMap((lane) => lane.model.header.warnings ?? []);
      this.status.textContent = [`The profiler recorded nothing${this.lanes.length > 1 ? ` of ${bare.map((lane) => lane.name).join(" and ")}` : ""}.`, ...lacks].join(" ");
      return;
    }
    this.status.hidden = true;
    if (this.lanes.length > 1) {
      this.anchors = anchors(this.lanes.map((lane) => lane.model));
      this.usualAnchor = Math.min(1, this.anchors.length - 1);
      this.align(this.usualAnchor, false);
    }
    this.range = this.bounds();
    for (const lane of this.lanes) {
      lane.start();
      keysOnCanvas(this, lane.canvas, signal);
    }
    const repaint = () => {
      for (const lane of this.lanes) lane.painter.readColours();
      this.draw();
    };
    document.addEventListener("themechange", repaint, { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint, { signal });
    this.sizes = new ResizeObserver(() => this.resized());
    for (const lane of this.lanes) this.sizes.observe(lane.scroller);
    placeMarks(this);
    this.panels.showSelected(this.active);
    this.paint();
    this.settle();
  }

  resized() {
    for (const lane of this.lanes) lane.resize();
    this.paint(); // immediately, because a resized canvas is empty
  }

  // The range over all lanes, on the common scale.
  bounds() {
    return { from: Math.min(...this.lanes.map((lane) => -lane.offset)), to: Math.max(...this.lanes.map((lane) => lane.span - lane.offset)) };
  }

  align(index, redraw = true) {
    this.anchorIndex = index;
    this.lanes.forEach((lane, i) => (lane.offset = this.anchors[index].at[i]));
    this.toolbar.offer(this.anchors, index);
    if (!redraw) return;
    for (const lane of this.lanes) lane.overview();
    this.measure(null);
    this.fit();
  }

  draw() {
    if (!this.drawing) {
      this.drawing = requestAnimationFrame(() => {
        this.drawing = 0;
        this.paint();
      });
    }
  }

  paint() {
    if (this.aborter.signal.aborted || !this.lanes.every((lane) => lane.painter?.width)) return;
    for (const lane of this.lanes) lane.paint();
    if (this.painted) return;
    this.painted = true;
    performance.mark("timeline:picture");
  }

  // Computes the figures once the view has come to rest.
  settle() {
    clearTimeout(this.resting);
    this.panels.stop();
    this.resting = setTimeout(() => {
      if (this.aborter.signal.aborted) return;
      for (const lane of this.lanes) lane.showShares();
      this.panels.count();
      this.element.dispatchEvent(new CustomEvent("timeline:rest"));
    }, REST);
  }

  set(from, to) {
    if (!this.painted) return; // there is nothing to move yet
    const bounds = this.bounds();
    const span = bounds.to - bounds.from;
    const wide = Math.min(span * 1.04, Math.max(LEAST_SPAN, to - from));
    const margin = Math.min(wide, span) * 0.02;
    const begin = Math.min(Math.max((from + to - wide) / 2, bounds.from - margin), bounds.to + margin - wide);
    this.range = { from: begin, to: begin + wide };
    this.tip(null);
    this.draw();
    this.settle();
  }

  fit() {
    const { from, to } = this.bounds();
    this.set(from, to);
  }

  zoom(factor, at = (this.range.from + this.range.to) / 2) {
    this.set(at - (at - this.range.from) * factor, at + (this.range.to - at) * factor);
  }

  pan(part) {
    const by = (this.range.to - this.range.from) * part;
    this.set(this.range.from + by, this.range.to + by);
  }

  // The time under the pointer if it is over a canvas. Zooming by keyboard keeps this time in place.
  pointed() {
    const lane = this.lanes.find((known) => known.input?.at);
    return lane ? lane.painter.time(lane.input.at.x, lane.view) - lane.offset : undefined;
  }

  activate(lane) {
    this.active = lane;
  }

  select(lane, event, { reveal = false } = {}) {
    this.active = lane;
    for (const other of this.lanes) other.select(other === lane ? event : -1);
    if (reveal && event >= 0) this.reveal(lane, event);
    this.panels.showSelected(lane);
    this.draw();
    this.settle();
  }

  // Brings an event into view, zooming in if it would otherwise be too small to see.
  reveal(lane, event) {
    const { start, duration: took } = lane.model.columns;
    const wide = this.range.to - this.range.from;
    const middle = start[event] + took[event] / 2 - lane.offset;
    const pixel = wide / lane.painter.width;
    if (took[event] < 3 * pixel) this.set(middle - Math.max(took[event] * 20, 200), middle + Math.max(took[event] * 20, 200));
    else if (start[event] < lane.view.from || start[event] + took[event] > lane.view.to) {
      const room = Math.max(wide, took[event] * 1.4);
      this.set(middle - room / 2, middle + room / 2);
    }
    lane.showRow(event);
  }

  focusOn(lane, event) {
    const { start, duration: took } = lane.model.columns;
    const room = Math.max(took[event] * 0.2, LEAST_SPAN);
    this.set(start[event] - lane.offset - room, start[event] + took[event] - lane.offset + room);
    lane.showRow(event);
  }

  focusOnSelection() {
    if (this.active.selected >= 0) this.focusOn(this.active, this.active.selected);
    else if (this.measuredRange) this.show(this.measuredRange.from, this.measuredRange.to);
  }

  // Shows [from, to] on the common scale, with some room around it.
  show(from, to) {
    const room = Math.max((to - from) * 0.25, LEAST_SPAN);
    this.set(from - room, to + room);
  }

  step(by) {
    const next = this.active.next(by);
    if (next >= 0) this.select(this.active, next, { reveal: true });
    else this.say(by > 0 ? "Last event in this row." : "First event in this row.");
  }

  // Measures [from, to] on the lane's own clock over `lines`, or over all lines if there are none. A second lane measures the same part of the common
  // scale.
  measure(lane, from = 0, to = 0, lines = []) {
    this.measuredRange = lane ? { from: from - lane.offset, to: to - lane.offset } : null;
    const keys = new Set(lines.map((line) => line.key));
    for (const other of this.lanes) {
      const its = other === lane ? lines : other.laid.lines.filter((line) => keys.has(line.key));
      other.measure = lane ? { from: this.measuredRange.from + other.offset, to: this.measuredRange.to + other.offset, lines: its, rows: its.length ? other.rowsOf(its) : null } : null;
    }
    this.draw();
    this.settle();
  }

  measured(lane) {
    if (!lane.measure) return;
    const { from, to, rows } = lane.measure;
    this.say(`Measured ${duration(to - from)}.`);
    const detail = { sha: lane.sha, start_ns: Math.round(from), end_ns: Math.round(to), rows: (rows ?? []).map(rowKey) };
    this.element.dispatchEvent(new CustomEvent("timeline:range", { bubbles: true, detail }));
  }

  measureSelected(stretch) {
    const lane = this.active;
    if (lane.selected < 0) return;
    const { start, duration: took } = lane.model.columns;
    let [from, to] = [start[lane.selected], start[lane.selected] + took[lane.selected]];
    if (stretch && lane.measure) [from, to] = [Math.min(from, lane.measure.from), Math.max(to, lane.measure.to)];
    this.measure(lane, from, to);
    this.measured(lane);
  }

  clear() {
    this.measure(null);
    this.select(this.active, -1);
  }

  search(text, asExpression) {
    if (!this.painted) return;
    try {
      for (const lane of this.lanes) lane.matches = find(lane.model, text, asExpression);
    } catch (error) {
      for (const lane of this.lanes) lane.matches = null;
      this.panels.showHits();
      this.toolbar.say(`no regular expression: ${error.message.replace(/^Invalid regular expression: /, "")}`, true);
      this.draw();
      return;
    }
    const hits = this.lanes.reduce((sum, lane) => sum + (lane.matches?.events.length ?? 0), 0);
    this.toolbar.say(!text.trim() ? "" : hits ? counted(hits, "event") : "no matching event");
    this.panels.showHits();
    this.draw();
    this.settle();
  }

  find(name) {
    this.toolbar.search.value = name;
    this.toolbar.toggleExpression(false);
    this.nextMatch(1);
  }

  nextMatch(by) {
    const lane = this.active.matches?.events.length ? this.active : this.lanes.find((known) => known.matches?.events.length);
    const found = lane ? stepMatch(lane.model, lane.matches, lane.selected, by, lane.view.from) : null;
    if (!found) return;
    this.toolbar.say(`${found.place.toLocaleString("en")} of ${counted(lane.matches.events.length, "event")}`);
    this.select(lane, found.event, { reveal: true });
  }

  filterTracks(text) {
    for (const lane of this.lanes) lane.choice.filter = text.trim();
    if (this.toolbar.tracks.value !== text) this.toolbar.tracks.value = text;
    if (!this.painted) return;
    for (const lane of this.lanes) lane.relayout();
    this.tracksChanged();
  }

  showAllTracks() {
    for (const lane of this.lanes) lane.choice.hidden.clear();
    this.filterTracks("");
    this.lanes[0].canvas.focus();
  }

  tracksChanged() {
    this.toolbar.offerHidden(this.lanes.reduce((sum, lane) => sum + lane.laid.hidden, 0));
    this.draw();
    this.settle();
  }

  groupBy(name) {
    this.grouping = name;
    this.panels.regroup();
  }

  setRowHeight(name) {
    this.rowHeight = name in HEIGHTS ? name : "normal";
    rememberHeight(this.rowHeight);
    if (!this.painted) return;
    for (const lane of this.lanes) lane.relayout();
    this.draw();
  }

  tip(lane, event = -1, at = null, content = null) {
    const { tipElement } = this;
    tipElement.hidden = event < 0;
    if (event < 0) return;
    if (this.tipOf !== event || this.tipLane !== lane) tipElement.replaceChildren(...content());
    this.tipOf = event;
    this.tipLane = lane;
    const frame = this.element.getBoundingClientRect();
    const canvas = lane.canvas.getBoundingClientRect();
    const x = Math.max(4, Math.min(canvas.left - frame.left + at.x + 14, frame.width - tipElement.offsetWidth - 4));
    tipElement.style.transform = `translate(${x}px, ${canvas.top - frame.top + at.y + 18}px)`;
  }

  say(text) {
    this.spoken.textContent = text;
  }

  openMark(lane, mark) {
    this.show(mark.start_ns - lane.offset, mark.end_ns - lane.offset);
    this.element.dispatchEvent(new CustomEvent("timeline:mark", { bubbles: true, detail: { id: mark.id } }));
  }

  // The selection in words, for tests and links.
  get selectedName() {
    return this.active.selected >= 0 ? nameOf(this.active.model, this.active.selected) : "";
  }
}
