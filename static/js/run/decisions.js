// The tree of decisions stands in the page as the server drew it; where a newer one is told of, it is asked for again, one request at a time.
export class Decisions {
  // `box` is null where the run's workflow keeps no tree.
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
      this.shown = wanted; // a page that cannot be had now is had with the next change
    } catch {
      this.shown = wanted;
    } finally {
      this.asking = false;
    }
    this.draw(state);
  }

  // Where the reader stands in the list is kept: the place of scrolling, and the link that has the focus.
  replace(markup) {
    const list = this.box.querySelector("[data-scroll]");
    const [top, left] = [list?.scrollTop ?? 0, list?.scrollLeft ?? 0];
    const focused = this.box.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.box.innerHTML = markup;
    this.box.querySelector("[data-scroll]")?.scrollTo(left, top);
    if (focused) this.box.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}
