// @ts-check
// The list of search hits, in order of time or longest first.
import { counted } from "../lib/words.js";
import { h } from "../run/dom.js";
import { nameOf } from "./details.js";
import { duration, shortName } from "./format.js";

const MOST = 200;
const ORDERS = { time: "in time", longest: "longest first" };

// The first `most` events in an order, found without sorting all of them: {time: earliest first, longest: longest first}.
export function firstHits(model, events, order, most = MOST) {
  const { start, duration: took } = model.columns;
  const before = order === "longest" ? (a, b) => took[a] > took[b] || (took[a] === took[b] && start[a] < start[b]) : (a, b) => start[a] < start[b] || (start[a] === start[b] && a < b);
  const kept = [];
  for (const event of events) {
    if (kept.length === most && !before(event, kept[most - 1])) continue;
    let [low, high] = [0, kept.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (before(event, kept[middle])) high = middle;
      else low = middle + 1;
    }
    kept.splice(low, 0, event);
    if (kept.length > most) kept.pop();
  }
  return kept;
}

// `choose(lane, event)` selects a hit, `reorder(order)` changes the order, and `named` says that hits come from two lanes, which must be
// distinguished.
export function hitsPanel(lanes, named, order, choose, reorder) {
  const all = lanes.reduce((sum, lane) => sum + lane.matches.events.length, 0);
  const choice = h("select", { "aria-label": "Order of the hits" }, Object.entries(ORDERS).map(([value, text]) => h("option", { value, selected: value === order }, text)));
  choice.addEventListener("change", () => reorder(choice.value));
  return [
    h("div", { class: "row" }, h("h3", null, counted(all, "hit")), choice),
    ...lanes.flatMap((lane) => {
      const shown = firstHits(lane.model, lane.matches.events, order);
      const left = lane.matches.events.length - shown.length;
      return [named ? h("h4", null, lane.name) : null, h("ol", { class: "hits plain", tabindex: "0" }, shown.map((event) => hit(lane, event, choose))), left ? h("p", { class: "faint" }, `and ${counted(left, "more hit")}`) : null];
    }).filter(Boolean),
  ];
}

function hit(lane, event, choose) {
  const { model } = lane;
  const { start, duration: took, row } = model.columns;
  const name = nameOf(model, event);
  return h("li", null, h("button", { type: "button", class: "name-button mono", title: name, onclick: () => choose(lane, event) }, shortName(name)), h("span", { class: "faint" }, ` ${duration(took[event])} at ${duration(start[event])} · ${model.rows[row[event]].name}`));
}
