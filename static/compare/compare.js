// @ts-check
// The charts of a comparison: the intervals of all sides, and the rooflines of their devices with all sides.
import { draw, styleOf } from "../js/lib/plots.js";

const pictures = JSON.parse(document.getElementById("compare-pictures").textContent);
const times = (figure) => `${figure.ratio.toFixed(2)}× [${figure.low.toFixed(2)}, ${figure.high.toFixed(2)}]`;
const seriesOf = (letter) => letter.charCodeAt(0) - 65;

for (const letter of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-letter]"))) letter.classList.add(`series-${(seriesOf(letter.dataset.letter) % 5) + 1}`);

function bars(theme, one, figure, hollow) {
  const colour = styleOf(theme, seriesOf(one.letter)).colour;
  return {
    x: [figure.ratio],
    y: [`${one.letter} `],
    type: "scatter",
    mode: "markers",
    error_x: { type: "data", symmetric: false, array: [figure.high - figure.ratio], arrayminus: [figure.ratio - figure.low], color: colour, thickness: 2, width: 5 },
    marker: { size: 10, color: hollow ? theme.surface : colour, line: { color: colour, width: 2 }, symbol: hollow ? "diamond" : "circle" },
    hovertemplate: `${one.letter}, ${hollow ? "best baseline" : "eager"}: ${times(figure)}<extra></extra>`,
  };
}

function showIntervals(box) {
  const all = pictures.intervals;
  const entries = all.flatMap((one) => [{ one, figure: one.eager, hollow: false }, ...(one.best ? [{ one, figure: one.best, hollow: true }] : [])]);
  draw(
    box,
    (theme) => ({
      data: entries.map(({ one, figure, hollow }) => bars(theme, one, figure, hollow)),
      layout: {
        xaxis: { title: "times as fast", type: "log", rangemode: "tozero" },
        yaxis: { type: "category", categoryarray: all.map((one) => `${one.letter} `).reverse() },
        shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: theme["line-strong"], dash: "dash", width: 1 } }],
      },
    }),
    {
      table: () => ({ columns: ["side", "against eager", "against the best baseline"], rows: all.map((one) => [`${one.letter} ${one.name}`, times(one.eager), one.best ? times(one.best) : "–"]) }),
      points: () => entries.map(({ one, figure, hollow }, at) => ({ trace: at, index: 0, text: `${one.name}, against ${hollow ? "the best baseline" : "eager"}: ${times(figure)}`, href: one.href })),
    },
  );
}

function roof(theme, one, at, span) {
  const ridge = one.gflops / one.gbs;
  const x = [span[0], Math.min(Math.max(ridge, span[0]), span[1]), span[1]];
  return {
    x,
    y: x.map((intensity) => Math.min(intensity * one.gbs, one.gflops)),
    mode: "lines",
    line: { color: theme["text-3"], width: 1.5, dash: ["solid", "dash", "dot"][at % 3] },
    hovertemplate: `${one.device}: ${one.gbs.toFixed(0)} GB/s, ${one.gflops.toFixed(0)} GFLOP/s<extra></extra>`,
  };
}

function showRoofline(box) {
  const { points, roofs } = pictures.roofline;
  const inner = [...points.map((one) => one.intensity), ...roofs.map((one) => one.gflops / one.gbs)];
  const span = [Math.min(...inner) / 4, Math.max(...inner) * 4];
  draw(
    box,
    (theme) => ({
      data: [
        ...points.map((one) => {
          const style = styleOf(theme, seriesOf(one.letter));
          return {
            x: [one.intensity],
            y: [one.gflops],
            mode: "markers+text",
            text: [one.letter],
            textposition: "middle right",
            marker: { size: 11, color: style.colour, symbol: style.symbol },
            hovertemplate: `${one.letter}: ${one.gflops.toPrecision(3)} GFLOP/s at ${one.intensity.toPrecision(3)} FLOP/B<extra></extra>`,
          };
        }),
        ...roofs.map((one, at) => roof(theme, one, at, span)),
      ],
      layout: { xaxis: { title: "FLOP for each byte", type: "log" }, yaxis: { title: "GFLOP/s", type: "log" } },
    }),
    {
      table: () => ({ columns: ["side", "device", "FLOP for each byte", "GFLOP/s"], rows: points.map((one) => [`${one.letter} ${one.name}`, one.device, one.intensity.toPrecision(3), one.gflops.toPrecision(3)]) }),
      points: () => points.map((one, at) => ({ trace: at, index: 0, text: `${one.name}: ${one.gflops.toPrecision(3)} GFLOP/s`, href: one.href })),
    },
  );
}

