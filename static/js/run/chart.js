// @ts-check
// Plots the speedup of each attempt with its interval. A cross marks a program that was refused or wrong and gives the reason.
import { svg } from "./dom.js";
import { bestCandidate } from "./store.js";
import { interval, ms, statusOf, times } from "./format.js";
import { write } from "./selection.js";

const HEIGHT = 148;
const LEFT = 68;
const RIGHT = 16;
const TOP = 14;
const BOTTOM = 26;
const NARROW = 400; // px; wide enough for a short sentence
const MIN_STEP = 14;
const MAX_STEP = 96;

export class Chart {
  constructor(box) {
    this.box = box;
    this.width = box.clientWidth;
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width === this.width) return;
      this.width = width;
      this.redraw?.();
    }).observe(box);
    box.addEventListener("keydown", (event) => this.step(event));
  }

  // Tab reaches only one point, which is the selected or the best one. The arrow keys move from there.
  step(event) {
    const points = [...this.box.querySelectorAll(".point")];
    const at = points.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: points.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation(); // keeps the page's shortcuts from firing
    const next = points[Math.min(points.length - 1, Math.max(0, to))];
    points[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  draw(state, selected) {
    this.redraw = () => this.draw(state, selected);
    const candidates = [...state.candidates.values()].sort((a, b) => a.number - b.number);
    const width = Math.max(240, this.width);
    const slots = Math.max(candidates.length, Math.min(8, state.limits.candidates ?? 8));
    const step = Math.min(MAX_STEP, Math.max(MIN_STEP, (width - LEFT - RIGHT) / slots));
    const total = Math.max(width, LEFT + RIGHT + step * candidates.length);
    const measured = candidates.filter((c) => c.status === "passed" && c.speedup);
    const floor = HEIGHT - BOTTOM;
    const { base, top, ticks } = scaleOf(measured.map((c) => [c.speedup.low ?? c.speedup.ratio, c.speedup.high ?? c.speedup.ratio]));
    const y = (ratio) => Math.min(floor, Math.max(TOP, floor - ((ratio - base) / (top - base)) * (floor - TOP)));
    const x = (index) => LEFT + (index + 0.5) * step;

    const children = [];
    for (const tick of ticks) {
      children.push(svg("line", { class: tick === 1 ? "one" : "grid", x1: LEFT, x2: total - RIGHT, y1: y(tick), y2: y(tick) }));
      children.push(svg("text", { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, tick === 1 ? "eager 1×" : `${tick}×`));
    }
    children.push(svg("line", { class: "axis", x1: LEFT, x2: total - RIGHT, y1: floor, y2: floor }));

    const steps = [];
    let best = 0;
    candidates.forEach((candidate, index) => {
      if (candidate.status !== "passed" || !candidate.speedup || candidate.speedup.ratio <= best) return;
      const before = steps.at(-1);
      best = candidate.speedup.ratio;
      if (before) steps.push([x(index), before[1]]);
      steps.push([x(index), y(best)]);
    });
    if (steps.length) {
      steps.push([x(candidates.length - 1), steps.at(-1)[1]]);
      children.push(svg("polyline", { class: "best-line", points: steps.map((point) => point.map((v) => v.toFixed(1)).join(",")).join(" ") }));
    }

    const champion = bestCandidate(state);
    const reached = candidates.find((one) => one.number === selected) ?? champion ?? candidates.at(-1);
    const focused = this.box.contains(document.activeElement) ? /** @type {HTMLElement | SVGElement} */ (document.activeElement).dataset?.number : null;
    candidates.forEach((candidate, index) => children.push(this.point(candidate, x(index), y, floor, candidate === champion, candidate.number === selected, step, candidate === reached)));
    const none = state.run.state === "finished" ? "no attempt was made" : `attempts appear here${width < NARROW ? "" : ", each with its interval"}`;
    if (!candidates.length) children.push(svg("text", { class: "tick", x: LEFT + 12, y: HEIGHT / 2 }, none));

    this.box.replaceChildren(
      svg("svg", { width: total, height: HEIGHT, viewBox: `0 0 ${total} ${HEIGHT}`, role: "group", "aria-label": "Speedup against eager, by candidate" }, children),
    );
    if (focused) this.box.querySelector(`[data-number="${focused}"]`)?.focus({ preventScroll: true });
  }

  point(candidate, x, y, floor, champion, selected, step, reached) {
    const { number, speedup, status } = candidate;
    const passed = status === "passed" && speedup;
    const words = passed
      ? `Candidate ${number}: ${times(speedup.ratio)} times eager ${interval(speedup)}${candidate.programMs == null ? "" : `, ${ms(candidate.programMs)}`}`
      : `Candidate ${number}: ${status ? statusOf(status)[2] : "not verified yet"}${candidate.message ? `: ${candidate.message}` : ""}`;
    const mark = [svg("title", null, words), svg("rect", { class: "hit", x: x - step / 2, y: TOP - 8, width: step, height: floor - TOP + 26 })];
    if (passed) {
      const [low, high] = [y(speedup.low ?? speedup.ratio), y(speedup.high ?? speedup.ratio)];
      const cap = Math.min(4, step / 4);
      mark.push(svg("path", { class: "whisk", d: `M${x} ${low}V${high}M${x - cap} ${low}h${2 * cap}M${x - cap} ${high}h${2 * cap}` }));
      mark.push(svg("circle", { class: "dot", cx: x, cy: y(speedup.ratio), r: champion ? 5 : 4 }));
    } else if (status) {
      const at = floor - 8;
      mark.push(svg("path", { class: `cross ${statusOf(status)[0]}`, d: `M${x - 4} ${at - 4}l8 8m0-8l-8 8` }));
    } else {
      mark.push(svg("circle", { class: "waiting", cx: x, cy: floor - 8, r: 3.5 }));
    }
    if (step >= 18 || number % 5 === 0 || selected) mark.push(svg("text", { class: "tick", x, y: HEIGHT - 8, "text-anchor": "middle" }, String(number)));
    return svg(
      "a",
      { href: write({ candidate: number }), class: `point${selected ? " selected" : ""}${champion && candidate.faster ? " champion" : ""}`, "aria-label": words, "aria-current": selected ? "true" : null, tabindex: reached ? "0" : "-1", "data-number": number },
      mark,
    );
  }
}

// The axis extends from below the slowest interval (or eager) to above the fastest, so that intervals are wide enough to compare. There is always a
// tick at 1. `intervals` holds [low, high] for each program.
export function scaleOf(intervals) {
  const low = Math.min(1, ...intervals.map((one) => one[0]));
  const high = Math.max(1.25, ...intervals.map((one) => one[1]));
  const room = (high - low) * 0.08;
  const [base, top] = [Math.max(0, low - room), high + room];
  const step = [0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => (top - base) / one <= 4.5) ?? (top - base) / 4;
  const ticks = [1];
  for (let at = Math.ceil(base / step); at * step <= top; at++) {
    const tick = Number((at * step).toFixed(2));
    if (Math.abs(tick - 1) > 0.6 * step) ticks.push(tick); // its label would overlap that of eager
  }
  return { base, top, ticks };
}
