// @ts-check
// Marks next to commented elements, and a single button that follows the pointer, for commenting on other elements.
import { counted } from "../js/lib/words.js";
import { h } from "../js/run/dom.js";
import { oldSide, placeOf } from "./places.js";

const EVERY_ROW = "[data-seq], tr:has([data-line]), [data-line]";

export class Marks {
  // `open(ids)` shows the threads of a mark, and `comment(place)` begins a new thread.
  constructor({ store, writes, open, comment }) {
    this.store = store;
    this.open = open;
    this.comment = comment;
    this.places = new Map(); // table -> [{thread, side, line, state}]
    this.asked = new WeakMap(); // table -> {stamp, places, taken}: the state for which its places were requested
    this.stands = new Map(); // thread -> {line, state} in the program on the page
    this.scheduled = false;
    if (writes) this.followPointer();
    store.addEventListener("change", () => this.schedule());
    document.addEventListener("diff:rows", () => this.schedule());
    new MutationObserver((changes) => changes.some(foreign) && this.schedule()).observe(document.getElementById("main"), { childList: true, subtree: true });
    document.addEventListener("click", (event) => {
      const mark = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest(".review-mark"));
      if (!mark) return;
      event.preventDefault();
      event.stopPropagation();
      this.open(mark.dataset.threads.split(" ").map(Number));
    }, true);
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  // The position of a thread on this page, known once the positions in its tables have been requested.
  async placeOf(thread) {
    const tables = [...document.querySelectorAll("table.diff-table")];
    await Promise.all(tables.map((table) => this.drawTable(table)));
    return this.stands.get(thread);
  }

  draw() {
    this.drawEvents();
    for (const table of document.querySelectorAll("table.diff-table")) this.drawTable(table);
    for (const table of this.places.keys()) if (!table.isConnected) this.places.delete(table);
  }

  // Events

  drawEvents() {
    const bySeq = new Map();
    for (const thread of this.store.threads.values()) if (thread.kind === "event") push(bySeq, thread.anchor.seq, thread);
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-seq]"))) put(row, bySeq.get(Number(row.dataset.seq)) ?? [], `event ${row.dataset.seq}`);
  }

  // Lines: the server locates each thread in this program, because the text may have moved

  async drawTable(table) {
    const candidate = (table.closest("[data-diff]")?.dataset.candidatePage ?? table.querySelector("[data-candidate]")?.dataset.candidate) || null;
    if (candidate == null) return;
    const lines = [...this.store.threads.values()].filter((thread) => thread.kind === "line");
    const against = oldSide(table.closest("[data-diff]")) ?? "";
    const stamp = `${candidate} ${against} ${lines.map((thread) => `${thread.id}${thread.resolved ? "r" : ""}`).join(" ")}`;
    let asked = this.asked.get(table);
    if (asked?.stamp !== stamp) {
      asked = { stamp, places: lines.length ? this.store.placed(candidate, against) : Promise.resolve([]) };
      this.asked.set(table, asked);
      asked.taken = asked.places.then((places) => this.take(table, asked, places));
    }
    await asked.taken;
    if (this.asked.get(table) === asked) this.putLines(table, this.places.get(table) ?? []);
  }

  take(table, asked, places) {
    if (this.asked.get(table) !== asked) return;
    this.places.set(table, places);
    this.stands = new Map([...this.places.values()].flat().map((place) => [place.thread, place]));
    if (places.length) this.store.dispatchEvent(new CustomEvent("placed"));
  }

  putLines(table, places) {
    const byCell = new Map();
    for (const { thread, side, line } of places) {
      const known = this.store.threads.get(thread);
      const cell = line && known && numberCell(table, side, line);
      if (cell) push(byCell, cell, known);
    }
    for (const mark of table.querySelectorAll(".review-mark")) if (!byCell.has(mark.parentElement)) mark.remove();
    for (const [cell, threads] of byCell) put(cell, threads, `line ${cell.textContent.replace(/\D/g, "")}`);
  }

  // The button that follows the pointer

  followPointer() {
    this.button = h("button", { type: "button", class: "review-add", "aria-label": "Comment here", title: "Comment (c)", hidden: true, tabindex: "-1" }, "+");
    document.body.append(this.button);
    this.button.addEventListener("click", () => {
      this.button.hidden = true;
      this.comment(placeOf(this.row));
    });
    let at = null;
    let scheduled = false;
    document.addEventListener("pointerover", (event) => {
      at = { x: event.clientX, y: event.clientY }; // also for taps on a touch screen
      this.over(event.target);
    }, { passive: true });
    // An element that scrolls below a resting pointer counts as being under it.
    addEventListener("scroll", () => {
      if (scheduled || !at) return;
      scheduled = true;
      requestAnimationFrame(() => {
        scheduled = false;
        this.button.hidden = true;
        const under = document.elementFromPoint(at.x, at.y);
        if (under) this.over(under);
      });
    }, { capture: true, passive: true });
  }

  over(target) {
    if (target === this.button) return;
    const row = target.closest?.(EVERY_ROW);
    const cell = row && sideCell(row, target);
    if (!cell || !placeOf(cell)) {
      this.button.hidden = true;
      return;
    }
    this.row = cell;
    const box = (cell.dataset.seq ? cell : (numberBeside(cell) ?? cell)).getBoundingClientRect();
    this.button.hidden = false;
    const [x, y] = cell.dataset.seq ? [box.right - 30, box.top + 4] : [box.right - 20, box.top];
    this.button.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }
}

// In a row with two sides, the cell on the side under the pointer.
function sideCell(row, target) {
  if (row.dataset.seq || row.dataset.line) return row;
  const cells = [...row.cells];
  const at = cells.indexOf(target.closest("td"));
  return cells[at]?.dataset.line ? cells[at] : cells[at + 1]?.dataset.line ? cells[at + 1] : null;
}

const numberBeside = (cell) => (cell.matches("td") ? cell.previousElementSibling : [...cell.querySelectorAll("td.no")].findLast((one) => one.textContent.trim()));

export function numberCell(table, side, line) {
  const id = table.matches(".source") ? `L${line}` : `${side === "old" ? "L" : "R"}${line}`;
  const found = table.querySelector(`#${id}`);
  return found?.matches("tr") ? found.querySelector("td.no") : found;
}

const foreign = ({ addedNodes, removedNodes }) => [...addedNodes, ...removedNodes].some((node) => node.nodeType === 1 && !node.matches(".review-mark"));

function push(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}

// Puts one mark on an element, with the number of its comments. Marks of resolved threads are less prominent.
function put(element, threads, where) {
  let mark = element.querySelector(":scope > .review-mark");
  if (!threads.length) {
    mark?.remove();
    return;
  }
  if (!mark) {
    mark = h("button", { type: "button", class: "review-mark" });
    element.append(mark);
  }
  const said = threads.reduce((sum, thread) => sum + thread.count, 0);
  const ids = threads.map((thread) => thread.id).join(" ");
  const label = `${counted(said, "comment")} on ${where}`;
  if (mark.dataset.threads !== ids) mark.dataset.threads = ids;
  if (mark.textContent !== String(said)) mark.textContent = said;
  if (mark.ariaLabel !== label) mark.ariaLabel = mark.title = label;
  mark.classList.toggle("resolved", threads.every((thread) => thread.resolved));
  mark.classList.toggle("unread", threads.some((thread) => thread.unread));
}
