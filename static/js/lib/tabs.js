// @ts-check
// <div class="tabs" role="tablist"> of <button role="tab" aria-controls="id">: arrow keys move between tabs. If the tablist has data-hash, the URL's
// hash names the selected tab. Also works for content that is swapped in later.
export function selectTab(tab, { focus = false } = {}) {
  const list = tab.closest("[role=tablist]");
  for (const other of list.querySelectorAll("[role=tab]")) {
    const selected = other === tab;
    other.setAttribute("aria-selected", String(selected));
    other.tabIndex = selected ? 0 : -1;
    const panel = document.getElementById(other.getAttribute("aria-controls"));
    if (panel) panel.hidden = !selected;
  }
  if (focus) tab.focus();
  if (list.hasAttribute("data-hash")) history.replaceState(history.state, "", `#${tab.getAttribute("aria-controls")}`);
  tab.dispatchEvent(new CustomEvent("tabselect", { bubbles: true, detail: tab.getAttribute("aria-controls") }));
}

document.addEventListener("click", (event) => {
  const tab = /** @type {Element} */ (event.target).closest("[role=tab]");
  if (tab) selectTab(tab);
});

document.addEventListener("keydown", (event) => {
  const tab = /** @type {Element} */ (event.target).closest?.("[role=tab]");
  if (!tab) return;
  const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
  const at = tabs.indexOf(tab);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  selectTab(tabs[(to + tabs.length) % tabs.length], { focus: true });
});

export function openTabFromHash() {
  const id = location.hash.slice(1);
  const tab = id && document.querySelector(`[role=tablist][data-hash] [role=tab][aria-controls="${CSS.escape(id)}"]`);
  if (tab) selectTab(tab);
}
