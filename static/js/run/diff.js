// @ts-check
// Behaviour shared by all diffs: loading parts as the reader scrolls, folds, hunks, keyboard navigation by line, and copying without the gutter.
import { say } from "../lib/say.js";
import { counted } from "../lib/words.js";

const STEP = 20; // number of lines that a fold reveals at a time
const AHEAD = "1200px"; // parts are requested this far before they become visible
const ROW = 18; // height in pixels of a line that does not wrap

export function wireDiffs(root) {
  const parts = new IntersectionObserver((entries) => entries.forEach((entry) => entry.isIntersecting && loadPart(entry.target)), { rootMargin: `${AHEAD} 0px` });
  const prepare = () => {
    for (const body of root.querySelectorAll("tbody[data-part]:not([data-watched])")) {
      body.dataset.watched = "";
      body.rows[0].style.height = `${body.dataset.size * ROW}px`;
      parts.observe(body);
    }
  };
  prepare();
  new MutationObserver(prepare).observe(root, { childList: true, subtree: true });
  root.addEventListener("click", clicked);
  root.addEventListener("mousedown", chooseSide);
  root.addEventListener("copy", copied);
  document.addEventListener("htmx:afterSwap", () => putEffects(root));
  putEffects(root);
  return root;
}

// Parts and folds

const rowsOf = (html) => {
  const frame = document.createElement("template");
  frame.innerHTML = `<table><tbody>${html}</tbody></table>`; // from our own server, which escapes the text of programs
  return [...frame.content.querySelector("tbody").rows];
};

async function ask(diff, parameters) {
  const url = new URL(diff.dataset.rows, location.href);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.text();
}

const loading = new WeakMap();

export function loadPart(body) {
  if (!loading.has(body)) loading.set(body, takePart(body));
  return loading.get(body);
}

async function takePart(body) {
  try {
    const html = await ask(body.closest("[data-diff]"), { part: body.dataset.part });
    body.replaceChildren(...rowsOf(html));
    delete body.dataset.part;
    body.dispatchEvent(new CustomEvent("diff:rows", { bubbles: true }));
  } catch (error) {
    loading.delete(body);
    const cell = body.rows[0].cells[0];
    const again = document.createElement("button");
    again.type = "button";
    again.className = "button small";
    again.textContent = "Try again";
    again.addEventListener("click", () => loadPart(body));
    cell.replaceChildren(`These lines could not be loaded: ${error.message}. `, again);
  }
}

async function unfold(fold, way) {
  const begin = Number(fold.dataset.begin);
  const end = Number(fold.dataset.end);
  const from = way === "up" ? Math.max(begin, end - STEP) : begin;
  const until = way === "down" ? Math.min(end, begin + STEP) : end;
  fold.setAttribute("aria-busy", "true");
  let rows;
  try {
    rows = rowsOf(await ask(fold.closest("[data-diff]"), { begin: from, end: until }));
  } catch (error) {
    fold.removeAttribute("aria-busy");
    say(`These lines could not be loaded: ${error.message}`);
    return;
  }
  fold.removeAttribute("aria-busy");
  if (way === "up") fold.after(...rows);
  else fold.before(...rows);
  fold.dataset.begin = way === "up" ? begin : until;
  fold.dataset.end = way === "up" ? from : end;
  const left = fold.dataset.end - fold.dataset.begin;
  const parent = fold.parentElement;
  if (left <= 0) fold.remove();
  else {
    const count = fold.querySelector(".fold-text").firstChild;
    count.textContent = count.textContent.replace(/^\s*[\d,]+/, String(left));
    const all = fold.querySelector('[data-unfold="all"]');
    all.ariaLabel = all.title = `Show all ${counted(left, "line")}`;
    if (left <= STEP) for (const step of fold.querySelectorAll('[data-unfold="up"], [data-unfold="down"]')) step.remove();
  }
  parent.dispatchEvent(new CustomEvent("diff:rows", { bubbles: true }));
  say(`${counted(rows.length, "line")} shown`);
}

