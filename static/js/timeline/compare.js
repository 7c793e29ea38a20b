// @ts-check
// Compares two timelines on one scale: finds moments at which they can be aligned, and computes the differences between their totals for each name.
import { counted } from "../lib/words.js";
import { h } from "../run/dom.js";
import { count, duration, percent, signed } from "./format.js";
import { groupCell } from "./figures.js";

const MOST_ANCHORS = 60;
const TOP = 20;

// The program's ranges, identified by name and occurrence number, which two recordings of the same task have in common.
function ranges(model) {
  const nvtx = model.header.kinds.indexOf("nvtx");
  const { kind, name, start, duration: took } = model.columns;
  const found = [];
  for (const row of model.rows) {
    if (row.kind !== "nvtx" || !row.events) continue;
    const track = model.firstTrack[row.index];
    for (let k = model.offsets[track]; k < model.offsets[track + 1]; k += 1) if (kind[k] === nvtx && took[k] > 0) found.push(k);
  }
  found.sort((a, b) => start[a] - start[b]);
  const seen = new Map();
  return found.map((k) => {
    const text = model.header.names[name[k]];
    const before = seen.get(text) ?? 0;
    seen.set(text, before + 1);
    return { label: `${text} ${before + 1}`, at: start[k], from: start[k], to: start[k] + took[k] };
  });
}

// The moments that all models share: [{label, at: [ns in each]}]. They always include the start of the recording. The default is the first common
// range.
export function anchors(models) {
  const found = [{ label: "the start of the recording", at: models.map(() => 0) }];
  const others = models.map((model) => new Map(ranges(model).map((range) => [range.label, range.at])));
  for (const [label, at] of others[0]) {
    if (found.length > MOST_ANCHORS) break;
    if (others.every((known) => known.has(label))) found.push({ label: `the start of ${label}`, at: others.map((known, i) => (i ? known.get(label) : at)) });
  }
  return found;
}

// The model's recorded calls (ranges named `iter`): their count, the mean time from the start of one to the next, and the range in ns that they span.
// Null if there are none.
export function iterations(model) {
  const found = ranges(model).filter((range) => /^iter \d+$/.test(range.label));
  return found.length ? { count: found.length, wall: (found.at(-1).to - found[0].from) / found.length, from: found[0].from, to: found.at(-1).to } : null;
}

// Joins the rows of stats.byGroup of two lanes by label. Each side is divided by its number of calls. The largest difference comes first.
export function differences(a, b, divisors) {
  const joined = new Map();
  [a, b].forEach((rows, side) => {
    for (const row of rows) {
      if (!joined.has(row.label)) joined.set(row.label, { name: row.label, rows: [null, null], totals: [0, 0], counts: [0, 0] });
      const known = joined.get(row.label);
      known.rows[side] = row;
      known.totals[side] = row.total / divisors[side];
      known.counts[side] = row.count / divisors[side];
    }
  });
  return [...joined.values()].map((row) => ({ ...row, difference: row.totals[1] - row.totals[0] })).sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference));
}

const number = (value) => (Number.isInteger(value) ? count(value) : value.toFixed(1));

// `walls` holds the time of one call in each lane, or is null. `title` and `search` are the same as for figures.groupTable.
export function differenceTable(lanes, rows, walls, { title, caption, search }) {
  const totals = [0, 1].map((side) => rows.reduce((sum, row) => sum + row.totals[side], 0));
  const cells = (row) => [0, 1].flatMap((side) => (row.rows[side] ? [number(row.counts[side]), duration(row.totals[side])] : ["–", "–"]));
  return h(
    "table",
    { class: "table names differences" },
    h("caption", null, caption),
    h(
      "thead",
      null,
      h("tr", null, h("th", { scope: "col", rowspan: 2 }, title), lanes.map((lane) => h("th", { scope: "colgroup", colspan: 2, class: "num" }, lane.name)), h("th", { scope: "col", rowspan: 2, class: "num" }, "Difference")),
      h("tr", null, lanes.flatMap(() => [h("th", { scope: "col", class: "num" }, "Calls"), h("th", { scope: "col", class: "num" }, "Total")])),
    ),
    h(
      "tbody",
      null,
      walls ? h("tr", { class: "sum" }, h("th", { scope: "row" }, "One call, idle time included"), walls.flatMap((wall) => [h("td"), h("td", { class: "num" }, duration(wall))]), h("td", { class: "num" }, change(walls[1] - walls[0], walls[0]))) : null,
      h("tr", { class: "sum" }, h("th", { scope: "row" }, "All work on the device"), [0, 1].flatMap((side) => [h("td", { class: "num" }, number(rows.reduce((sum, row) => sum + row.counts[side], 0))), h("td", { class: "num" }, duration(totals[side]))]), h("td", { class: "num" }, change(totals[1] - totals[0], totals[0]))),
      rows.slice(0, TOP).map((row) => {
        const side = row.rows[1] ? 1 : 0;
        return h("tr", null, h("td", null, groupCell(lanes[side].model, row.rows[side], search)), cells(row).map((text) => h("td", { class: "num" }, text)), h("td", { class: "num" }, change(row.difference, row.totals[0])));
      }),
      rows.length > TOP ? h("tr", null, h("td", { colspan: 6, class: "faint" }, `and ${counted(rows.length - TOP, "more row")}`)) : null,
    ),
  );
}

// The whole table as [head, rows] for a file, with times in nanoseconds.
export function differenceCsv(lanes, rows, title) {
  const head = [title.toLowerCase(), ...lanes.flatMap((lane) => [`calls, ${lane.name}`, `total_ns, ${lane.name}`]), "difference_ns"];
  return [head, rows.map((row) => [row.name, row.counts[0], row.totals[0], row.counts[1], row.totals[1], row.difference])];
}

// Less time is better, which decides the colour and sign.
function change(by, of) {
  const text = `${signed(by)}${of > 0 && by !== 0 ? ` (${by > 0 ? "+" : "−"}${percent(Math.abs(by) / of)})` : ""}`;
  return h("span", { class: by < 0 ? "better" : by > 0 ? "worse" : "" }, text);
}
