// A timeline in a box: loading, zoom and pan, selection, measuring, search, and the figures of what is visible.
import { h, setText } from "../run/dom.js";
import { nameOf, nameTable, selectedPanel, tooltip } from "./details.js";
import { duration, share } from "./format.js";
import { Input } from "./input.js";
import { Painter } from "./painter.js";
import { firstReaching, hit, linked, parse } from "./parse.js";
import { busy, byName, deviceRows } from "./stats.js";

const BIG = 512 * 1024; // bytes that are parsed in a worker
const LEAST_SPAN = 20; // ns across the screen
const STEP = 1.25;

export class TimelineView {
  constructor(box, { url, worker = null, name = "" }) {
    Object.assign(this, { box, name, workerUrl: worker });
    this.view = { from: 0, to: 1 };
    this.selected = this.hover = -1;
    this.partners = [];
    this.measure = null;
    this.matches = null;
    this.folded = new Set();
    this.aborter = new AbortController();
    this.buildFrame();
    this.load(url);
  }

  destroy() {
    this.aborter.abort();
    this.sizes?.disconnect();
    this.worker?.terminate();
    clearTimeout(this.settling);
  }

  buildFrame() {
    this.search = h("input", { type: "search", placeholder: "Find a name", "aria-label": "Find events by name", spellcheck: "false" });
    this.found = h("span", { class: "found faint", role: "status" });
    this.summary = h("p", { class: "timeline-summary" }, "Loading the timeline …");
    const button = (text, label, action) => h("button", { type: "button", class: "button quiet small icon", title: label, "aria-label": label, onclick: action }, text);
    this.toolbar = h(
      "div",
      { class: "timeline-tools" },
      this.search,
      button("‹", "previous match (shift-Enter)", () => this.nextMatch(-1)),
      button("›", "next match (Enter)", () => this.nextMatch(1)),
      this.found,
      h("span", { class: "push" }),
      button("−", "zoom out (s)", () => this.zoom(STEP * STEP)),
      button("+", "zoom in (w)", () => this.zoom(1 / (STEP * STEP))),
      h("button", { type: "button", class: "button quiet small", title: "the whole span (0)", onclick: () => this.fit() }, "Fit"),
    );
    this.minimap = h("canvas", { class: "timeline-minimap", "aria-hidden": "true" });
    this.canvas = h("canvas", { class: "timeline-canvas", tabindex: "0", role: "application", "aria-label": `Timeline of ${this.name}. Arrow keys move and zoom, full stop and comma step along a row; the tables below say the same in words.` });
    this.tip = h("div", { class: "timeline-tip", hidden: true });
    this.scroller = h("div", { class: "timeline-scroll" }, this.canvas);
    this.detail = h("div", { class: "timeline-selected", "aria-live": "polite" });
    this.tables = h("div", { class: "timeline-tables table-wrap", tabindex: "0", role: "region", "aria-label": "Events by name" });
    this.box.replaceChildren(this.toolbar, this.summary, this.minimap, this.scroller, h("div", { class: "timeline-below" }, this.detail, this.tables), this.tip);
  }

  async load(url) {
    try {
      const answer = await fetch(url, { credentials: "same-origin", signal: this.aborter.signal });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const buffer = await answer.arrayBuffer();
      this.model = buffer.byteLength > BIG && this.workerUrl ? await this.parseAside(buffer) : parse(buffer);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.summary.textContent = `The timeline cannot be drawn: ${error.message}.`;
      return;
    }
    if (this.aborter.signal.aborted) return;
    this.start();
  }

  parseAside(buffer) {
    return new Promise((resolve, reject) => {
      this.worker = new Worker(this.workerUrl, { type: "module" });
      this.worker.onmessage = ({ data }) => {
        this.worker.terminate();
        if (data.error) reject(new Error(data.error));
        else resolve(data.model);
      };
      this.worker.onerror = () => reject(new Error("it could not be parsed"));
      this.worker.postMessage(buffer, [buffer]);
    });
  }

  start() {
    const { header, count } = this.model;
    this.device = deviceRows(this.model);
    this.painter = new Painter(this.canvas, this.minimap);
    this.span = header.span_ns || 1;
    this.view = { from: 0, to: this.span };
    const notes = [];
    if (header.truncated) notes.push(`only ${header.truncated.kept.toLocaleString("en")} of ${header.truncated.of.toLocaleString("en")} events were kept`);
    notes.push(...(header.warnings ?? []));
    this.about = [`${count.toLocaleString("en")} events`, duration(this.span), header.tool, header.device].filter(Boolean).join(" · ");
    this.notes = notes;
    if (!count) {
      this.summary.textContent = "The profiler recorded nothing.";
      return;
    }
    new Input(this);
    this.sizes = new ResizeObserver(() => this.relayout());
    this.sizes.observe(this.scroller);
    this.relayout();
    this.showSelected();
  }

