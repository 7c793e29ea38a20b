// @ts-check
// Requests changed cells every 3 s while a run on the page is active and every 15 s otherwise, but never in a hidden tab.
import { shortcut } from "../js/lib/keys.js";

const live = document.getElementById("live");
let last = Date.now();

setInterval(() => {
  if (!live || document.hidden || Date.now() - last < (live.dataset.active ? 3000 : 15000)) return;
  last = Date.now();
  live.dispatchEvent(new CustomEvent("tick"));
}, 500);

// Replaces and announces only cells that have really changed.
document.addEventListener("htmx:oobBeforeSwap", (/** @type {CustomEvent<{ target: HTMLElement, fragment: Element, shouldSwap: boolean }>} */ event) => {
  const { target, fragment } = event.detail;
  const incoming = fragment.firstElementChild ?? fragment;
  if (target.id === "new-runs" || target.querySelector("[data-since]")) return;
  if (target.innerHTML === incoming.innerHTML) event.detail.shouldSwap = false;
  else incoming.classList?.add("changed");
});

// The URL contains only parameters that filter or sort the list.
document.querySelector("form.filters")?.addEventListener("formdata", (/** @type {FormDataEvent} */ { formData }) => {
  for (const [name, value] of [...formData]) if (value === "" || (name === "sort" && value === "-created")) formData.delete(name);
});

// Ticks one row, all rows of the page or, with Shift, a range. The bar shows the number, and Compare accepts two to six.
const bar = /** @type {HTMLFormElement | null} */ (document.getElementById("ticked"));
const boxes = [.../** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('.runs input[name="with"]'))];
const every = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-tick-all]"));
let lately = null;

function drawTicked() {
  if (!bar) return;
  const number = boxes.filter((box) => box.checked).length;
  bar.classList.toggle("some", number > 0);
  bar.querySelector("[data-ticked-count]").textContent = number ? `${number} ticked` : "";
  const compare = /** @type {HTMLButtonElement} */ (bar.querySelector("[data-compare]"));
  compare.disabled = number < 2 || number > 6;
  compare.title = compare.disabled ? "Tick two to six runs" : "";
  every.checked = number === boxes.length;
  every.indeterminate = number > 0 && number < boxes.length;
}

for (const box of boxes) {
  box.addEventListener("click", (event) => {
    if (event.shiftKey && lately) {
      const [from, to] = [boxes.indexOf(lately), boxes.indexOf(box)].sort((a, b) => a - b);
      for (const one of boxes.slice(from, to + 1)) one.checked = box.checked;
    }
    lately = box;
    drawTicked();
  });
}
every?.addEventListener("change", () => {
  for (const box of boxes) box.checked = every.checked;
  drawTicked();
});
bar?.querySelector("[data-untick]").addEventListener("click", () => {
  for (const box of boxes) box.checked = false;
  drawTicked();
});
// Enter in the tag's field must add the tag. By default, it would press the form's first button, which does something else.
const tag = /** @type {HTMLInputElement | null} */ (bar?.elements.namedItem("tag") ?? null);
tag?.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  bar.requestSubmit(bar.querySelector('[value="tag"]'));
});
addEventListener("pageshow", drawTicked); // the browser keeps the ticks when a person goes back
drawTicked();

document.querySelector("[data-more-asking]")?.addEventListener("click", (event) => {
  const button = /** @type {HTMLElement} */ (event.currentTarget);
  button.closest(".attention").classList.add("all");
  button.hidden = true;
});

const rows = () => [.../** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".runs tbody .cell-title"))];
function step(by) {
  const all = rows();
  const at = all.indexOf(/** @type {HTMLAnchorElement} */ (document.activeElement));
  all[Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
}
shortcut("j", "next run", () => step(1));
shortcut("k", "previous run", () => step(-1));
shortcut("x", "tick the run", () => boxes.find((box) => document.activeElement.closest("tr")?.contains(box))?.click());
shortcut("n", "submit a model", () => /** @type {HTMLElement} */ (document.querySelector(".page-head .primary")).click());
