// Cost against speedup: one point an entry, its geometric mean with the interval over what a run costs.
import { draw, styleOf } from "../js/lib/plots.js";
import { counted } from "../js/lib/words.js";

const SAID = {
  dollars: { title: "cost of a run, dollars", text: (value) => `$${value < 0.1 ? value.toFixed(3) : value.toFixed(2)}`, prefix: "$" },
  tokens: { title: "tokens of a run", text: (value) => counted(Math.round(value), "token"), prefix: "" },
  seconds: { title: "time of a run, seconds", text: (value) => `${Math.round(value)} s`, prefix: "" },
};

// What cost is counted in, by the buttons with data-cost. Without models nothing costs money: then time tells entries apart.
export function costUnits(points) {
  const buttons = [...document.querySelectorAll("[data-cost]")];
  const units = {
    current: points.some((point) => point.dollars) ? "dollars" : "seconds",
    get title() {
      return SAID[units.current].title;
    },
    get prefix() {
      return SAID[units.current].prefix;
    },
    text: (value) => SAID[units.current].text(value),
    follow(changed) {
      for (const button of buttons) {
        button.addEventListener("click", () => {
          units.current = button.dataset.cost;
          press();
          changed();
        });
      }
    },
  };
  const press = () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.cost === units.current)));
  press();
  return units;
}

export function showCost(box, curves) {
  if (!box) return;
  const points = curves.points;
  const units = costUnits(points);
  const shown = () => points.filter((point) => point[units.current] !== null);
  const words = (point) => `${point.rank}. ${point.name}: ${point.ratio.toFixed(2)} times [${point.low.toFixed(2)}, ${point.high.toFixed(2)}], ${units.text(point[units.current])}`;
  const build = (theme) => {
    const found = shown();
    return {
      data: [
        {
          x: found.map((point) => point[units.current]), y: found.map((point) => point.ratio), mode: "markers+text", type: "scatter", cliponaxis: false,
          text: found.map((point) => String(point.rank)), // as in the table: names would lie over each other
          textposition: "middle right", textfont: { size: 12, color: theme["text-2"] }, hovertext: found.map(words), hoverinfo: "text",
          marker: { size: 9, color: found.map((_, at) => styleOf(theme, at).colour), symbol: found.map((_, at) => styleOf(theme, at).symbol), line: { width: 1, color: theme.surface } },
          error_y: { type: "data", symmetric: false, array: found.map((point) => point.high - point.ratio), arrayminus: found.map((point) => point.ratio - point.low), thickness: 1.5, width: 4, color: theme["text-3"] },
        },
      ],
      layout: {
        margin: { l: 64, r: 20, t: 16, b: 44 },
        xaxis: { title: units.title, rangemode: "tozero", tickprefix: units.prefix },
        yaxis: { title: `geometric mean, vs ${curves.against}`, ticksuffix: "×" },
        shapes: [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: 1, y1: 1, line: { color: theme["line-strong"], dash: "dot", width: 1.5 } }],
      },
    };
  };
  draw(box, build, {
    table: () => ({ columns: ["entry", "geometric mean", "95 %", "dollars a run", "tokens a run", "seconds a run"], rows: points.map((point) => [point.name, `${point.ratio.toFixed(2)}×`, `[${point.low.toFixed(2)}, ${point.high.toFixed(2)}]`, point.dollars, point.tokens && Math.round(point.tokens), point.seconds && Math.round(point.seconds)]) }),
    points: () => shown().map((point, index) => ({ trace: 0, index, text: words(point), href: point.href })),
  }).then((chart) => {
    if (!chart) return;
    units.follow(() => chart.redraw());
    box.on("plotly_click", (event) => location.assign(shown()[event.points[0].pointNumber].href));
  });
}
