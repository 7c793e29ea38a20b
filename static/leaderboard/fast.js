// @ts-check
// fast_p: for each entry, the share of all tasks that are solved and more than p times as fast. Each entry has a line. The vertical line marks the p
// that the table and legend show. It follows the pointer, a click or Enter pins it, and the URL stores it.
import { draw, styleOf, themeOf } from "../js/lib/plots.js";
import { say } from "../js/lib/say.js";
import { counted } from "../js/lib/words.js";

const LEAST = 0.25; // left end of the axis
const percent = (share) => `${Math.round(share * 100)} %`;

// The share at p, computed from the ascending ratios of the solved tasks.
export function shareAt(entry, tasks, p) {
  let low = 0;
  let high = entry.ratios.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entry.ratios[middle] > p) high = middle;
    else low = middle + 1;
  }
  return tasks ? (entry.ratios.length - low) / tasks : 0;
}

function steps(entry, tasks, most) {
  const x = [LEAST];
  const y = [shareAt(entry, tasks, LEAST)];
  entry.ratios.forEach((ratio, index) => {
    if (ratio <= LEAST || ratio >= most) return;
    x.push(ratio);
    y.push((entry.ratios.length - index - 1) / tasks);
  });
  x.push(most);
  y.push(shareAt(entry, tasks, most));
  return { x, y };
}

export function showFast(box, curves) {
  if (!box) return;
  const { tasks, entries } = curves;
  const most = Math.max(4, 1.1 * Math.max(1, ...entries.map((entry) => entry.ratios.at(-1) ?? 1)));
  const field = /** @type {HTMLInputElement} */ (document.querySelector("[data-p-field]"));
  let pinned = curves.p;
  let chart = null;

  // Entries are coloured. Baselines are grey and differ by their dashes.
  const styles = (theme) => {
    const next = { true: 0, false: 0 };
    return entries.map((entry) => {
      const at = next[entry.baseline]++;
      return entry.baseline ? { colour: theme["text-3"], dash: ["dot", "dash", "dashdot", "longdash"][at % 4] } : styleOf(theme, at);
    });
  };

  const build = (theme) => ({
    data: entries.map((entry, at) => {
      const style = styles(theme)[at];
      return {
        ...steps(entry, tasks, most), name: entry.name, mode: "lines", hoverinfo: "none",
        line: { shape: "hv", color: style.colour, dash: style.dash, width: entry.baseline ? 1.5 : 2.25 },
      };
    }),
    layout: {
      margin: { l: 44, r: 12, t: 8, b: 40 },
      hovermode: "x",
      xaxis: { title: `p: times as fast as ${curves.against}`, type: "log", range: [Math.log10(LEAST), Math.log10(most)], tickvals: [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128].filter((tick) => tick <= most), ticksuffix: "×" },
      yaxis: { range: [0, 1.02], tickformat: ".0%", title: "" },
      shapes: [lineAt(1, theme["line-strong"], "dot"), lineAt(Math.min(most, Math.max(LEAST, pinned)), theme.accent, "solid")],
    },
  });
  const lineAt = (p, colour, dash) => ({ type: "line", x0: p, x1: p, y0: 0, y1: 1, yref: "paper", line: { color: colour, width: 1.5, dash } });

  drawLegend(entries, tasks, curves.left);
  const tell = (p) => {
    document.querySelectorAll("[data-legend] li").forEach((item, at) => {
      item.querySelector("b").textContent = percent(shareAt(entries[at], tasks, p));
    });
    if (document.activeElement !== field) field.value = String(p);
  };
  const look = (p) => {
    tell(p);
    if (chart) chart.Plotly.relayout(box, { "shapes[1].x0": clamp(p), "shapes[1].x1": clamp(p) });
  };
  const clamp = (p) => Math.min(most, Math.max(LEAST, p));
  const pin = (p) => {
    pinned = Math.min(1000, Math.max(0, Math.round(p * 1000) / 1000));
    look(pinned);
    tellTable(entries, tasks, pinned);
    keepInAddress(pinned);
  };

  tell(pinned);
  colour(styles);
  document.addEventListener("themechange", () => box.isConnected && colour(styles));
  draw(box, build, {
    table: () => {
      const at = [...new Set([0, 0.5, 0.8, 1, 1.5, 2, 4, pinned])].sort((a, b) => a - b);
      return { columns: ["entry", "solved", ...at.map((p) => `fast_${p}`)], rows: entries.map((entry) => [entry.name, `${entry.solved}/${tasks}`, ...at.map((p) => percent(shareAt(entry, tasks, p)))]) };
    },
  }).then((made) => {
    chart = made;
    if (!chart) return;
    box.tabIndex = 0;
    box.setAttribute("role", "slider");
    const value = () => {
      box.setAttribute("aria-valuemin", "0");
      box.setAttribute("aria-valuemax", "1000");
      box.setAttribute("aria-valuenow", String(pinned));
      box.setAttribute("aria-valuetext", `p ${pinned}: ${entries.slice(0, 3).map((entry) => `${entry.name} ${percent(shareAt(entry, tasks, pinned))}`).join(", ")}`);
    };
    value();
    const pOf = (event) => {
      const axis = box._fullLayout.xaxis;
      const x = event.clientX - box.getBoundingClientRect().left - axis._offset;
      return x < 0 || x > axis._length ? null : 10 ** axis.p2l(x);
    };
    // Rounds to two decimals, a precision that a pointer can select and a person would quote.
    const round = (p) => Math.round(p * 100) / 100;
    box.addEventListener("pointermove", (event) => {
      const p = pOf(event);
      if (p !== null) look(round(p));
    });
    box.addEventListener("pointerleave", () => look(pinned));
    box.addEventListener("click", (event) => {
      const p = pOf(event);
      if (p === null) return;
      pin(round(p));
      value();
      say(`p is ${pinned}`);
    });
    box.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 0.05, ArrowUp: 0.05, ArrowLeft: -0.05, ArrowDown: -0.05, PageUp: 0.5, PageDown: -0.5 }[event.key];
      if (by) pin(Math.max(0, Math.round((pinned + by) * 100) / 100));
      else if (event.key === "Home") pin(0);
      else if (event.key === "End") pin(Math.floor(most));
      else return;
      event.preventDefault();
      value();
    });
    const put = () => {
      if (!Number.isFinite(field.valueAsNumber)) return;
      pin(field.valueAsNumber);
      value();
    };
    field.addEventListener("input", put);
    document.querySelector("[data-p-one]").addEventListener("click", () => {
      pin(1);
      value();
    });
  });
}