function clicked(event) {
  const button = event.target.closest("[data-unfold]");
  if (button) return void unfold(button.closest(".fold"), button.dataset.unfold);
  const all = event.target.closest("[data-unfold-all]");
  if (all) return void unfoldAll(all);
  const step = event.target.closest("[data-hunk-step]");
  if (step) return void toHunk(step.closest("[data-diff]"), Number(step.dataset.hunkStep));
  const to = event.target.closest("[data-to-hunk]");
  if (to) {
    event.preventDefault();
    return void showHunk((to.closest("[data-diff]") ?? document).querySelector("table"), Number(to.dataset.toHunk));
  }
  const link = event.target.closest('.fold-text a[href^="#"]');
  if (link) {
    event.preventDefault();
    return void openLine(link.closest("[data-diff]"), link.hash.slice(1));
  }
  const number = event.target.closest("td.no[id], tr[id] > td.no");
  if (number) {
    history.replaceState(history.state, "", `#${number.id || number.parentElement.id}`);
    focusRow(number.parentElement);
  }
}

async function unfoldAll(button) {
  const diff = button.closest("[data-diff]");
  button.disabled = true;
  for (const body of diff.querySelectorAll("tbody[data-part]")) await loadPart(body);
  for (const fold of [...diff.querySelectorAll(".fold")]) await unfold(fold, "all");
  button.hidden = true;
}

// Hunks and lines

/** @param {HTMLElement | null} element */
const heightOf = (element) => element?.offsetHeight ?? 0;
const stickyHeight = (diff) => heightOf(diff.querySelector(".diff-bar")) + heightOf(document.querySelector(".bar"));

function showRow(row) {
  row.scrollIntoView({ block: "center", behavior: "instant" });
  focusRow(row);
}

function focusRow(row) {
  row.closest("table").querySelector("tr.cursor")?.classList.remove("cursor");
  row.classList.add("cursor");
  row.tabIndex = -1;
  row.focus({ preventScroll: true });
}

// The first row of each hunk that has been loaded, in order.
function heads(diff) {
  const found = new Map();
  for (const row of diff.querySelectorAll("tr[data-hunk]")) if (!found.has(row.dataset.hunk)) found.set(row.dataset.hunk, row);
  return [...found.values()];
}

// The row of the keyboard cursor, or none if the reader has scrolled away from it.
function seenCursor(diff) {
  const row = diff.querySelector("tr.cursor");
  const box = row?.getBoundingClientRect();
  return box && box.bottom > 0 && box.top < innerHeight ? row : null;
}

export async function toHunk(diff, way) {
  const line = stickyHeight(diff) + 8;
  const cursor = seenCursor(diff);
  const at = cursor ? cursor.getBoundingClientRect().top : line;
  const mine = cursor?.dataset.hunk;
  const all = heads(diff).filter((row) => row.dataset.hunk !== mine);
  const found = way > 0 ? all.find((row) => row.getBoundingClientRect().top > at) : all.findLast((row) => row.getBoundingClientRect().top < at - 1);
  const waiting = [...diff.querySelectorAll("tbody[data-part]")];
  const next = way > 0 && waiting.find((body) => !found || body.getBoundingClientRect().top < found.getBoundingClientRect().top);
  if (next) {
    await loadPart(next);
    if (!next.dataset.part) return toHunk(diff, way);
  }
  if (!found) return say(way > 0 ? "This is the last hunk." : "This is the first hunk.");
  showRow(found);
  say(`Hunk ${found.dataset.hunk}`);
}

async function showHunk(table, number) {
  const diff = table.closest("[data-diff]");
  const there = () => diff.querySelector(`tr[data-hunk="${number}"]`);
  while (!there()) {
    const body = diff.querySelector("tbody[data-part]");
    if (!body) return;
    await loadPart(body);
    if (body.dataset.part) return;
  }
  showRow(there());
}

export function toLine(diff, way) {
  const rows = [...diff.querySelectorAll("tr[data-line], tr:has(td[data-line]), tr.fold")];
  let at = rows.indexOf(seenCursor(diff));
  if (at < 0) at = rows.findIndex((row) => row.getBoundingClientRect().top > stickyHeight(diff)) - (way > 0 ? 1 : 0);
  const row = rows[at + way];
  if (row) {
    row.scrollIntoView({ block: "nearest", behavior: "instant" });
    focusRow(row);
  }
}

function linkLine(diff) {
  const row = diff.querySelector("tr.cursor");
  const number = row?.querySelector("td.no.new[id]") ?? row?.querySelector("td.no[id]");
  if (!number) return say("Choose a line first: j and k.");
  history.replaceState(history.state, "", `#${number.id}`);
  say(`The address of this page leads to line ${number.textContent} now.`);
}

