// @ts-check
// Plots speedup against cost, with one point per entry: its geometric mean with the interval, against the cost of a run.
import { draw, styleOf } from "../js/lib/plots.js";

// The format of a cost, by the kind of its column (webapp/leaderboard/columns.py).
const WRITTEN = {
  dollars: (value) => `$${value < 0.1 ? value.toFixed(3) : value.toFixed(2)}`,
  count: (value) => Math.round(value).toLocaleString("en"),
  seconds: (value) => `${Math.round(value)} s`,
};

// The choice of the cost to show, made with the buttons that have data-cost: {unit, of(point), said(point), axis, follow(changed)}.
export function costChoice(costs, points) {
  const buttons = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-cost]"))];
  const choice = {
    // Without models nothing costs money, so the default is the last unit, time, which distinguishes the entries.
    unit: costs.find((cost) => points.some((point) => point.costs[cost.key])) ?? costs.at(-1),
    of: (point) => point.costs[choice.unit.key],
    said: (point) => `${choice.unit.short}: ${WRITTEN[choice.unit.kind](choice.of(point))}`,
    get axis() {
      return { title: choice.unit.title, rangemode: "tozero", tickprefix: choice.unit.kind === "dollars" ? "$" : "" };
    },
    follow(changed) {
      for (const button of buttons) {
        button.addEventListener("click", () => {
          choice.unit = costs.find((cost) => cost.key === button.dataset.cost);
          press();
          changed();
        });
      }
    },
  };
  const press = () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.cost === choice.unit.key)));
  press();
  return choice;
}

// All costs of a point, as cells of a table.
export const costCells = (costs, point) => costs.map((cost) => (point.costs[cost.key] === null ? null : WRITTEN[cost.kind](point.costs[cost.key])));

export function showCost(box, curves) {
  if (!box) return;
  const points = curves.points;
  const choice = costChoice(curves.costs, points);
  const shown = () => points.filter((point) => choice.of(point) !== null);
  const words = (point) => `${point.rank}. ${point.name}: ${point.ratio.toFixed(2)} times [${point.low.toFixed(2)}, ${point.high.toFixed(2)}], ${choice.said(point)}`;
  const build = (theme) => {
    const found = shown();
    return {
      data: [
        {
          x: found.map(choice.of), y: found.map((point) => point.ratio), mode: "markers+text", type: "scatter", cliponaxis: false,
          text: found.map((point) => String(point.rank)), // numbers as in the table, because names would overlap
          textposition: "middle right", textfont: { size: 12, color: theme["text-2"] }, hovertext: found.map(words), hoverinfo: "text",
          marker: { size: 9, color: found.map((_, at) => styleOf(theme, at).colour), symbol: found.map((_, at) => styleOf(theme, at).symbol), line: { width: 1, color: theme.surface } },
          error_y: { type: "data", symmetric: false, array: found.map((point) => point.high - point.ratio), arrayminus: found.map((point) => point.ratio - point.low), thickness: 1.5, width: 4, color: theme["text-3"] },
        },
      ],
      layout: {
        margin: { l: 64, r: 20, t: 16, b: 44 },
        xaxis: choice.axis,
        yaxis: { title: `geometric mean, vs ${curves.against}`, ticksuffix: "×" },
        shapes: [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: 1, y1: 1, line: { color: theme["line-strong"], dash: "dot", width: 1.5 } }],
      },
    };
  };
  draw(box, build, {
    table: () => ({ columns: ["entry", "geometric mean", "95 %", ...curves.costs.map((cost) => cost.title)], rows: points.map((point) => [point.name, `${point.ratio.toFixed(2)}×`, `[${point.low.toFixed(2)}, ${point.high.toFixed(2)}]`, ...costCells(curves.costs, point)]) }),
    points: () => shown().map((point, index) => ({ trace: 0, index, text: words(point), href: point.href })),
  }).then((chart) => {
    if (!chart) return;
    choice.follow(() => chart.redraw());
    box.on("plotly_click", (event) => location.assign(shown()[event.points[0].pointNumber].href));
  });
}