function drawLegend(entries, tasks, left) {
  const list = document.querySelector("[data-legend]");
  list.replaceChildren(
    ...entries.map((entry) => {
      const item = document.createElement("li");
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      swatch.setAttribute("viewBox", "0 0 24 4");
      swatch.setAttribute("aria-hidden", "true");
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      swatch.append(line);
      for (const [name, value] of Object.entries({ x1: 0, x2: 24, y1: 2, y2: 2, "stroke-width": 2.5 })) line.setAttribute(name, String(value));
      const name = Object.assign(document.createElement("span"), { className: "entry-name", textContent: entry.name, title: entry.name });
      const covered = Object.assign(document.createElement("span"), { className: "muted small", textContent: `${entry.tried}/${tasks}`, title: `${entry.baseline ? "measured on" : "tried"} ${entry.tried} of ${counted(tasks, "task")}` });
      item.append(swatch, name, covered, document.createElement("b"));
      return item;
    }),
  );
  document.querySelector("[data-legend-left]").textContent = left ? `${left} more entries: sort or filter to see others.` : "";
}

function colour(styles) {
  const dashes = { solid: "", dash: "6 3", dot: "1.5 2.5", dashdot: "6 2 1.5 2", longdash: "9 3" };
  const found = styles(themeOf());
  document.querySelectorAll("[data-legend] line").forEach((line, at) => {
    line.setAttribute("stroke", found[at].colour);
    line.setAttribute("stroke-dasharray", dashes[found[at].dash]);
  });
}

// Updates the table's fast_p column for the rows that have a line here. The other rows are correct again once the URL is loaded.
function tellTable(entries, tasks, p) {
  for (const name of document.querySelectorAll("[data-fast-name]")) name.textContent = `fast_${p}`;
  const known = new Map(entries.map((entry) => [entry.key, entry]));
  for (const row of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-entry]"))) {
    const entry = known.get(row.dataset.entry);
    row.querySelector("[data-fast]").textContent = entry ? percent(shareAt(entry, tasks, p)) : "…";
    const sure = /** @type {HTMLElement | null} */ (row.querySelector("[data-sure]"));
    if (sure) sure.hidden = true; // it uses lower bounds, which only the server has
  }
}

function keepInAddress(p) {
  const address = new URL(location.href);
  if (p === 1) address.searchParams.delete("p");
  else address.searchParams.set("p", String(p));
  history.replaceState(history.state, "", address);
  const hidden = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-board-filters] [data-p]"));
  if (hidden) {
    hidden.value = String(p);
    hidden.disabled = p === 1;
  }
  for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("[data-export], #board a[data-swap], #board .board a[href]"))) {
    const to = new URL(link.href);
    if (p === 1) to.searchParams.delete("p");
    else to.searchParams.set("p", String(p));
    link.href = to.pathname + to.search;
  }
}