  relayout() {
    const width = Math.floor(this.scroller.clientWidth);
    if (!width || width === this.laidOut?.width) return;
    this.layout(width);
  }

  layout(width) {
    this.laidOut = { width };
    this.painter.layout(this.model, width, width < 560 ? 84 : 148, this.folded);
    this.painter.resize();
    this.draw();
    this.settle();
  }

  draw() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      if (this.aborter.signal.aborted) return;
      this.painter.draw(this.view, { selected: this.selected, hover: this.hover, partners: this.partners, measure: this.measure, matches: this.matches });
      this.painter.drawMinimap(this.view, this.device);
    });
  }

  // Figures are counted when the view has come to rest.
  settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.showFigures(), 120);
  }

  showFigures() {
    const range = this.measure ?? this.view;
    const from = Math.max(0, Math.min(range.from, range.to));
    const to = Math.max(range.from, range.to);
    const rows = this.measure ? this.measuredRows() : this.device;
    const names = byName(this.model, rows, from, to);
    const onDevice = busy(this.model, this.device, from, to);
    const whole = names.reduce((sum, row) => sum + row.total, 0);
    const what = this.measure ? "Measured" : from <= 0 && to >= this.span ? "Whole span" : "Visible";
    const rest = [`${what} ${duration(to - from)}`, `device idle ${share(onDevice.idle)}`];
    if (onDevice.gap != null) rest.push(`gap p50 ${duration(onDevice.gap)}`);
    this.summary.replaceChildren(h("b", null, rest.join(" · ")), h("span", { class: "faint" }, ` ${this.about}`), ...this.notes.map((note) => h("span", { class: "timeline-note" }, `! ${note}`)));
    const rowsNamed = this.measure ? rows.map((row) => row.name).join(", ") : this.device[0]?.kind === "gpu" ? "the device" : "the threads";
    this.tables.replaceChildren(nameTable(this.model, names, whole, `${this.measure ? "In the measured range" : "In the visible range"}, on ${rowsNamed || "no row"}`, (name) => this.find(name)));
  }

  measuredRows() {
    const { top, bottom } = this.measure;
    return this.painter.rows.filter((line) => line.y < bottom && line.y + line.height > top).map((line) => line.row);
  }

  set(from, to) {
    const wide = Math.min(this.span * 1.02, Math.max(LEAST_SPAN, to - from));
    const middle = (from + to) / 2;
    let begin = middle - wide / 2;
    const margin = Math.min(wide, this.span) * 0.02;
    begin = Math.min(Math.max(begin, -margin), this.span + margin - wide);
    this.view = { from: begin, to: begin + wide };
    this.hideTip();
    this.draw();
    this.settle();
  }

  fit() {
    this.set(0, this.span);
  }

  zoom(factor, at = (this.view.from + this.view.to) / 2) {
    this.set(at - (at - this.view.from) * factor, at + (this.view.to - at) * factor);
  }

  pan(part) {
    const by = (this.view.to - this.view.from) * part;
    this.set(this.view.from + by, this.view.to + by);
  }

  select(event, { reveal = false } = {}) {
    this.selected = event;
    this.partners = event >= 0 ? linked(this.model, event).slice(0, 64) : [];
    if (reveal && event >= 0) this.reveal(event);
    this.showSelected();
    this.draw();
  }

  showSelected() {
    this.detail.replaceChildren(...selectedPanel(this.model, this.selected, (event) => this.select(event, { reveal: true })));
  }

  // Brings an event into view, and zooms in where it would be too small to see.
  reveal(event) {
    const { start, duration: took } = this.model.columns;
    const wide = this.view.to - this.view.from;
    const middle = start[event] + took[event] / 2;
    const pixel = wide / (this.painter.width - this.painter.gutter);
    if (took[event] < 3 * pixel) this.set(middle - Math.max(took[event] * 20, 200), middle + Math.max(took[event] * 20, 200));
    else if (start[event] < this.view.from || start[event] + took[event] > this.view.to) {
      const room = Math.max(wide, took[event] * 1.4);
      this.set(middle - room / 2, middle + room / 2);
    }
    const y = this.painter.placeOf(event);
    if (y != null && (y < this.scroller.scrollTop || y > this.scroller.scrollTop + this.scroller.clientHeight - 24)) this.scroller.scrollTop = Math.max(0, y - this.scroller.clientHeight / 2);
  }

  focusOn(event) {
    const { start, duration: took } = this.model.columns;
    const room = Math.max(took[event] * 0.2, LEAST_SPAN);
    this.set(start[event] - room, start[event] + took[event] + room);
  }

  step(by) {
    if (this.selected < 0) {
      const t = this.model.firstTrack[(this.device[0] ?? this.model.rows[0]).index];
      const first = firstReaching(this.model, t, Math.max(0, this.view.from));
      if (first < this.model.offsets[t + 1]) this.select(this.model.order[first], { reveal: true });
      return;
    }
    const { row, depth } = this.model.columns;
    const t = this.model.firstTrack[row[this.selected]] + depth[this.selected];
    const at = this.model.place[this.selected] + by;
    if (at >= this.model.offsets[t] && at < this.model.offsets[t + 1]) this.select(this.model.order[at], { reveal: true });
  }

  find(text) {
    this.search.value = text;
    this.applySearch();
    this.nextMatch(1);
  }

  applySearch() {
    const wanted = this.search.value.trim().toLowerCase();
    if (!wanted) {
      this.matches = null;
      this.matchCount = 0;
      setText(this.found, "");
      this.draw();
      return;
    }
    this.matches = new Set();
    this.model.header.names.forEach((name, index) => name.toLowerCase().includes(wanted) && this.matches.add(index));
    let hits = 0;
    const { name } = this.model.columns;
    for (let i = 0; i < this.model.count; i += 1) if (this.matches.has(name[i])) hits += 1;
    this.matchCount = hits;
    setText(this.found, hits ? `${hits.toLocaleString("en")} events` : "no event has this name");
    this.draw();
  }

  // The next event that matches, in time, wherever it stands.
  nextMatch(by) {
    if (!this.matches?.size || !this.matchCount) return;
    const { start, name } = this.model.columns;
    const after = (a, b) => start[a] - start[b] || a - b;
    const here = this.selected >= 0 && this.matches.has(name[this.selected]) ? this.selected : -1;
    let best = -1;
    let around = -1;
    for (let i = 0; i < this.model.count; i += 1) {
      if (!this.matches.has(name[i]) || i === here) continue;
      if ((here < 0 ? start[i] >= this.view.from : after(i, here) * by > 0) && (best < 0 || after(i, best) * by < 0)) best = i;
      if (around < 0 || after(i, around) * by < 0) around = i;
    }
    const chosen = best >= 0 ? best : around;
    if (chosen >= 0) this.select(chosen, { reveal: true });
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  under({ x, y }) {
    if (x < this.painter.gutter) return -1;
    const place = this.painter.at(y);
    if (!place) return -1;
    const slack = ((this.view.to - this.view.from) / (this.painter.width - this.painter.gutter)) * 2;
    return hit(this.model, place.track, this.painter.time(x, this.view), slack);
  }

  toggleRow({ y }) {
    const place = this.painter.at(y);
    if (!place || place.line.row.depths < 2) return;
    const { index } = place.line.row;
    if (this.folded.has(index)) this.folded.delete(index);
    else this.folded.add(index);
    this.layout(this.laidOut.width);
  }

  hoverAt(at) {
    const found = this.under(at);
    this.canvas.classList.toggle("over-event", found >= 0);
    if (found !== this.hover) {
      this.hover = found;
      this.draw();
      if (found >= 0) this.tip.replaceChildren(...tooltip(this.model, found));
    }
    this.tip.hidden = found < 0;
    if (found < 0) return;
    const frame = this.box.getBoundingClientRect();
    const canvas = this.canvas.getBoundingClientRect();
    const x = canvas.left - frame.left + at.x;
    const y = canvas.top - frame.top + at.y;
    const left = Math.max(4, Math.min(x + 14, frame.width - this.tip.offsetWidth - 4));
    this.tip.style.transform = `translate(${left}px, ${y + 18}px)`;
  }

  hideTip() {
    this.tip.hidden = true;
    if (this.hover >= 0) {
      this.hover = -1;
      this.draw();
    }
  }

  // For tests and for screen readers alike: what is selected, in words.
  get selectedName() {
    return this.selected >= 0 ? nameOf(this.model, this.selected) : "";
  }
}