// Each run has a letter, and its points are in the order of the attempts. Programs that did not pass are crosses on the bottom line.
function showAttempts(box) {
  const runs = pictures.attempts;
  const passed = (run) => run.points.filter((point) => point.speedup);
  const lows = runs.flatMap((run) => passed(run).map((point) => point.speedup.low));
  const bottom = Math.min(0.9, ...lows) / 1.1;
  const top = Math.max(1.2, ...runs.flatMap((run) => passed(run).map((point) => point.speedup.high)));
  const last = Math.max(...runs.flatMap((run) => run.points.map((point) => point.number)));
  const failed = (run) => run.points.filter((point) => !point.speedup);
  const bestSoFar = (run) => passed(run).map((_, at, all) => Math.max(...all.slice(0, at + 1).map((point) => point.speedup.ratio)));
  draw(
    box,
    (theme) => ({
      data: runs.flatMap((run) => {
        const style = styleOf(theme, seriesOf(run.letter));
        const good = passed(run);
        const x = (points) => points.map((point) => point.number);
        return [
          {
            x: x(good), y: good.map((point) => point.speedup.ratio), mode: "markers", marker: { size: 9, color: style.colour, symbol: style.symbol },
            error_y: {
              type: "data", symmetric: false, color: style.colour, thickness: 1.5, width: 4,
              array: good.map((point) => point.speedup.high - point.speedup.ratio), arrayminus: good.map((point) => point.speedup.ratio - point.speedup.low),
            },
            text: good.map((point) => `${run.letter}, candidate ${point.number}: ${times(point.speedup)}`), hovertemplate: "%{text}<extra></extra>",
          },
          { x: x(good), y: bestSoFar(run), mode: "lines", line: { color: style.colour, width: 1.5, dash: style.dash, shape: "hv" }, hoverinfo: "skip" },
          {
            x: x(failed(run)), y: failed(run).map(() => bottom), mode: "markers", marker: { size: 8, color: style.colour, symbol: "x-thin", line: { color: style.colour, width: 2 } },
            text: failed(run).map((point) => `${run.letter}, candidate ${point.number}: ${words(point.status)}`), hovertemplate: "%{text}<extra></extra>",
          },
        ];
      }),
      layout: {
        xaxis: { title: "candidate", range: [0.5, last + 0.5], dtick: Math.max(1, Math.ceil(last / 16)) },
        yaxis: { title: "times as fast as eager", type: "log", range: [Math.log10(bottom / 1.05), Math.log10(top * 1.08)] },
        shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: theme["line-strong"], dash: "dash", width: 1 } }],
      },
    }),
    {
      table: () => ({
        columns: ["run", "candidate", "against eager"],
        rows: runs.flatMap((run) => run.points.map((point) => [`${run.letter} ${run.name}`, String(point.number), point.speedup ? times(point.speedup) : words(point.status)])),
      }),
      points: () =>
        runs.flatMap((run, at) => [
          ...passed(run).map((point, index) => ({ trace: 3 * at, index, text: `${run.name}, candidate ${point.number}: ${times(point.speedup)}`, href: point.href })),
          ...failed(run).map((point, index) => ({ trace: 3 * at + 2, index, text: `${run.name}, candidate ${point.number}: ${words(point.status)}`, href: point.href })),
        ]),
    },
  );
}

const words = (status) => status.replaceAll("_", " ");

const boxes = { intervals: showIntervals, roofline: showRoofline, attempts: showAttempts };
for (const [name, show] of Object.entries(boxes)) {
  const box = document.querySelector(`[data-plot=${name}]`);
  if (box) show(box);
}
