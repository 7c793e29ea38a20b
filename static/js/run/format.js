// @ts-check
// Formats figures and verdicts with the same wording as webapp/ui/tags.py and figures.py.
import { h } from "./dom.js";

export const STATUSES = {
  passed: ["ok", "✓", "passed"],
  wrong_result: ["bad", "✕", "wrong result"],
  build_failed: ["bad", "✕", "build failed"],
  crashed: ["bad", "✕", "crashed"],
  timed_out: ["bad", "✕", "timed out"],
  rejected: ["bad", "⊘", "rejected"],
  inconclusive: ["warn", "~", "inconclusive"],
  infrastructure_error: ["warn", "!", "host error"],
  queued: ["idle", "○", "queued"],
  running: ["info live", "●", "running"],
  paused: ["warn", "‖", "paused"],
  finished: ["idle", "✓", "finished"],
  improved: ["ok", "▲", "improved"],
  matched: ["idle", "=", "matched"],
  failed: ["bad", "✕", "failed"],
  cancelled: ["idle", "–", "cancelled"],
  out_of_budget: ["warn", "◔", "out of budget"],
  ok: ["ok", "✓", "ok"],
  open: ["info live", "●", "running"],
  skipped: ["idle", "–", "skipped"],
  started: ["info live", "●", "running"],
  progress: ["info live", "●", "running"],
  ended: ["idle", "–", "ended"],
};

export const statusOf = (name) => STATUSES[name] ?? ["idle", "·", String(name || "unknown").replaceAll("_", " ")];

export function chip(name, word) {
  const [tone, sign, usual] = statusOf(name);
  return h("span", { class: `chip ${tone}` }, h("span", { class: "sign", "aria-hidden": "true" }, sign), word ?? usual);
}

export const times = (ratio) => (ratio < 10 ? ratio.toFixed(2) : ratio < 100 ? ratio.toFixed(1) : ratio.toFixed(0));

export const toneOf = (speedup) => (!speedup ? "" : speedup.low > 1 ? "faster" : speedup.high < 1 ? "slower" : "");

export const interval = (speedup) => (speedup.low == null ? "" : `[${times(speedup.low)}, ${times(speedup.high)}]`);

export function speedupText(speedup) {
  return h("span", { class: `speedup ${toneOf(speedup)}` }, h("b", null, `${times(speedup.ratio)}×`), " ", h("span", { class: "range" }, interval(speedup)));
}

export function seconds(value, digits = 1) {
  if (value == null) return "–";
  if (value < 10) return `${value.toFixed(digits)} s`;
  const whole = Math.round(value);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 60)} min`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function ms(value) {
  if (value == null) return "–";
  const [scaled, unit] = value >= 1000 ? [value / 1000, "s"] : value >= 1 ? [value, "ms"] : [value * 1000, "µs"];
  return `${Number(scaled.toPrecision(3))} ${unit}`;
}

export function count(value) {
  return value < 10000 ? String(Math.round(value)) : value < 1e6 ? `${(value / 1000).toFixed(1)}k` : `${(value / 1e6).toFixed(2)}M`;
}

export function size(bytes) {
  return bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`;
}

// Formats a number from the evidence: integers in full, others with three or four significant digits.
export function figure(value) {
  if (typeof value !== "number") return String(value ?? "");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

// A single word for places that have no room for more.
const SHORT = { wrong_result: "wrong", build_failed: "build", crashed: "crash", timed_out: "timeout", inconclusive: "unclear", infrastructure_error: "host" };
export const shortStatus = (name) => SHORT[name] ?? statusOf(name)[2];
