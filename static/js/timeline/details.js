// What stands under the canvas: the selected event, and tables by name. The tables are also what a screen reader gets of the picture.
import { h } from "../run/dom.js";
import { duration, share } from "./format.js";
import { linked } from "./parse.js";

const KINDS = { kernel: "kernel", memcpy: "copy", memset: "fill", sync: "synchronisation", api: "API call", nvtx: "NVTX range", operator: "operator", own: "own code", graph: "CUDA graph" };
const TOP = 12;

export function nameOf(model, event) {
  return model.header.names[model.columns.name[event]] ?? "?";
}

export function tooltip(model, event) {
  const { start, duration: took, kind, row } = model.columns;
  const inner = model.own[event] < took[event] * 0.995 ? ` (${duration(model.own[event])} its own)` : "";
  return [
    h("b", { class: "mono" }, nameOf(model, event)),
    h("span", null, `${duration(took[event])}${inner} · at ${duration(start[event])}`),
    h("span", { class: "muted" }, `${KINDS[model.header.kinds[kind[event]]] ?? ""} · ${model.rows[row[event]].name}`),
  ];
}

function detailPairs(model, event) {
  const at = model.columns.detail[event];
  const found = at ? model.header.details?.table?.[at - 1] : null;
  if (!found || typeof found !== "object") return [];
  return Object.entries(found)
    .filter(([, value]) => value != null && value !== "")
    .map(([name, value]) => [name.replaceAll("_", " "), Array.isArray(value) ? value.join(" × ") : typeof value === "number" ? value.toLocaleString("en") : String(value)]);
}

export function selectedPanel(model, event, choose) {
  if (event < 0) return [h("p", { class: "muted" }, "Click an event to select it; shift-drag measures a range. W A S D or the wheel zoom and move, . and , step along the row.")];
  const { start, duration: took, kind, row } = model.columns;
  const partners = linked(model, event);
  const pairs = [
    ["kind", KINDS[model.header.kinds[kind[event]]] ?? model.header.kinds[kind[event]]],
    ["row", model.rows[row[event]].name],
    ["begins", duration(start[event])],
    ["took", duration(took[event])],
    ...(model.own[event] < took[event] * 0.995 ? [["its own", duration(model.own[event])]] : []),
    ...detailPairs(model, event),
  ];
  return [
    h("h3", { class: "mono" }, nameOf(model, event)),
    h("dl", { class: "facts compact" }, pairs.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, String(value))])),
    partners.length
      ? h(
          "p",
          { class: "links" },
          partners.slice(0, 6).map((partner) => {
            const launched = start[partner] >= start[event];
            const gap = launched ? start[partner] - start[event] : start[event] - start[partner];
            return h("button", { type: "button", class: "button small", onclick: () => choose(partner) }, `${launched ? "→" : "←"} ${nameOf(model, partner).slice(0, 60)} (${duration(gap)} ${launched ? "later" : "before"})`);
          }),
        )
      : null,
  ].filter(Boolean);
}

// `rows` come from stats.byName; `whole` is the time that a share is of.
export function nameTable(model, rows, whole, caption, search) {
  const shown = rows.slice(0, TOP);
  return h(
    "table",
    { class: "table names" },
    h("caption", null, caption),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Name"), ["Calls", "Total", "Share", "Average", "Least", "Most"].map((name) => h("th", { scope: "col", class: "num" }, name)))),
    h(
      "tbody",
      null,
      shown.map((row) => {
        const name = model.header.names[row.name];
        return h(
          "tr",
          null,
          h("td", null, h("button", { type: "button", class: "name-button mono", title: name, onclick: () => search(name) }, name.replace(/^void /, ""))),
          [row.count.toLocaleString("en"), duration(row.total), share(whole ? row.total / whole : 0), duration(row.total / row.count), duration(row.least), duration(row.most)].map((text) => h("td", { class: "num" }, text)),
        );
      }),
      rows.length > TOP ? h("tr", null, h("td", { colspan: 7, class: "faint" }, `and ${rows.length - TOP} more names`)) : null,
      rows.length ? null : h("tr", null, h("td", { colspan: 7, class: "faint" }, "nothing ran here")),
    ),
  );
}
