// @ts-check
// Reloads parts with data-ticks="MS" at that interval while the page is visible.
for (const part of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-ticks]"))) {
  setInterval(() => {
    if (!document.hidden && !part.matches(":focus-within")) part.dispatchEvent(new CustomEvent("tick"));
  }, Number(part.dataset.ticks));
}
