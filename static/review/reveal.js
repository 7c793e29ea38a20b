// @ts-check
// Brings a thread's place into view, on this page or on the page that shows it.
import { openLine } from "../js/run/diff.js";
import { numberCell } from "./marks.js";
import { shownCandidate } from "./places.js";

const OPENS_MS = 4000;

const onRunPage = () => Boolean(document.getElementById("run"));
/** @typedef {HTMLElement & { timeline?: TimelineView }} TimelineBox */

const timelineOf = (sha) => [.../** @type {NodeListOf<TimelineBox>} */ (document.querySelectorAll(".timeline-box"))].find((box) => box.timeline?.lanes?.some((lane) => lane.sha === sha));

export function isHere(thread, stands) {
  const { anchor } = thread;
  if (anchor.kind === "event" || anchor.kind === "run") return onRunPage();
  if (anchor.kind === "candidate") return shownCandidate() === anchor.candidate;
  if (anchor.kind === "line") return stands.has(thread.id);
  return Boolean(timelineOf(anchor.sha));
}

// `stay` means that the page was opened for this thread, so no other page is opened instead.
export async function reveal(thread, marks, { stay = false } = {}) {
  const { anchor } = thread;
  const away = () => stay || location.assign(thread.href);
  switch (anchor.kind) {
    case "event":
      if (!onRunPage()) return away();
      if (location.hash !== `#event=${anchor.seq}`) location.hash = `#event=${anchor.seq}`;
      return undefined;
    case "line":
      return (await revealLine(thread, marks)) || away();
    case "range":
      return (await revealRange(thread)) || away();
    case "candidate":
      return shownCandidate() === anchor.candidate || away();
    default:
      return onRunPage() || away();
  }
}

async function revealLine(thread, marks) {
  const stands = await marks.placeOf(thread.id);
  if (!stands) return false;
  if (!stands.line) return true; // the line no longer exists here, so the panel quotes it
  for (const [table, places] of marks.places) {
    if (!places.includes(stands)) continue;
    const diff = table.closest("[data-diff]");
    if (diff) await unfolded(diff, table, stands);
    const row = numberCell(table, stands.side, stands.line)?.closest("tr");
    if (!row) return false;
    row.scrollIntoView({ block: "center", behavior: "instant" });
    flash(row);
    return true;
  }
  return false;
}

// The diff opens the line in the URL itself. Unfolding it twice concurrently would show the same lines twice.
async function unfolded(diff, table, { side, line }) {
  const id = `${side === "old" ? "L" : "R"}${line}`;
  const opening = /^#[LR]\d+$/.test(location.hash) ? location.hash : null;
  const until = performance.now() + OPENS_MS;
  while (opening && !diff.querySelector(opening) && performance.now() < until) await new Promise((done) => setTimeout(done, 50));
  if (!numberCell(table, side, line)) await openLine(diff, id);
}

async function revealRange(thread) {
  const { anchor } = thread;
  const box = timelineOf(anchor.sha);
  if (!box) return false;
  await box.timeline.ready;
  const lane = box.timeline.lanes.find((one) => one.sha === anchor.sha);
  box.timeline.show(anchor.start_ns - lane.offset, anchor.end_ns - lane.offset);
  box.scrollIntoView({ block: "nearest", behavior: "instant" });
  return true;
}

function flash(row) {
  row.classList.remove("review-flash");
  void row.offsetWidth; // so that the same row can flash again
  row.classList.add("review-flash");
}
