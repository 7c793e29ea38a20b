// @ts-check
// Filters of the leaderboard's pages. A change swaps #board and updates the URL, and Back and Forward load the URL again. In a table with data-rows,
// j and k move between rows and Enter opens one.
import { shortcut } from "../js/lib/keys.js";
import { say } from "../js/lib/say.js";

const form = /** @type {HTMLFormElement | null} */ (document.querySelector("[data-board-filters]"));
/** @returns {HTMLInputElement | HTMLSelectElement | null} The form's field of this name. */
const fieldOf = (name) => /** @type {HTMLInputElement | HTMLSelectElement | null} */ (form?.elements.namedItem(name) ?? null);
// The URL of the current view. The pinned p is left out, because it doesn't affect the server's data.
const selection = () => {
  const query = new URLSearchParams(location.search);
  query.delete("p");
  return location.pathname + query;
};
let current = selection();

// Returns the URL for the form's selection, without filters that are not set.
function addressOf(form) {
  const said = [...new FormData(form)].map(([name, value]) => [name, String(value)]).filter(([, value]) => value !== "");
  const query = new URLSearchParams(said).toString();
  return form.getAttribute("action") + (query ? `?${query}` : "");
}

export async function show(address, push = true) {
  const board = document.getElementById("board");
  board.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { headers: { "HX-Request": "true" } });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("board");
    if (!fresh) return location.assign(address);
    if (push) history.pushState({}, "", address);
    current = selection();
    board.replaceWith(document.adoptNode(fresh));
    document.title = page.title;
    follow(page);
    say(`${fresh.querySelectorAll("[data-rows] tbody tr").length} rows`);
    document.dispatchEvent(new CustomEvent("board:shown"));
  } catch (error) {
    board.removeAttribute("aria-busy");
    say(`Nothing changed: ${error.message}`);
    location.assign(address);
  }
}

// Updates links outside the swapped part, and the parts of the form that show the selection.
function follow(page) {
  const fresh = page.querySelector("[data-board-filters]");
  for (const select of fresh?.querySelectorAll("select") ?? []) {
    const mine = fieldOf(select.name);
    if (mine && mine.value !== select.value) mine.value = select.value;
  }
  const clear = form.querySelector(":scope > a");
  const wanted = fresh?.querySelector(":scope > a");
  if (!clear && wanted) form.append(document.adoptNode(wanted));
  else if (clear && !wanted) clear.remove();
}

form?.addEventListener("change", (event) => {
  if (/** @type {Element} */ (event.target).matches("select")) show(addressOf(form));
});
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  show(addressOf(form));
});
document.addEventListener("click", (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (event.target).closest("#board a[data-swap]"));
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const sort = new URL(link.href).searchParams.get("sort");
  const sorted = fieldOf("sort");
  if (sorted) sorted.value = sort ?? "";
  else if (sort && form) form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "sort", value: sort }));
  show(link.href).then(() => /** @type {HTMLElement | null} */ (document.querySelector(`#board a[data-swap][href="${CSS.escape(link.getAttribute("href"))}"]`))?.focus());
});
// A page with charts is not cached, so going back requests it again. A link within the page changes nothing.
addEventListener("popstate", () => selection() !== current && location.reload());

document.addEventListener("click", (event) => {
  const opener = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-open]"));
  if (opener) /** @type {HTMLDetailsElement} */ (document.getElementById(opener.dataset.open)).open = true;
});
document.getElementById("highlighted")?.scrollIntoView({ block: "center" });

function step(by) {
  const links = [.../** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("[data-rows] tbody .cell-title[href]"))];
  if (!links.length) return;
  const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
  links[Math.min(links.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by))].focus();
}
shortcut("j", "next row", () => step(1));
shortcut("k", "previous row", () => step(-1));
shortcut("f", "filters", () => form?.querySelector("select")?.focus());
