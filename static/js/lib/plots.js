// @ts-check
// Draws Plotly charts in the page's colours. A page provides a box of fixed height and a function that builds the chart for a theme. This module
// loads Plotly when the box comes into view, redraws when the theme changes or the box is resized, and makes the figures available as a table and by
// keyboard.
//
//   draw(element, figure), with styleOf(name) for its colours
//   draw(box, (theme) => ({ data: [...], layout: {...} }), {
//     table: () => ({ columns: ["entry", "cost"], rows: [["stitch", "$0.12"]] }),
//     points: () => [{ trace: 0, index: 3, text: "stitch: $0.12, 2.31 times", href: "/leaderboard/..." }],
//   })
//
// The box is <div class="plot" aria-label="..."></div>, with a height set in the page's stylesheet. Arrow keys move through `points`, and Enter opens
// one.
import { say } from "./say.js";

/** @typedef {{ trace: number, index: number, text: string, href?: string }} Point */

const SERIES = 5;
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star"];
const QUIET = { displayModeBar: false, displaylogo: false, responsive: false, showTips: false, doubleClick: false, scrollZoom: false };
const dark = matchMedia("(prefers-color-scheme: dark)");

let loading = null;

// Plotly is five megabytes, so it is loaded only when a chart comes into view, and once per page.
function plotly() {
  loading ??= import("../../vendor/plotly.min.js").then(() => globalThis.Plotly);
  return loading;
}

// Resolves the tokens to colours that Plotly understands. A token holds the values for both themes, so it must be resolved by an element.
export function themeOf() {
  const probe = document.createElement("i");
  probe.hidden = true;
  document.body.append(probe);
  const colour = (token) => {
    probe.style.color = `var(--${token})`;
    return getComputedStyle(probe).color;
  };
  const names = ["text", "text-2", "text-3", "line", "line-strong", "page", "surface", "raised", "accent", "ok", "warn", "bad"];
  /** @type {Record<string, string>} */
  const theme = Object.fromEntries(names.map((name) => [name, colour(name)]));
  const series = Array.from({ length: SERIES }, (_, at) => colour(`series-${at + 1}`));
  probe.remove();
  return { ...theme, series, font: getComputedStyle(document.body).fontFamily };
}

// The style of the n-th series (0-based). The colour varies first, then the dash and symbol. No two of the first 25 differ in colour alone.
export function styleOf(theme, at) {
  return { colour: theme.series[at % SERIES], dash: DASHES[Math.floor(at / SERIES + at) % DASHES.length], symbol: SYMBOLS[at % SYMBOLS.length] };
}

function axisOf(theme, axis) {
  const line = { gridcolor: theme.line, linecolor: theme["line-strong"], zerolinecolor: theme.line, tickcolor: theme["line-strong"] };
  const title = typeof axis.title === "string" ? { text: axis.title } : axis.title;
  return { ...line, automargin: true, fixedrange: true, ticks: "outside", ticklen: 4, zeroline: false, ...axis, title: { standoff: 8, ...title } };
}

function layoutOf(theme, layout) {
  const axes = Object.fromEntries(Object.entries(layout).filter(([name]) => /^[xy]axis\d*$/.test(name)).map(([name, axis]) => [name, axisOf(theme, axis)]));
  return {
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: theme.font, size: 12, color: theme["text-2"] },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    showlegend: false,
    dragmode: false,
    hoverdistance: 24,
    hoverlabel: { bgcolor: theme.raised, bordercolor: theme["line-strong"], font: { family: theme.font, size: 12, color: theme.text } },
    ...layout,
    ...axes,
  };
}

function seen(box) {
  return new Promise((resolve) => {
    const watcher = new IntersectionObserver(
      ([entry]) => {
        if (!entry.isIntersecting) return;
        watcher.disconnect();
        resolve();
      },
      { rootMargin: "300px" },
    );
    watcher.observe(box);
  });
}

/** @typedef {ReturnType<typeof themeOf>} Theme */

