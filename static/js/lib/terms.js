// @ts-check
// Links to the glossary (webapp/ui/glossary.py). With scripts, a link opens the help at its term, so nobody leaves the page.
import { showHelp } from "./keys.js";

const help = document.getElementById("keyboard-help");

// A link to a term, like the template tag of the same name.
export function term(key, words) {
  const link = document.createElement("a");
  link.className = "term";
  link.href = `${help?.dataset.glossary ?? ""}#term-${key}`;
  link.dataset.term = key;
  link.textContent = words;
  return link;
}

document.addEventListener("click", (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (event.target).closest?.("a[data-term]"));
  const place = link && document.getElementById(`help-${link.dataset.term}`);
  if (!place || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  showHelp();
  place.focus();
});
