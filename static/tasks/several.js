// The page for choosing tasks: filters by name, selects whole groups, and counts the chosen tasks.
import { shortcut } from "../js/lib/keys.js";
import { showLimits, submitByKey } from "./limits.js";

const form = document.querySelector("form.submit");
const filter = form.querySelector("[data-filter]");
const boxes = [...form.querySelectorAll("input[name=tasks]")];
const groups = [...form.querySelectorAll("[data-group]")];

function count() {
  const chosen = boxes.filter((box) => box.checked).length;
  form.querySelector("[data-chosen]").textContent = `${chosen} chosen`;
  form.querySelector("[data-number]").textContent = chosen;
  form.querySelector("[data-plural]").hidden = chosen === 1;
  form.elements.count.value = Math.max(1, chosen);
  for (const group of groups) {
    const mine = [...group.querySelectorAll("input[name=tasks]")];
    const ticked = mine.filter((box) => box.checked).length;
    const all = group.querySelector("[data-group-all]");
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
      here += fits;
    }
    group.hidden = here === 0;
    group.querySelector(".group-all").hidden = words.length > 0;
    if (words.length && here) group.open = true;
    left += here;
  }
  form.querySelector("[data-none]").hidden = left > 0;
}

filter.addEventListener("input", narrow);
filter.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());

form.addEventListener("change", (event) => {
  if (event.target.matches("[data-group-all]")) {
    for (const box of event.target.closest("[data-group]").querySelectorAll("input[name=tasks]")) box.checked = event.target.checked;
  }
  count();
});

form.addEventListener("click", (event) => {
  const what = event.target.closest("[data-tick]")?.dataset.tick;
  if (!what) return;
  const shown = (box) => !box.closest("label").hidden && box.closest("[data-group]").open;
  for (const box of boxes) if (what === "none" || shown(box)) box.checked = what !== "none";
  form.dispatchEvent(new Event("change", { bubbles: true }));
});

count();
showLimits(form);
submitByKey(form);
shortcut("Ctrl+Enter", "submit", () => {});