/**
 * Draws the chart once the box is in view, and resolves to {box, Plotly, redraw}, or to null if it could not be drawn. Call `redraw` when the figures
 * have changed.
 * @param {HTMLElement} box
 * @param {(theme: Theme) => { data: object[], layout: object }} build
 * @param {{ table?: () => { columns: string[], rows: (string | number | null)[][] }, points?: () => Point[] }} [ways] - other ways to the figures
 */
export async function draw(box, build, { table, points } = {}) {
  if (table) tabulate(box, table);
  await seen(box);
  let Plotly;
  try {
    Plotly = await plotly();
  } catch {
    box.textContent = "The chart could not be loaded. Its figures are in the table below.";
    box.classList.add("failed");
    return null;
  }
  if (!box.isConnected) return null;
  const redraw = () => {
    if (!box.isConnected) return; // removed by a swap; its listeners are dropped at the next change
    const { data, layout } = build(themeOf());
    return Plotly.react(box, data, layoutOf(themeOf(), layout), QUIET);
  };
  await redraw();
  box.dataset.drawn = "";
  follow(box, Plotly, redraw);
  if (points) walk(box, Plotly, points);
  return { box, Plotly, redraw };
}

function follow(box, Plotly, redraw) {
  const gone = new AbortController();
  const again = () => (box.isConnected ? redraw() : gone.abort());
  document.addEventListener("themechange", again, { signal: gone.signal });
  dark.addEventListener("change", again, { signal: gone.signal });
  let width = box.clientWidth;
  const sizes = new ResizeObserver(() => {
    if (!box.isConnected) {
      sizes.disconnect();
      gone.abort();
      Plotly.purge(box);
    } else if (box.clientWidth !== width && box.clientWidth) {
      width = box.clientWidth;
      requestAnimationFrame(() => box.isConnected && Plotly.Plots.resize(box));
    }
  });
  sizes.observe(box);
}

// Arrow keys move from point to point in the given order and show the same label as the pointer does.
function walk(box, Plotly, points) {
  let at = -1;
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  box.setAttribute("aria-roledescription", "chart: arrow keys go from point to point, Enter opens one");
  const go = (to) => {
    const all = points();
    if (!all.length) return;
    at = (to + all.length) % all.length;
    Plotly.Fx.hover(box, [{ curveNumber: all[at].trace, pointNumber: all[at].index }]);
    say(`${all[at].text} (${at + 1} of ${all.length})`);
  };
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) go(at < 0 && step < 0 ? -1 : at + step);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(-1);
    else if (event.key === "Enter" && at >= 0 && points()[at].href) location.assign(points()[at].href);
    else if (event.key === "Escape") Plotly.Fx.unhover(box);
    else return;
    event.preventDefault();
  });
  box.addEventListener("blur", () => Plotly.Fx.unhover(box));
}

// Adds <details class="plot-table"> after the box and fills it when it is opened. A page can include the element to reserve its space from the start.
function tabulate(box, table) {
  let details = box.parentElement.querySelector("details.plot-table");
  if (!details) {
    details = document.createElement("details");
    details.className = "plot-table";
    details.append(Object.assign(document.createElement("summary"), { textContent: "As a table" }));
    box.after(details);
  }
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    const { columns, rows } = table();
    const made = document.createElement("table");
    made.className = "table";
    const head = made.createTHead().insertRow();
    for (const column of columns) head.append(Object.assign(document.createElement("th"), { scope: "col", textContent: column }));
    const body = made.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((value, index) => {
        const cell = document.createElement(index ? "td" : "th");
        if (!index) cell.scope = "row";
        if (typeof value === "number") cell.className = "num";
        cell.textContent = value ?? "–";
        line.append(cell);
      });
    }
    const wrap = Object.assign(document.createElement("div"), { className: "table-wrap", tabIndex: 0, role: "region" });
    wrap.setAttribute("aria-label", `${box.getAttribute("aria-label") ?? "The chart"}, as a table`);
    wrap.append(made);
    details.querySelector(".table-wrap")?.remove();
    details.append(wrap);
  });
}
