// What stands under the canvas: the selected event, marks, and the figures of the measured or visible range, counted when the view rests.
import { h } from "../run/dom.js";
import { differences, differenceTable } from "./compare.js";
import { selectedPanel } from "./details.js";
import { headline, idlePanel, nameTable, wherePanel } from "./figures.js";
import { duration } from "./format.js";
import { figures, inSlices } from "./stats.js";

export class Panels {
  constructor(box) {
    this.box = box;
    this.stops = [];
    this.selected = h("section", { class: "timeline-selected", "aria-live": "polite", "aria-label": "Selected event" });
    this.marks = h("section", { class: "timeline-marks", "aria-label": "Marked ranges", hidden: true });
    this.where = h("section", { class: "timeline-where", "aria-label": "Where the time goes" });
    this.idle = h("section", { class: "timeline-idle", "aria-label": "Idle time" });
    this.tables = h("div", { class: "timeline-tables table-wrap", tabindex: "0", role: "region", "aria-label": "Events by name" });
    // Hidden until there are figures, so that nothing moves when they come.
    this.element = h("div", { class: "timeline-below", hidden: true }, h("div", { class: "timeline-side" }, this.selected, this.marks, this.where, this.idle), this.tables);
  }

  stop() {
    for (const stop of this.stops) stop();
    this.stops = [];
  }

  showSelected(lane) {
    this.selected.replaceChildren(...selectedPanel(lane.model, lane.selected, (event) => this.box.select(lane, event, { reveal: true })));
  }

  showMarks() {
    const marks = this.box.lanes.flatMap((lane) => (lane.model ? lane.marks.map((mark) => [lane, mark]) : []));
    this.marks.hidden = !marks.length;
    this.marks.replaceChildren(h("h3", null, "Marked ranges"), h("ul", { class: "plain" }, marks.map(([lane, mark]) => h("li", null, h("button", { type: "button", class: "button small", onclick: () => this.box.openMark(lane, mark) }, `${mark.label || "marked"} (${duration(mark.end_ns - mark.start_ns)})`)))));
  }

  // The range of a lane that figures are of: what was measured, else what is visible, within what was recorded.
  static rangeOf(lane) {
    const range = lane.measure ?? lane.view;
    const from = Math.max(0, Math.min(range.from, lane.span));
    return { from, to: Math.max(from, Math.min(range.to, lane.span)), rows: lane.measure?.rows ?? null, own: lane.own };
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
    this.tables.replaceChildren(nameTable(lane.model, result.names, whole, `${rangeName}, on ${on || "no row"}`, (name) => this.box.find(name)));
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

  // The whole recordings, each divided by the calls that it holds: that is fair however much of either is visible.
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
        inSlices(figures(lane.model, { from: 0, to: lane.span + 1, own: lane.own }), (result) => {
          wholes[index] = result.names;
          if (wholes.filter(Boolean).length < lanes.length) return;
          this.wholes = wholes;
          this.showDifferences(wholes, both ? calls : [null, null], caption);
        }),
      ),
    );
  }

  // `calls`: what compare.iterations gives, for figures of one call; nulls for sums.
  showDifferences([a, b], calls, caption) {
    const { lanes } = this.box;
    const rows = differences(a, b, lanes.map((lane) => lane.model.header.names), calls.map((known) => known?.count ?? 1));
    this.tables.replaceChildren(differenceTable(lanes, rows, calls[0] && calls[1] ? calls.map((known) => known.wall) : null, caption, (name) => this.box.find(name)));
  }
}
