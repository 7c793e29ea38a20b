// @ts-check
// The charts of a task's page: the record over time, and the speedup against the cost of a run.
import { draw, styleOf } from "../js/lib/plots.js";
import { costCells, costChoice } from "./cost.js";

const data = document.getElementById("task-pictures");
const { points, costs } = data ? JSON.parse(data.textContent) : { points: [], costs: [] };
const times = (point) => `${point.ratio.toFixed(2)}× [${point.low.toFixed(2)}, ${point.high.toFixed(2)}] over ${point.against}`;
const words = (point) => `${point.rank}. ${point.name}: ${times(point)}, ${point.at.slice(0, 10)}`;
const bars = (shown, theme) => ({
  type: "data", symmetric: false, thickness: 1.5, width: 4, color: theme["text-3"],
  array: shown.map((point) => point.high - point.ratio), arrayminus: shown.map((point) => point.ratio - point.low),
});
const one = (theme) => [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: 1, y1: 1, line: { color: theme["line-strong"], dash: "dot", width: 1.5 } }];

function scatter(theme, shown, x) {
  return {
    x, y: shown.map((point) => point.ratio), mode: "markers", type: "scatter", cliponaxis: false, hovertext: shown.map(words), hoverinfo: "text", error_y: bars(shown, theme),
    marker: { size: 9, color: shown.map((point) => (point.record ? theme.accent : theme["text-3"])), symbol: shown.map((point) => (point.record ? "diamond" : "circle")) },
  };
}

const openPoint = (box, shown) => box.on?.("plotly_click", (event) => event.points[0].curveNumber === 0 && location.assign(shown()[event.points[0].pointNumber].href));
const table = (columns, cell) => () => ({ columns: ["result", ...columns, "speedup, 95 %"], rows: points.map((point) => [point.name, ...cell(point), times(point)]) });

// An axis of whole days, with a spare day on each side and at most five labels, so that no label is rotated.
function days(times) {
  const DAY = 86_400_000, found = times.map((time) => Date.parse(time)), first = Math.min(...found) - DAY, last = Math.max(...found) + DAY;
  const [from, to] = [first, last].map((time) => new Date(time).toISOString());
  return { type: "date", range: [from, to], dtick: Math.ceil((last - first) / DAY / 4) * DAY, tickformat: "%b %-d", tickangle: 0 };
}

function showRecord(box) {
  const records = points.filter((point) => point.record);
  draw(
    box,
    (theme) => ({
      data: [
        scatter(theme, points, points.map((point) => point.at)),
        { x: records.map((point) => point.at), y: records.map((point) => point.ratio), mode: "lines", line: { color: styleOf(theme, 0).colour, width: 1.5, shape: "hv" }, hoverinfo: "skip" },
      ],
      layout: { xaxis: days(points.map((point) => point.at)), yaxis: { title: "over the best baseline", ticksuffix: "×" }, shapes: one(theme), showlegend: false },
    }),
    { table: table(["date"], (point) => [point.at.slice(0, 10)]), points: () => points.map((point, index) => ({ trace: 0, index, text: words(point), href: point.href })) },
  ).then((chart) => chart && openPoint(box, () => points));
}

function showCost(box) {
  const choice = costChoice(costs, points);
  const shown = () => points.filter((point) => choice.of(point) !== null);
  draw(
    box,
    (theme) => ({
      data: [scatter(theme, shown(), shown().map(choice.of))],
      layout: { xaxis: choice.axis, yaxis: { title: "over the best baseline", ticksuffix: "×" }, shapes: one(theme), showlegend: false },
    }),
    {
      table: table(costs.map((cost) => cost.title), (point) => costCells(costs, point)),
      points: () => shown().map((point, index) => ({ trace: 0, index, text: words(point), href: point.href })),
    },
  ).then((chart) => {
    if (!chart) return;
    choice.follow(() => chart.redraw());
    openPoint(box, shown);
  });
}

for (const [name, show] of Object.entries({ record: showRecord, cost: showCost })) {
  const box = document.querySelector(`[data-plot=${name}]`);
  if (box && points.length) show(box);
}
