// @ts-check
// Shows a run's branches (ways) side by side. The server renders them, and this module requests them again when one of them has changed.
const AGAIN_MS = 1000; // shortest interval between requests

export class Ways {
  constructor(box, url) {
    this.box = box;
    this.url = url;
  }

  get drawn() {
    return this.box.childElementCount > 0;
  }

  refresh() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => this.load(), this.drawn ? AGAIN_MS : 0);
  }

  async load() {
    try {
      const answer = await fetch(this.url, { credentials: "same-origin" });
      if (answer.ok) this.show(await answer.text());
    } catch {
      // offline; the next change retries
    }
    this.waiting = null;
  }

  // Keeps anything that the reader has opened or focused.
  show(html) {
    const open = this.box.querySelector("details")?.open;
    const focused = this.box.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.box.innerHTML = html;
    const details = this.box.querySelector("details");
    if (details && open != null) details.open = open;
    if (focused) this.box.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    this.box.hidden = !this.drawn;
  }
}
