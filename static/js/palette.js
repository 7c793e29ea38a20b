// @ts-check
// The Ctrl-K palette finds runs, tasks, people, kernels, events and pages by asking the server, as well as this page's commands. It can be used with
// the keyboard alone.
import { commands, shortcut } from "./lib/keys.js";
import { counted } from "./lib/words.js";

const WAIT_MS = 120;
const MOST_COMMANDS = 8;
const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("palette"));
const input = dialog.querySelector("input");
const list = dialog.querySelector("[role=listbox]");
const status = dialog.querySelector("[role=status]");
let timer = null;
let asked = null;
let served = [];
let chosen = 0;

export function openPalette() {
  if (dialog.open) return void dialog.close();
  for (const other of /** @type {NodeListOf<HTMLDialogElement>} */ (document.querySelectorAll("dialog[open]"))) other.close();
  input.value = "";
  served = [];
  dialog.showModal();
  draw();
  ask();
}

// Commands are the shortcuts of this page, each with a name, keys and an action.
function ownCommands(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return commands()
    .filter(({ what }) => words.every((word) => what.toLowerCase().includes(word)))
    .slice(0, MOST_COMMANDS)
    .map(({ keys, what, action }) => ({ title: what[0].toUpperCase() + what.slice(1), sub: "", keys, action }));
}

async function ask() {
  asked?.abort();
  asked = new AbortController();
  const text = input.value.trim();
  const url = `${dialog.dataset.find}?${new URLSearchParams({ q: text })}`;
  const answer = await fetch(url, { signal: asked.signal, headers: { Accept: "application/json" } }).catch((error) => (error.name === "AbortError" ? undefined : null));
  if (answer === undefined || text !== input.value.trim()) return; // a newer query has been sent
  served = answer?.ok && !answer.redirected ? (await answer.json()).groups : [];
  dialog.toggleAttribute("data-away", !answer?.ok);
  draw();
}

const options = () => [...list.querySelectorAll("[role=option]")];

function draw() {
  const groups = [...served, { label: "Commands", items: ownCommands(input.value) }].filter(({ items }) => items.length);
  list.replaceChildren(...groups.map(({ label, items }, at) => groupOf(label, items, at)));
  options().forEach((option, at) => (option.id = `palette-${at}`));
  choose(0);
  const number = options().length;
  status.textContent = dialog.hasAttribute("data-away") ? "The server does not answer; commands of this page only." : number ? counted(number, "result") : "Nothing found";
}

function groupOf(label, items, at) {
  const group = document.createElement("div");
  group.setAttribute("role", "group");
  group.setAttribute("aria-labelledby", `palette-group-${at}`);
  const title = document.createElement("div");
  title.className = "palette-group";
  title.id = `palette-group-${at}`;
  title.textContent = label;
  group.append(title, ...items.map(optionOf));
  return group;
}

function optionOf({ title, sub, url, keys, action }) {
  const option = document.createElement("div");
  option.setAttribute("role", "option");
  option.className = "palette-option";
  const name = document.createElement("span");
  name.className = "palette-title";
  name.textContent = title;
  const more = document.createElement("span");
  more.className = "palette-sub";
  for (const key of keys?.split(" ") ?? []) more.append(Object.assign(document.createElement("kbd"), { textContent: key }));
  if (!keys) more.textContent = sub ?? "";
  option.append(name, more);
  option.addEventListener("click", (event) => take({ url, action }, event.ctrlKey || event.metaKey));
  return option;
}

function take({ url, action }, beside) {
  if (url && beside) return void window.open(url, "_blank", "noopener");
  dialog.close();
  if (url) location.assign(url);
  else action();
}

function choose(at) {
  const all = options();
  chosen = all.length ? (at + all.length) % all.length : 0;
  all.forEach((option, number) => option.setAttribute("aria-selected", String(number === chosen)));
  const now = all[chosen];
  if (now) input.setAttribute("aria-activedescendant", now.id);
  else input.removeAttribute("aria-activedescendant");
  now?.scrollIntoView({ block: "nearest" });
}

input.addEventListener("input", () => {
  clearTimeout(timer);
  draw();
  timer = setTimeout(ask, WAIT_MS);
});
input.addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by) choose(chosen + by);
  else if (event.key === "Enter") options()[chosen]?.dispatchEvent(new MouseEvent("click", { ctrlKey: event.ctrlKey, metaKey: event.metaKey }));
  else return;
  event.preventDefault();
});
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

// Also works while somebody is typing, so it runs before an editor can handle the key.
addEventListener(
  "keydown",
  (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    openPalette();
  },
  true,
);
document.addEventListener("click", (event) => /** @type {Element} */ (event.target).closest("[data-palette]") && openPalette());
shortcut("Ctrl+k", "search and commands", openPalette, "Everywhere");
