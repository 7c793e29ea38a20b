// @ts-check
// The panels below the canvas: the selected event, marks, and the figures of the measured or visible range, which are computed once the view comes to
// rest.
import { saveCsv } from "../lib/csv.js";
import { h } from "../run/dom.js";
import { differenceCsv, differences, differenceTable } from "./compare.js";
import { selectedPanel } from "./details.js";
import { groupCsv, groupTable, headline, idlePanel, wherePanel } from "./figures.js";
import { duration } from "./format.js";
import { groupOf, GROUPS } from "./groups.js";
import { hitsPanel } from "./hits.js";
import { figures, inSlices } from "./stats.js";

const TITLES = { name: "Name", module: "Module", stream: "Stream", grid: "Grid and block" };

export class Panels {
  constructor(box) {
    this.box = box;
    this.stops = [];
    this.selected = h("section", { class: "timeline-selected", "aria-live": "polite", "aria-label": "Selected event" });
    this.marks = h("section", { class: "timeline-marks", "aria-label": "Marked ranges", hidden: true });
    this.where = h("section", { class: "timeline-where", "aria-label": "Where the time goes" });
    this.idle = h("section", { class: "timeline-idle", "aria-label": "Idle time" });
    this.hits = h("section", { class: "timeline-hits", "aria-label": "Hits of the search", hidden: true });
    this.table = h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "The table of the range" });
    this.tables = h("div", { class: "timeline-tables" }, this.tableTools(), this.table);
    // The difference between two timelines is the point of a comparison, so it is shown above them, in reserved space.
    const comparing = box.lanesWanted > 1;
    this.first = h("section", { class: "timeline-first", "aria-label": "Difference by kernel", hidden: !comparing }, comparing ? this.tables : null);
    // Hidden until there are figures, so that nothing shifts when they appear.
    this.element = h("div", { class: "timeline-below", hidden: true });
    this.element.append(...[h("div", { class: "timeline-side" }, this.selected, this.hits, this.marks, this.where, this.idle), ...(comparing ? [] : [this.tables])]);
    this.element.classList.toggle("side-only", comparing);
  }

  tableTools() {
    const by = h("select", { "aria-label": "Group the table by" }, Object.entries(GROUPS).map(([value, text]) => h("option", { value }, `by ${text}`)));
    by.addEventListener("change", () => this.box.groupBy(by.value));
    const save = h("button", { type: "button", class: "button quiet small", title: "The whole table as a file, times in nanoseconds", onclick: () => this.csv && saveCsv(...this.csv()) }, "CSV");
    return h("div", { class: "table-tools" }, by, save);
  }

  // Call this when the grouping has changed, because the cached figures are then invalid.
  regroup() {
    this.wholes = null;
    this.box.settle();
  }

  // The `title` and `search` of a table. Only names link to events.
  get grouped() {
    const { grouping } = this.box;
    return { title: TITLES[grouping], search: grouping === "name" ? (name) => this.box.find(name) : null };
  }

  showHits() {
    const lanes = this.box.lanes.filter((lane) => lane.matches?.events.length);
    this.hits.hidden = !lanes.length;
    this.hits.replaceChildren(...(lanes.length ? hitsPanel(lanes, this.box.lanes.length > 1, this.hitOrder ?? "time", (lane, event) => this.box.select(lane, event, { reveal: true }), (order) => {
      this.hitOrder = order;
      this.showHits();
    }) : []));
  }

  stop() {
    for (const stop of this.stops) stop();
    this.stops = [];
  }

  showSelected(lane) {
    this.selected.replaceChildren(...selectedPanel(lane, lane.selected, (event) => this.box.select(lane, event, { reveal: true })));
  }

  showMarks() {
    const marks = this.box.lanes.flatMap((lane) => (lane.model ? lane.marks.map((mark) => [lane, mark]) : []));
    this.marks.hidden = !marks.length;
    this.marks.replaceChildren(h("h3", null, "Marked ranges"), h("ul", { class: "plain" }, marks.map(([lane, mark]) => h("li", null, h("button", { type: "button", class: "button small", onclick: () => this.box.openMark(lane, mark) }, `${mark.label || "marked"} (${duration(mark.end_ns - mark.start_ns)})`)))));
  }

  // The range of a lane that the figures cover: the measured range or, by default, the visible one, limited to the recording.
  static rangeOf(lane) {
    const range = lane.measure ?? lane.view;
    const from = Math.max(0, Math.min(range.from, lane.span));
    return { from, to: Math.max(from, Math.min(range.to, lane.span)), rows: lane.measure?.rows ?? null, own: lane.own, group: groupOf(lane.model, lane.box.grouping) };
  }

  count() {
    this.stop();
    const found = [];
    this.box.lanes.forEach((lane, index) => {
      if (!lane.model.count) return;
      const range = Panels.rangeOf(lane);
      this.stops.push(
        inSlices(figures(lane.model, range), (result) => {
          found[index] = result;
          this.showHeadline(lane, result, range);
          this.element.hidden = false;
          if (this.box.lanes.length === 1) this.showOne(lane, result);
          else if (found.filter(Boolean).length === this.box.lanes.length) this.showBoth(found);
        }),
      );
    });
  }

  showHeadline(lane, result, { from, to }) {
    lane.summary.replaceChildren(h("b", null, headline(result, { span: lane.span, from, to }, Boolean(lane.measure))), h("span", { class: "faint" }, ` ${lane.about}`));
  }

  showOne(lane, result) {
    const rangeName = lane.measure ? "In the measured range" : "In the visible range";
    this.where.replaceChildren(...wherePanel(result, "Where the time goes").filter(Boolean));
    this.idle.replaceChildren(...idlePanel(result, "", (from, to) => this.box.show(from - lane.offset, to - lane.offset)));
    const whole = result.names.reduce((sum, row) => sum + row.total, 0);
    const on = lane.measure?.rows ? lane.measure.rows.map((row) => row.name).join(", ") : lane.devices[0]?.gpu ? "the device" : "the threads";
    const { title, search } = this.grouped;
    this.csv = () => [`timeline-by-${this.box.grouping}`, ...groupCsv(title, result.names, whole)];
    this.table.replaceChildren(groupTable(lane.model, result.names, whole, title, `${rangeName}, on ${on || "no row"}`, search));
  }

  showBoth(found) {
    const { lanes } = this.box;
    this.where.replaceChildren(...found.flatMap((result, i) => wherePanel(result, `Where the time goes: ${lanes[i].name}`)).filter(Boolean));
    this.idle.replaceChildren(...found.flatMap((result, i) => idlePanel(result, lanes[i].name, (from, to) => this.box.show(from - lanes[i].offset, to - lanes[i].offset))));
    if (lanes[0].measure) {
      this.showDifferences(found.map((result) => result.names), [null, null], "In the measured range");
      return;
    }
    this.countCalls();
  }

  // Compares the whole recordings, each divided by its number of calls, so the comparison is fair regardless of the visible part.
  countCalls() {
    const { lanes } = this.box;
    const calls = lanes.map((lane) => lane.calls);
    const both = calls.every(Boolean);
    const caption = both ? `For one call of the model, from ${calls.map((known) => known.count).join(" and ")} recorded` : "Over the whole recordings, which may hold different numbers of calls";
    if (this.wholes) {
      this.showDifferences(this.wholes, both ? calls : [null, null], caption);
      return;
    }
    const wholes = [];
    lanes.forEach((lane, index) =>
      this.stops.push(
        inSlices(figures(lane.model, { ...wholeOf(lane, both), own: lane.own, group: groupOf(lane.model, this.box.grouping) }), (result) => {
          wholes[index] = result.names;
          if (wholes.filter(Boolean).length < lanes.length) return;
          this.wholes = wholes;
          this.showDifferences(wholes, both ? calls : [null, null], caption);
        }),
      ),
    );
  }

  /**
   * @param {ReturnType<typeof differences>[]} wholes - the sums of both timelines, by group
   * @param {(ReturnType<typeof import("./compare.js").iterations> | null)[]} calls - for figures per call, or nulls for totals
   * @param {string} caption
   */
  showDifferences([a, b], calls, caption) {
    const { lanes } = this.box;
    const rows = differences(a, b, calls.map((known) => known?.count ?? 1));
    this.csv = () => [`difference-by-${this.box.grouping}`, ...differenceCsv(lanes, rows, this.grouped.title)];
    this.table.replaceChildren(differenceTable(lanes, rows, calls[0] && calls[1] ? calls.map((known) => known.wall) : null, { ...this.grouped, caption }));
  }
}

// Figures per call cover only the range of the calls, because a recording may contain an extra call with module ranges.
const wholeOf = (lane, ofCalls) => (ofCalls ? { from: lane.calls.from, to: lane.calls.to } : { from: 0, to: lane.span + 1 });
