// The conversation: entries in the order of the trace, streaming texts, following the end until the reader scrolls away.
import { AGENTS, ENTRIES, QUIET, isAnswer, isLong, messageBody, tickStage } from "./entries.js";
import { h, setText } from "./dom.js";
import { write } from "./selection.js";

const A_FRAME = 120; // entries drawn in one frame; the rest wait for the next, so that a long trace never blocks the page

export class Conversation {
  constructor({ pane, scroller, list, follow, newer, now, forks, onSelect }) {
    Object.assign(this, { pane, scroller, list, follow, newer, now, forks, onSelect }); // forks: the reader may fork the run
    this.entries = new Map(); // item id -> {article, body, kind}
    this.pending = new Set();
    this.unseen = 0;
    this.following = true;
    this.openTexts = new Set(); // ids of long texts that the reader opened

    // A scroll that the reader makes upward ends the following; reaching the end takes it up again.
    this.lastTop = 0;
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    follow.addEventListener("click", () => this.setFollowing(!this.following));
    newer.addEventListener("click", () => this.setFollowing(true));
    list.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.following && this.toEnd()).observe(list);
  }

  get atEnd() {
    return this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight < 24;
  }

  scrolled() {
    const top = this.scroller.scrollTop;
    const up = top < this.lastTop - 2;
    this.lastTop = top;
    if (up && !this.atEnd) this.setFollowing(false);
    else if (!this.following && this.atEnd) this.setFollowing(true);
  }

  setFollowing(following) {
    this.following = following;
    this.follow.setAttribute("aria-pressed", String(following));
    setText(this.follow, following ? "Following" : "Follow");
    if (following) {
      this.unseen = 0;
      this.toEnd();
    }
    this.showNewer();
  }

  toEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.lastTop = this.scroller.scrollTop;
  }

  showNewer() {
    this.newer.hidden = this.following || this.unseen === 0;
    setText(this.newer, `${this.unseen} new ↓`);
  }

  // True while entries are left for the next frame.
  draw(state, ids) {
    for (const id of ids) this.pending.add(id);
    let room = A_FRAME;
    const fresh = document.createDocumentFragment();
    for (const id of this.pending) {
      if (room-- === 0) break;
      this.pending.delete(id);
      const item = state.itemById.get(id);
      const entry = this.entries.get(id);
      if (entry) this.update(entry, item, state);
      else fresh.append(this.build(item, state));
    }
    const added = fresh.childElementCount;
    if (added) {
      this.list.append(fresh);
      if (!this.following) this.unseen += added;
    }
    if (this.following) this.toEnd();
    else this.showNewer();
    return this.pending.size > 0;
  }

  build(item, state) {
    const quiet = QUIET.has(item.kind);
    const body = h("div", { class: "entry-body" });
    const at = new Date(item.at);
    const stamp = h("a", { class: "stamp", href: write({ event: item.seq }), title: `event ${item.seq}, ${at.toLocaleString()}` }, at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }));
    const copy = h("button", { type: "button", class: "entry-copy", title: "Copy this entry", "data-copy": "", "data-entry": item.id }, h("span", { "data-copy-label": "" }, "Copy"));
    const who = quiet ? null : h("span", { class: "who" }, AGENTS[item.agent] ?? item.agent);
    const fork = quiet || !this.forks ? null : h("a", { class: "entry-fork", href: `fork?at=${item.seq}`, title: "Fork the run from here" }, "Fork");
    const article = h("article", { class: `entry ${item.kind} by-${item.agent}${quiet ? " quiet" : ""}`, id: item.id, tabindex: "-1" }, h("header", null, who, stamp, fork, quiet ? null : copy), body);
    const entry = { article, body, item };
    this.entries.set(item.id, entry);
    this.update(entry, item, state);
    return article;
  }

  update(entry, item, state) {
    if (item.kind === "message") {
      this.updateMessage(entry, item);
      return;
    }
    const focused = entry.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    entry.body.replaceChildren(...(ENTRIES[item.kind]?.(item, state, this.now()) ?? []).flat().filter(Boolean));
    if (focused) entry.body.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }

  // A streaming text only grows: its text node is appended to, so that a selection within it survives.
  updateMessage(entry, item) {
    const shown = entry.body.firstElementChild;
    if (!item.done && shown?.classList.contains("streaming")) {
      const node = shown.firstChild;
      if (node && item.text.startsWith(node.data)) node.appendData(item.text.slice(node.data.length));
      else shown.replaceChildren(document.createTextNode(item.text));
      shown.scrollTop = shown.scrollHeight;
      return;
    }
    const parts = [messageBody(item)];
    if (item.done && item.artefact && !item.text) parts[0] = h("p", null, h("a", { href: `artefacts/${encodeURIComponent(item.artefact.sha)}`, target: "_blank", rel: "noopener" }, "The text is long: open it"));
    else if (item.done && (isLong(item.text) || isAnswer(item))) {
      const open = this.openTexts.has(item.id);
      parts[0].classList.toggle("folded", !open);
      parts[0].classList.toggle("answer", Boolean(item.answer));
      const lines = item.text.split("\n").length;
      parts.push(h("button", { type: "button", class: "more", "data-more": item.id, "aria-expanded": String(open) }, open ? "Show less" : `${item.answer ? "The whole reply" : "Show all"} (${lines} lines)`));
    }
    entry.article.classList.toggle("writing", !item.done);
    entry.body.replaceChildren(...parts);
  }

  clicked(event) {
    const more = event.target.closest("[data-more]");
    if (more) {
      const id = more.dataset.more;
      const open = !this.openTexts.has(id);
      if (open) this.openTexts.add(id);
      else this.openTexts.delete(id);
      more.setAttribute("aria-expanded", String(open));
      more.previousElementSibling.classList.toggle("folded", !open);
      const { item } = this.entries.get(id);
      more.textContent = open ? "Show less" : `${item.answer ? "The whole reply" : "Show all"} (${item.text.split("\n").length} lines)`;
      if (open) this.setFollowing(false);
      return;
    }
    const copy = event.target.closest("[data-entry]");
    // lib/copy.js copies what data-copy holds when this click reaches the document.
    if (copy) copy.dataset.copy = this.textOf(copy.dataset.entry);
  }

  textOf(id) {
    const { item, body } = this.entries.get(id);
    return item.kind === "message" ? item.text : body.innerText;
  }

  // Brings an entry into view and marks it. False where it has not been drawn yet.
  reveal(id) {
    const entry = this.entries.get(id);
    if (!entry) return false;
    this.setFollowing(false);
    this.list.querySelector(".entry.selected")?.classList.remove("selected");
    entry.article.classList.add("selected");
    entry.article.scrollIntoView({ block: "start" });
    this.lastTop = this.scroller.scrollTop;
    return true;
  }

  tick() {
    const now = this.now();
    for (const time of this.list.querySelectorAll(".stage-time[data-from]")) tickStage(time, now);
  }
}
