// Asks for changed cells: every 3 s while something runs here, every 15 s otherwise, never in a hidden tab.
import { shortcut } from "../js/lib/keys.js";

const live = document.getElementById("live");
let last = Date.now();

setInterval(() => {
  if (!live || document.hidden || Date.now() - last < (live.dataset.active ? 3000 : 15000)) return;
  last = Date.now();
  live.dispatchEvent(new CustomEvent("tick"));
}, 500);

// Only what really changed is touched, and says so.
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  const { target, fragment } = event.detail;
  const incoming = fragment.firstElementChild ?? fragment;
  if (target.id === "new-runs" || target.querySelector("[data-since]")) return;
  if (target.innerHTML === incoming.innerHTML) event.detail.shouldSwap = false;
  else incoming.classList?.add("changed");
});

// Addresses name only what narrows or orders the list.
document.querySelector("form.filters")?.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (value === "" || (name === "sort" && value === "-created")) formData.delete(name);
});

const rows = () => [...document.querySelectorAll(".runs tbody .cell-title")];
function step(by) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  all[Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
}
shortcut("j", "next run", () => step(1));
shortcut("k", "previous run", () => step(-1));
shortcut("n", "submit a model", () => document.querySelector(".page-head .primary").click());
