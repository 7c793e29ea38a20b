// @ts-check
// The possible subjects of a comment on this page: an event, a line, a range, a candidate, the run.
/** @returns {DOMStringMap} The data of the first such element; empty if there is none. */
const dataOf = (selector) => /** @type {HTMLElement | null} */ (document.querySelector(selector))?.dataset ?? {};
const number = (text) => (/^\d{1,9}$/.test(text ?? "") ? Number(text) : null);

export const program = (of) => (of == null ? "the reference" : `candidate ${of}`);

// The candidate shown on the page, or in the right pane of the run's page.
export function shownCandidate() {
  const inPath = /\/candidates\/(\d+)\//.exec(location.pathname)?.[1] ?? /^candidate (\d+)$/.exec(timelineOf())?.[1];
  const inHash = new URLSearchParams(location.hash.slice(1)).get("candidate");
  return number(inPath) ?? number(inHash) ?? number(dataOf("[data-candidate-page]").candidatePage) ?? number(dataOf("[data-line][data-candidate]").candidate);
}

// The old side of the diff that contains a row: "task", a number, or "" in a single program. Null if it belongs to another run.
export function oldSide(container) {
  const sides = container?.dataset.sides;
  if (!sides) return "";
  const old = sides.split("...")[0];
  return old.includes(":") ? null : old;
}

// {anchor, label, quote} of a row with data-seq or data-line, or null if it cannot be commented on.
export function placeOf(row) {
  if (row?.dataset.seq) return { anchor: { kind: "event", seq: Number(row.dataset.seq) }, label: `event ${row.dataset.seq}`, quote: "" };
  const cell = row?.matches?.("[data-line]") ? row : row?.querySelector?.("[data-line][data-side='new'], [data-line]");
  if (!cell) return null;
  const { candidate, line, side } = cell.dataset;
  const diff = cell.closest("[data-diff]");
  const old = oldSide(diff);
  if (side === "old" && !old) return null;
  const of = side === "old" ? number(old) : Number(candidate);
  const anchor = { kind: "line", candidate: Number(candidate), line: Number(line), side, view: diff ? "diff" : "source" };
  if (diff && old) anchor.against = old;
  const source = cell.matches("td") ? cell : cell.querySelector("td.src");
  const text = [...(source?.childNodes ?? [])].filter((node) => !node.matches?.(".sign, .visually-hidden, .review-mark")).map((node) => node.textContent).join("");
  return { anchor, label: `line ${line} of ${program(of)}`, quote: text };
}

/** @param {TimelineRange} range */
export function placeOfRange({ sha, start_ns, end_ns, rows }) {
  return { anchor: { kind: "range", sha, start_ns, end_ns, rows: (rows ?? []).slice(0, 64).map((row) => String(row).slice(0, 200)) }, label: `${duration(end_ns - start_ns)} of the timeline`, quote: "" };
}

export function placeOfPage() {
  const candidate = shownCandidate();
  return candidate == null ? { anchor: { kind: "run" }, label: "the run", quote: "" } : { anchor: { kind: "candidate", candidate }, label: program(candidate), quote: "" };
}

// The description of this person's place for other viewers (webapp/review/consumers.py accepts only these words).
export function whereabouts() {
  const of = timelineOf();
  if (/^(candidate \d+|the reference)$/.test(of)) return `the timeline of ${of}`;
  const candidate = shownCandidate();
  return candidate == null ? "the run" : `candidate ${candidate}`;
}

// The owner of the timeline if this is a timeline's page: "candidate 4", "the reference", or "".
function timelineOf() {
  if (!/\/timeline\//.test(location.pathname)) return "";
  return JSON.parse(dataOf("[data-timeline]").lanes ?? "[]")[0]?.name ?? "";
}

export function duration(ns) {
  const [value, unit] = ns >= 1e9 ? [ns / 1e9, "s"] : ns >= 1e6 ? [ns / 1e6, "ms"] : ns >= 1e3 ? [ns / 1e3, "µs"] : [ns, "ns"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}
