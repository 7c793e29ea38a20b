// @ts-check
// Runs on every page: navigation, theme, times, copy buttons, tabs and keyboard help.
import { keepTimesCurrent } from "./lib/ago.js";
import "./lib/copy.js";
import { shortcut, showHelp } from "./lib/keys.js";
import { say } from "./lib/say.js";
import { openTabFromHash } from "./lib/tabs.js";
import "./lib/terms.js";
import { toggleTheme } from "./lib/theme.js";

const bar = document.querySelector(".bar");
const navToggle = /** @type {HTMLElement | null} */ (document.querySelector(".nav-toggle"));
const openMenus = () => /** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll("details.menu[open]"));

function openNav(open) {
  bar.classList.toggle("open", open);
  navToggle.setAttribute("aria-expanded", String(open));
}

navToggle?.addEventListener("click", () => openNav(!bar.classList.contains("open")));

// Only one group of the navigation bar is open at a time.
function openGroup(chosen) {
  for (const group of document.querySelectorAll(".nav-group")) {
    group.classList.toggle("open", group === chosen);
    group.querySelector(".nav-opener").setAttribute("aria-expanded", String(group === chosen));
  }
}

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  if (target.closest("[data-theme-toggle]")) toggleTheme();
  if (target.closest("[data-keyboard-help]")) showHelp();
  if (target.closest("[data-close]")) target.closest("dialog")?.close();
  const group = target.closest(".nav-opener")?.parentElement;
  if (group || !target.closest(".nav-group")) openGroup(group?.classList.contains("open") ? null : group);
  // A click anywhere else closes the menu.
  for (const menu of openMenus()) if (!menu.contains(target)) menu.open = false;
});

document.addEventListener("focusin", (event) => {
  if (!/** @type {Element} */ (event.target).closest(".nav-group.open")) openGroup(null);
});

document.addEventListener("keydown", (event) => {
  const opener = /** @type {Element} */ (event.target).closest?.(".nav-opener");
  if (opener && event.key === "ArrowDown") {
    event.preventDefault();
    openGroup(opener.parentElement);
    /** @type {HTMLElement | null} */ (opener.nextElementSibling.querySelector("a, button"))?.focus();
  }
  if (event.key !== "Escape") return;
  const group = document.querySelector(".nav-group.open");
  if (group) {
    if (group.contains(document.activeElement)) /** @type {HTMLElement} */ (group.querySelector(".nav-opener")).focus();
    openGroup(null);
  }
  if (bar?.classList.contains("open")) {
    openNav(false);
    navToggle.focus();
  }
  for (const menu of openMenus()) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".bar a[data-key]"))) {
  shortcut(link.dataset.key, `go to ${link.dataset.name ?? link.firstChild.textContent.trim()}`, () => link.click(), "Everywhere");
}
const search = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-search]"));
if (search) {
  shortcut("/", "search", () => {
    search.focus();
    search.select();
  });
}
shortcut("t", "light or dark", toggleTheme, "Everywhere");
shortcut("?", "this help", showHelp, "Everywhere");

keepTimesCurrent();
openTabFromHash();

// A select or checkbox with data-autosubmit submits its form (used for filters).
document.addEventListener("change", (event) => {
  const field = /** @type {HTMLInputElement | HTMLSelectElement} */ (event.target);
  if (field.matches("[data-autosubmit]")) field.form?.requestSubmit();
});

// Submitting a form twice would start two runs, so the button is disabled until the person comes back to the page.
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.matches("[data-once]") || event.defaultPrevented) return;
  const button = /** @type {HTMLButtonElement} */ (event.submitter ?? form.querySelector("button:not([type=button])"));
  setTimeout(() => {
    button.disabled = true;
    if (button.dataset.busy) button.textContent = button.dataset.busy;
  });
});
addEventListener("pageshow", (event) => {
  if (event.persisted) for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("[data-once] button[disabled]"))) button.disabled = false;
});

// htmx: an error response must be visible, and a dropped connection must not look as if nothing had happened.
document.addEventListener("htmx:responseError", (/** @type {CustomEvent<{ xhr: XMLHttpRequest }>} */ event) => say(`The server answered ${event.detail.xhr.status}.`));
document.addEventListener("htmx:sendError", () => say("The server does not answer."));
