// @ts-check
// Renders the figures of a range as HTML: where the time goes, idle time and gaps by device and stream, and tables by name. For screen readers, they
// replace the picture.
import { counted } from "../lib/words.js";
import { h } from "../run/dom.js";
import { count, duration, percent } from "./format.js";
import { swatchOf } from "./palette.js";

const TOP = 12;
const WHERE = { own: "own kernels", library: "library kernels", kernels: "kernels", graphs: "CUDA graphs", copies: "copies and fills", other: "other", idle: "idle" };
const ON_CPU = { ...WHERE, own: "own code", library: "operators", idle: "outside of them" };
const CAUSES = [
  ["host", "waiting for the host", "no launch had started: the program was doing something else"],
  ["launching", "being launched", "from the start of the launch call to the start of the work"],
  ["queued", "queued", "launched before the device fell idle: between one kernel and the next"],
  ["unknown", "unknown", "the launch of the next work wasn't recorded"],
];

export const categoryName = (category, gpu = true) => (gpu ? WHERE : ON_CPU)[category] ?? category;

// The single line above a lane.
export function headline(found, { span, from, to }, measured) {
  if (!(to > from)) return "Nothing was recorded in this range";
  const what = measured ? "Measured" : from <= 0 && to >= span ? "Whole span" : "Visible";
  const parts = [`${what} ${duration(to - from)}`];
  const [first] = found.devices;
  if (found.devices.length === 1) {
    parts.push(`device idle ${percent(1 - first.busy / first.span)}`);
    if (first.gpu) parts.push(...kernelCounts(first, found.hiddenGraphs));
    if (first.gpu && found.launches != null) parts.push(counted(found.launches, "launch"));
    if (first.gaps.count) parts.push(`gap p50 ${duration(first.gaps.p50)}, p95 ${duration(first.gaps.p95)}`);
  } else if (found.devices.length) parts.push(`${counted(found.devices.length, "GPU")}: device idle ${found.devices.map((device) => percent(1 - device.busy / device.span)).join(", ")}`, ...(found.launches == null ? [] : [counted(found.launches, "launch")]));
  return parts.join(" · ");
}

// The kernels inside a graph that was recorded only as a whole are unknown, so their number must not be shown as zero.
function kernelCounts({ kernels }, hidden) {
  if (!hidden) return [counted(kernels, "kernel")];
  const inside = `kernels inside ${counted(hidden, "CUDA graph launch")} not recorded`;
  return kernels ? [counted(kernels, "kernel"), inside] : [inside];
}

export function wherePanel(found, title) {
  return [
    h("h3", null, title),
    ...found.devices.map((device) => {
      const parts = [...Object.entries(device.where), ["idle", device.span - device.busy]].filter(([, time]) => time > 0);
      const bar = h("div", { class: "where-bar", role: "img", "aria-label": parts.map(([what, time]) => `${categoryName(what, device.gpu)} ${percent(time / device.span)}`).join(", ") });
      for (const [what, time] of parts) {
        const piece = h("span", { class: `where-${what}`, title: `${categoryName(what, device.gpu)} ${duration(time)}` });
        piece.style.flexGrow = String(time / device.span);
        bar.append(piece);
      }
      return h(
        "div",
        { class: "where" },
        found.devices.length > 1 ? h("h4", null, device.name) : null,
        bar,
        h(
          "ul",
          { class: "where-parts" },
          parts.map(([what, time]) => h("li", null, h("span", { class: `where-key where-${what}`, "aria-hidden": "true" }), `${categoryName(what, device.gpu)} `, h("b", null, percent(time / device.span)), h("span", { class: "faint" }, ` ${duration(time)}`))),
        ),
      );
    }),
    found.devices.length ? null : h("p", { class: "muted" }, "No device has events in this range."),
  ];
}

