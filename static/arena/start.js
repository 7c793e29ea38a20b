// @ts-check
// Shows how many runs the ticked tasks, workflows and seeds would start.
import { counted } from "../js/lib/words.js";

const form = /** @type {HTMLFormElement} */ (document.querySelector("form.arena-start"));
const total = form.querySelector("[data-total]");
const most = Number(form.dataset.most);

form.addEventListener("input", count);
count();

function count() {
  const tasks = [.../** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll("input[name=tasks]:checked"))].reduce((sum, box) => sum + Number(box.dataset.tasks), 0);
  const workflows = form.querySelectorAll("input[name=workflows]:checked").length;
  const seeds = seedsOf(/** @type {HTMLInputElement} */ (form.elements.namedItem("seeds")).value);
  if (seeds === null) return say("Seeds: numbers and ranges, such as 1-5 or 1,4.", true);
  const runs = tasks * workflows * seeds;
  say(`${counted(tasks, "task")} × ${counted(workflows, "workflow")} × ${counted(seeds, "seed")}: ${counted(runs, "run")}${runs > most ? `, more than an arena's limit of ${most}` : ""}.`, runs > most);
}

function seedsOf(text) {
  const seeds = new Set();
  for (const part of text.split(",")) {
    const range = /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(part);
    if (!range) return null;
    const last = Number(range[2] ?? range[1]);
    if (last - Number(range[1]) > 10000) return null;
    for (let seed = Number(range[1]); seed <= last; seed += 1) seeds.add(seed);
  }
  return seeds.size;
}

function say(text, wrong) {
  total.textContent = text;
  total.classList.toggle("field-error", wrong);
}
