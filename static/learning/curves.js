// @ts-check
// The curves of a training run. They are fetched when the page loads and at every tick of its status, and redrawn only if the file has changed.
import { draw, styleOf } from "../js/lib/plots.js";

const page = document.getElementById("curves");
const standing = document.getElementById("standing");
const shown = new Map(); // key of a chart -> function that redraws it
let figures = { steps: [], charts: [] };
let tag = null;

const WRITTEN = { "%": (value) => `${(100 * value).toFixed(1)} %`, "×": (value) => `${value.toFixed(2)}×`, "": (value) => String(Number(value.toPrecision(4))) };
const MARKS = ["━━", "╍╍", "┅┅", "━╍", "╌╌"]; // in the order of the lines' dashes
const chartOf = (key) => figures.charts.find((chart) => chart.key === key) ?? { lines: [], unit: "", stacked: false };
const words = (chart, at) => {
  const said = chart.lines.filter((line) => line.values[at] !== null).map((line) => `${line.name} ${WRITTEN[chart.unit](line.values[at])}`);
  return `Step ${figures.steps[at]}: ${said.join(", ")}`;
};

function traces(theme, chart) {
  const alone = figures.steps.length < 2;
  return chart.lines.map((line, at) => {
    const { colour, dash, symbol } = styleOf(theme, at);
    return {
      x: figures.steps, y: line.values, name: line.name, type: "scatter", mode: alone ? "markers" : "lines", connectgaps: false,
      line: { color: colour, width: 1.5, dash: chart.stacked ? "solid" : dash }, marker: { color: colour, symbol, size: 8 },
      stackgroup: chart.stacked ? "all" : undefined, hovertext: figures.steps.map((_, step) => words(chart, step)), hoverinfo: "text",
    };
  });
}

function layoutOf(theme, chart) {
  const one = { type: "line", x0: 0, x1: 1, xref: "paper", y0: 1, y1: 1, line: { color: theme["line-strong"], dash: "dot", width: 1.5 } };
  return {
    margin: { l: 48, r: 12, t: 8, b: 36 },
    xaxis: { title: "step", tickformat: "d", ...(figures.steps.length < 7 ? { dtick: 1 } : { nticks: 6 }) },
    yaxis: { tickformat: chart.unit === "%" ? ".0%" : "", ticksuffix: chart.unit === "×" ? "×" : "", rangemode: chart.unit === "%" ? "tozero" : "normal", nticks: 5 },
    shapes: chart.unit === "×" ? [one] : [],
    hovermode: "x",
  };
}

// The names of the lines with their latest figures.
function legend(box, chart) {
  const parts = chart.lines.map((line, at) => {
    const mark = Object.assign(document.createElement("b"), { className: `line-${(at % 5) + 1}`, textContent: chart.stacked ? "■" : MARKS[at % MARKS.length] });
    mark.setAttribute("aria-hidden", "true");
    const said = document.createElement("span");
    said.append(mark, ` ${line.name} ${WRITTEN[chart.unit](line.values.findLast((value) => value !== null))}`);
    return said;
  });
  box.parentElement.querySelector("[data-legend]").replaceChildren(...parts);
}

function show(box) {
  const key = box.dataset.chart;
  const chart = chartOf(key);
  box.classList.toggle("without", !chart.lines.length);
  if (!chart.lines.length) {
    box.textContent = "No figure yet";
    return;
  }
  if (shown.has(key)) {
    shown.get(key)?.();
    return;
  }
  box.textContent = "";
  shown.set(key, null);
  const options = {
    table: () => ({ columns: ["step", ...chartOf(key).lines.map((line) => line.name)], rows: figures.steps.map((step, at) => [String(step), ...chartOf(key).lines.map((line) => (line.values[at] === null ? null : WRITTEN[chart.unit](line.values[at])))]) }),
    points: () => figures.steps.map((step, index) => ({ trace: 0, index, text: words(chartOf(key), index), href: `${page.dataset.training}?step=${step}#rollouts` })),
  };
  const build = (theme) => {
    legend(box, chartOf(key));
    return { data: traces(theme, chartOf(key)), layout: layoutOf(theme, chartOf(key)) };
  };
  draw(box, build, options).then((chart) => {
    if (!chart) return;
    shown.set(key, chart.redraw);
    chart.redraw(); // data that arrived while the chart was loading
    box.on("plotly_click", (event) => location.assign(`${page.dataset.training}?step=${event.points[0].x}#rollouts`));
  });
}

async function refresh() {
  const answer = await fetch(page.dataset.figures, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!answer?.ok || answer.headers.get("ETag") === tag) return;
  tag = answer.headers.get("ETag");
  figures = await answer.json();
  page.querySelectorAll("[data-chart]").forEach(show);
}

standing.addEventListener("tick", refresh);
refresh();