export function openFold(diff) {
  const cursor = diff.querySelector("tr.cursor");
  const folds = [...diff.querySelectorAll("tr.fold")];
  const fold = cursor?.matches(".fold") ? cursor : folds.find((row) => !cursor || cursor.compareDocumentPosition(row) & Node.DOCUMENT_POSITION_FOLLOWING) ?? folds.at(-1);
  if (!fold) return say("Nothing is folded.");
  const before = fold.previousElementSibling;
  unfold(fold, "all").then(() => {
    const first = before?.nextElementSibling ?? diff.querySelector("tr[data-line], tr:has(td[data-line])");
    if (first) focusRow(first);
  });
}

// #L12 is line 12 of the old side and #R40 is line 40 of the new side. Works even if the line is folded or has not been loaded.
export async function openLine(diff, id) {
  if (!/^[LR]\d+$/.test(id)) return;
  const there = () => diff.querySelector(`#${id}`);
  if (!there()) {
    const part = await ask(diff, { find: id }).catch(() => "");
    const body = part && diff.querySelector(`tbody[data-part="${part}"]`);
    if (body) await loadPart(body);
  }
  for (const fold of there() ? [] : [...diff.querySelectorAll(".fold")]) {
    await unfold(fold, "all");
    if (there()) break;
  }
  const cell = there();
  if (cell) showRow(cell.closest("tr"));
}

export function diffKeys(root, shortcut) {
  const diff = () => root.querySelector("[data-diff]");
  const on = (action) => () => diff() && action(diff());
  shortcut("n", "next hunk", on((one) => toHunk(one, 1)), "Diff");
  shortcut("p", "previous hunk", on((one) => toHunk(one, -1)), "Diff");
  shortcut("j", "next line", on((one) => toLine(one, 1)), "Diff");
  shortcut("k", "previous line", on((one) => toLine(one, -1)), "Diff");
  shortcut("x", "show what is folded", on(openFold), "Diff");
  shortcut("l", "this line in the address", on(linkLine), "Diff");
  shortcut("u", "inline or side by side", on((one) => one.querySelector("[data-layout]:not([aria-current])")?.click()), "Diff");
  const hash = () => diff() && openLine(diff(), location.hash.slice(1));
  addEventListener("hashchange", hash);
  hash();
}

// Copying takes only code, and only from one side. A selection stays on the side where it began.

function chooseSide(event) {
  const table = event.target.closest?.(".diff-table.split");
  const cell = table && event.target.closest("td.src");
  if (cell) table.dataset.selects = cell.classList.contains("old") ? "old" : "new";
}

function copied(event) {
  const selection = getSelection();
  const table = /** @type {HTMLElement | null} */ (selection.rangeCount ? selection.anchorNode?.parentElement?.closest(".diff-table") : null);
  if (!table) return;
  const side = table.classList.contains("split") ? table.dataset.selects ?? "new" : "";
  const cells = selection.getRangeAt(0).cloneContents().querySelectorAll(`td.src${side ? `.${side}` : ""}`);
  if (cells.length < 2) return; // within a single line, the browser's own copy is right
  for (const cell of cells) for (const extra of cell.querySelectorAll(".sign, .visually-hidden")) extra.remove();
  event.preventDefault();
  event.clipboardData.setData("text/plain", [...cells].map((cell) => cell.textContent).join("\n"));
}

// Notes on hunks from the list of a measured diff are also shown in each hunk's header.
function putEffects(root) {
  for (const chip of root.querySelectorAll("[data-measured] [data-of]")) {
    for (const number of chip.dataset.of.split(" ")) {
      const head = root.querySelector(`[data-hunk-head="${number}"] [data-effect]`);
      if (head) {
        if (head.textContent === chip.textContent) continue;
        const now = chip.cloneNode(true);
        now.dataset.effect = number;
        delete now.dataset.of;
        head.replaceWith(now);
      } else putHead(root, number, chip);
    }
  }
}

function putHead(root, number, chip) {
  const first = root.querySelector(`tr[data-hunk="${number}"]`);
  if (!first) return;
  const row = document.createElement("tr");
  row.className = "hunk-head";
  row.dataset.hunkHead = number;
  const cell = row.insertCell();
  cell.colSpan = first.closest("table").querySelectorAll("col").length;
  const name = document.createElement("span");
  name.className = "hunk-name";
  name.textContent = `Hunk ${number}`;
  const now = chip.cloneNode(true);
  now.dataset.effect = number;
  delete now.dataset.of;
  cell.append(name, " ", now);
  first.before(row);
}
