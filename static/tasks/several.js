// @ts-check
// The page for choosing tasks: filters by name, selects whole groups, and counts the chosen tasks.
import { shortcut } from "../js/lib/keys.js";
import { showLimits, submitByKey } from "./limits.js";

/** @typedef {NodeListOf<HTMLInputElement>} Boxes */

const form = /** @type {HTMLFormElement} */ (document.querySelector("form.submit"));
const filter = /** @type {HTMLInputElement} */ (form.querySelector("[data-filter]"));
const boxes = [.../** @type {Boxes} */ (form.querySelectorAll("input[name=tasks]"))];
const groups = [.../** @type {NodeListOf<HTMLDetailsElement>} */ (form.querySelectorAll("[data-group]"))];
/** Shows or hides an element that is always there. */
const hide = (root, selector, hidden) => {
  /** @type {HTMLElement} */ (root.querySelector(selector)).hidden = hidden;
};

function count() {
  const chosen = boxes.filter((box) => box.checked).length;
  form.querySelector("[data-chosen]").textContent = `${chosen} chosen`;
  form.querySelector("[data-number]").textContent = String(chosen);
  hide(form, "[data-plural]", chosen === 1);
  /** @type {HTMLInputElement} */ (form.elements.namedItem("count")).value = String(Math.max(1, chosen));
  for (const group of groups) {
    const mine = [.../** @type {Boxes} */ (group.querySelectorAll("input[name=tasks]"))];
    const ticked = mine.filter((box) => box.checked).length;
    const all = /** @type {HTMLInputElement} */ (group.querySelector("[data-group-all]"));
    all.checked = ticked === mine.length;
    all.indeterminate = ticked > 0 && ticked < mine.length;
  }
}

function narrow() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  for (const group of groups) {
    let here = 0;
    for (const box of group.querySelectorAll("input[name=tasks]")) {
      const label = box.closest("label");
      const fits = words.every((word) => label.textContent.toLowerCase().includes(word));
      label.hidden = !fits;
      here += Number(fits);
    }
    group.hidden = here === 0;
    hide(group, ".group-all", words.length > 0);
    if (words.length && here) group.open = true;
    left += here;
  }
  hide(form, "[data-none]", left > 0);
}

filter.addEventListener("input", narrow);
filter.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());

form.addEventListener("change", (event) => {
  const all = /** @type {HTMLInputElement} */ (event.target);
  if (all.matches("[data-group-all]")) {
    for (const box of /** @type {Boxes} */ (all.closest("[data-group]").querySelectorAll("input[name=tasks]"))) box.checked = all.checked;
  }
  count();
});

form.addEventListener("click", (event) => {
  const what = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-tick]"))?.dataset.tick;
  if (!what) return;
  const shown = (box) => !box.closest("label").hidden && box.closest("details").open;
  for (const box of boxes) if (what === "none" || shown(box)) box.checked = what !== "none";
  form.dispatchEvent(new Event("change", { bubbles: true }));
});

count();
showLimits(form);
submitByKey(form);
shortcut("Ctrl+Enter", "submit", () => {});