// `of` names the timeline if there are two. `show(from, to)` brings a gap into view.
export function idlePanel(found, of, show) {
  const gpus = found.devices.filter((device) => device.gpu);
  if (!gpus.length) return [];
  const head = ["Worked", "Idle", "Gaps", "p50", "p95"];
  return [
    h("h3", null, of ? `Idle time: ${of}` : "Idle time"),
    h(
      "div",
      { class: "table-wrap", tabindex: "0", role: "region", "aria-label": `Idle time by device and stream${of ? `: ${of}` : ""}` },
      h(
        "table",
        { class: "table names" },
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Device, stream"), head.map((name) => h("th", { scope: "col", class: "num" }, name)))),
        h(
          "tbody",
          null,
          gpus.flatMap((device) => [
            line(device.name, device.busy, device.span, device.gaps, "device-line"),
            ...(device.streams.length > 1 ? device.streams.filter((stream) => stream.events).map((stream) => line(stream.row.name, stream.busy, device.span, stream.gaps, "stream-line")) : []),
          ]),
        ),
      ),
    ),
    ...gpus.map((device) => causes(device, gpus.length > 1, show)),
  ];
}

function line(name, busy, span, gaps, kind) {
  const cells = [percent(busy / span), percent(1 - busy / span), count(gaps.count), duration(gaps.p50), duration(gaps.p95)];
  return h("tr", { class: kind }, h("th", { scope: "row" }, name), cells.map((text) => h("td", { class: "num" }, text)));
}

function causes(device, named, show) {
  const idle = device.span - device.busy;
  const parts = CAUSES.filter(([key]) => device.idle[key] > 0);
  return h(
    "div",
    { class: "causes" },
    named ? h("h4", null, device.name) : null,
    h("dl", { class: "facts compact" }, parts.flatMap(([key, text, meaning]) => [h("dt", { title: meaning }, text), h("dd", null, `${duration(device.idle[key])} (${percent(device.idle[key] / idle)} of the idle time)`)]),
      device.latency.count ? [h("dt", { title: "from the start of the launch call to the start of the work" }, "launch latency"), h("dd", null, `p50 ${duration(device.latency.p50)}, p95 ${duration(device.latency.p95)}`)] : []),
    device.longest ? h("p", null, h("button", { type: "button", class: "button small", onclick: () => show(device.longest.from, device.longest.to) }, `Show the longest gap (${duration(device.longest.to - device.longest.from)})`)) : null,
  );
}

// A table of rows from stats.byGroup. Shares are fractions of the time `whole`, `title` is the heading of the rows, and `search` is null if the rows
// are not names of events.
export function groupTable(model, rows, whole, title, caption, search) {
  const cells = (row) => [count(row.count), duration(row.total), percent(whole ? row.total / whole : 0), duration(row.total / row.count), duration(row.least), duration(row.most)];
  return h(
    "table",
    { class: "table names" },
    h("caption", null, caption),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, title), ["Calls", "Total", "Share", "Average", "Least", "Most"].map((name) => h("th", { scope: "col", class: "num" }, name)))),
    h(
      "tbody",
      null,
      rows.slice(0, TOP).map((row) => h("tr", null, h("td", null, groupCell(model, row, search)), cells(row).map((text) => h("td", { class: "num" }, text)))),
      rows.length > TOP ? h("tr", null, h("td", { colspan: 7, class: "faint" }, `and ${counted(rows.length - TOP, "more row")}, ${duration(rows.slice(TOP).reduce((sum, row) => sum + row.total, 0))} in all`)) : null,
      rows.length ? null : h("tr", null, h("td", { colspan: 7, class: "faint" }, "nothing ran here")),
    ),
  );
}

// The whole table as [head, rows] for a file, with times in nanoseconds.
export function groupCsv(title, rows, whole) {
  const head = [title.toLowerCase(), "calls", "total_ns", "share", "average_ns", "least_ns", "most_ns"];
  return [head, rows.map((row) => [row.label, row.count, row.total, whole ? row.total / whole : 0, row.total / row.count, row.least, row.most])];
}

export const groupCell = (model, row, search) => (search ? nameCell(model, row, search) : h("span", { class: "group-label" }, row.label));

const COLOURED = ["own", "library", "kernels", "graphs"];

export function nameCell(model, row, search) {
  const name = model.header.names[row.name];
  const key = COLOURED.includes(row.category) ? `hue-${swatchOf(name)}` : row.category === "copies" ? "hue-memory" : "hue-range";
  return h(
    "span",
    { class: "name-cell" },
    h("span", { class: `hue ${key}`, "aria-hidden": "true" }),
    h("button", { type: "button", class: "name-button mono", title: name, onclick: () => search(name) }, name.replace(/^void /, "")),
    row.category === "own" ? h("span", { class: "tag own", title: "the program's own" }, "own") : null,
  );
}
