// @ts-check
// The server renders the decision tree into the page. When an event announces a newer tree, the page requests it, with at most one request in flight.
export class Decisions {
  // `box` is null if the run's workflow keeps no tree.
  constructor(box) {
    this.box = box;
    this.shown = Number(box?.querySelector("[data-seq]")?.dataset.seq ?? 0);
    this.asking = false;
  }

  async draw(state) {
    if (!this.box || this.asking || state.tree <= this.shown) return;
    this.asking = true;
    const wanted = state.tree;
    try {
      const response = await fetch(this.box.dataset.url, { credentials: "same-origin" });
      if (response.ok) this.replace(await response.text());
      this.shown = wanted; // if the request fails, the next change tries again
    } catch {
      this.shown = wanted;
    } finally {
      this.asking = false;
    }
    this.draw(state);
  }

  // Keeps the reader's scroll position in the list and the focused link.
  replace(markup) {
    const list = this.box.querySelector("[data-scroll]");
    const [top, left] = [list?.scrollTop ?? 0, list?.scrollLeft ?? 0];
    const focused = this.box.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.box.innerHTML = markup;
    this.box.querySelector("[data-scroll]")?.scrollTo(left, top);
    if (focused) this.box.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}
