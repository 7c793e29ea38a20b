// @ts-check
// Comments on ranges of a timeline. A person can comment on the measured range, and commented ranges are marked.
import { h, setText } from "../js/run/dom.js";
import { duration, placeOfRange } from "./places.js";

export class Ranges {
  constructor({ store, writes, open, comment }) {
    this.store = store;
    this.comment = comment;
    this.range = /** @type {TimelineRange | null} */ (null);
    document.addEventListener("timeline:mark", (/** @type {CustomEvent<{ id: string }>} */ { detail }) => open(Number(detail.id)));
    store.addEventListener("change", () => this.mark());
    new MutationObserver((changes) => changes.some((change) => [...change.addedNodes].some((node) => node instanceof Element && (node.matches(".timeline-box") || node.querySelector(".timeline-box")))) && this.mark()).observe(document.getElementById("main"), { childList: true, subtree: true });
    if (writes) {
      this.words = h("span", null);
      this.offer = h("div", { class: "review-range", role: "status", hidden: true }, this.words, h("button", { type: "button", class: "button primary small", title: "c", onclick: () => this.take() }, "Comment on it"), h("button", { type: "button", class: "button quiet small icon", "aria-label": "Not now", onclick: () => this.drop() }, "✕"));
      document.body.append(this.offer);
      document.addEventListener("timeline:range", (/** @type {CustomEvent<TimelineRange>} */ { detail }) => this.measured(detail));
    }
    this.mark();
  }

  measured(range) {
    this.range = range;
    setText(this.words, `Measured ${duration(range.end_ns - range.start_ns)}`);
    this.offer.hidden = false;
  }

  take() {
    const place = placeOfRange(this.range);
    this.drop();
    this.comment(place);
  }

  drop() {
    this.offer.hidden = true;
    this.range = null;
  }

  mark() {
    const threads = [...this.store.threads.values()].filter((thread) => thread.kind === "range" && !thread.resolved);
    const marks = threads.map(({ id, anchor, author, excerpt }) => ({ id, sha: anchor.sha, start_ns: anchor.start_ns, end_ns: anchor.end_ns, label: `${author}: ${excerpt.slice(0, 60)}` }));
    const key = JSON.stringify(marks);
    for (const box of /** @type {NodeListOf<HTMLElement & { marks?: object[] }>} */ (document.querySelectorAll(".timeline-box"))) {
      if (box.dataset.reviewMarks === key) continue;
      box.dataset.reviewMarks = key;
      box.marks = marks;
    }
  }
}
