// @ts-check
// Shows the entries in the order of the trace, streams texts, and follows the end until the reader scrolls away.
import { AGENTS, cutLines, ENTRIES, QUIET, summaryOf, tickStage } from "./entries.js";
import { CopyMenu } from "./copying.js";
import { h, setText } from "./dom.js";
import { firstLine, paint, rangesIn } from "./findings.js";
import { folds, messageBody } from "./messages.js";
import { Reading } from "./reading.js";
import { write } from "./selection.js";
import { VirtualList } from "./virtual.js";

const HEIGHTS = { llm: 30, span: 44, artefact: 30, profile: 30, state: 30, control: 30, verification: 86, candidate: 96, diagnosis: 150, decision: 84, way: 84, note: 92, plan: 320 }; // estimates in pixels, used until the rows are measured

export class Conversation {
  constructor({ state, scroller, list, follow, newer, now, forks }) {
    // `forks` says whether the reader may fork the run
    this.state = state;
    this.scroller = scroller;
    this.list = list;
    this.follow = follow;
    this.newer = newer;
    this.now = now;
    this.forks = forks;
    this.unseen = 0;
    this.following = true;
    this.selected = null; // id of the entry that a link or a step has selected
    this.allCollapsed = false;
    this.collapsed = new Map(); // id -> true or false, if the reader has overridden the default
    this.needles = null; // the text to highlight: {words, exact}
    this.reading = new Reading((item) => this.refresh(item));
    this.copies = new CopyMenu((id) => this.source(id));
    this.rows = new VirtualList({ scroller, list, estimate: (index) => this.estimate(state.items[index]), build: (index) => this.build(state.items[index]), drawn: () => this.mark() });

    // Following stops when the reader scrolls up, and resumes at the end.
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
    else if (!this.following && this.atEnd && this.state.run.state !== "finished") this.setFollowing(true);
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
    for (let turn = 0; turn < 2; turn += 1) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
      if (!turn) this.rows.render();
    }
    this.lastTop = this.scroller.scrollTop;
  }

  showNewer() {
    this.newer.hidden = this.following || this.unseen === 0;
    setText(this.newer, `${this.unseen.toLocaleString("en")} new ↓`);
  }

  // Redraws the changed items that are in the document, and adds the new ones.
  draw(ids) {
    const before = this.rows.count;
    for (const id of ids) {
      const item = this.state.itemById.get(id);
      if (item.index < before) this.refresh(item);
    }
    this.rows.extend(this.state.items.length);
    if (!this.following && before) this.unseen += this.rows.count - before;
    if (this.following) this.toEnd();
    else this.showNewer();
  }

  estimate(item) {
    if (item.kind !== "message") return HEIGHTS[item.kind] ?? 80;
    if (this.isCollapsed(item)) return 34;
    return 64 + Math.min(item.answer ? 96 : 288, (item.newlines + 1) * 20 + Math.floor(item.text.length / 70) * 10);
  }

  isCollapsed(item) {
    return !QUIET.has(item.kind) && (this.collapsed.get(item.id) ?? this.allCollapsed);
  }

  build(item) {
    const quiet = QUIET.has(item.kind);
    const at = new Date(item.at);
    const stamp = h("a", { class: "stamp", href: write({ event: item.seq }), title: `event ${item.seq}, ${at.toLocaleString()}` }, at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }));
    const head = [stamp];
    if (!quiet) {
      const who = AGENTS[item.agent] ?? item.agent;
      head.unshift(h("button", { type: "button", class: "twist", "data-fold": item.id }), h("span", { class: "who" }, who));
      head.push(h("span", { class: "summary" }));
      if (this.forks) head.push(h("a", { class: "entry-fork", href: `fork?at=${item.seq}`, title: "Fork the run from here" }, "Fork"));
      head.push(h("button", { type: "button", class: "entry-copy", "data-copies": item.id, "aria-haspopup": "menu", "aria-expanded": "false", "aria-label": `Copy the entry of ${who}` }, h("span", { "data-copy-label": "" }, "Copy")));
    }
    const article = h(
      "article",
      { class: `entry ${item.kind} by-${item.agent}${quiet ? " quiet" : ""}`, id: item.id, tabindex: "-1", "data-seq": item.seq, "data-span": item.span, "aria-posinset": item.index + 1, "aria-setsize": -1 },
      h("header", null, head),
      h("div", { class: "entry-body" }),
    );
    this.fill(article, item);
    return article;
  }

  refresh(item) {
    const row = this.rows.rows.get(item.index);
    if (!row) return;
    this.fill(row, item);
    if (this.needles) this.mark();
  }

  fill(article, item) {
    const body = article.lastElementChild;
    article.classList.toggle("selected", item.id === this.selected);
    article.classList.toggle("writing", item.kind === "message" && !item.done);
    const collapsed = this.isCollapsed(item);
    const twist = article.querySelector(".twist");
    if (twist) {
      twist.textContent = collapsed ? "▸" : "▾";
      twist.setAttribute("aria-expanded", String(!collapsed));
      twist.setAttribute("aria-label", `${collapsed ? "Expand" : "Collapse"} event ${item.seq}`);
      setText(article.querySelector(".summary"), collapsed ? summaryOf(item, this.state) : "");
    }
    body.hidden = collapsed;
    if (collapsed || (item.kind === "message" && this.streams(body, item))) return;
    const focused = body.contains(document.activeElement) ? addressOf(document.activeElement) : null;
    const parts = item.kind === "message" ? messageBody(item, this.reading.of(item)) : (ENTRIES[item.kind]?.(item, this.state, this.now(), this.reading) ?? []);
    if (item.cut) parts.push(...cutLines(item, this.reading));
    body.replaceChildren(...parts.flat(2).filter(Boolean));
    if (focused) body.querySelector(focused)?.focus();
  }

  // A streaming text only grows, so new text is appended to its text node, which preserves a selection in it.
  streams(body, item) {
    const shown = body.firstElementChild;
    if (item.done || !shown?.classList.contains("streaming")) return false;
    const node = shown.firstChild;
    if (node && item.text.startsWith(node.data)) node.appendData(item.text.slice(node.data.length));
    else shown.replaceChildren(document.createTextNode(item.text));
    shown.scrollTop = shown.scrollHeight;
    return true;
  }

  clicked(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const { more, moreNext, call, callNext, fold, copies, strings } = button.dataset;
    const item = this.state.itemById.get(more ?? moreNext ?? call ?? callNext?.split(" ")[0] ?? fold ?? strings ?? "");
    if (copies) this.copies.open(button, copies);
    if (!item) return;
    if (more && this.reading.of(item)) {
      this.reading.close(item);
      this.rows.rows.get(item.index)?.scrollIntoView({ block: "nearest" });
      return;
    }
    this.setFollowing(false);
    if (more) this.reading.open(item);
    if (moreNext) this.reading.next(item);
    if (call) this.reading.calls.has(item.id) ? this.reading.closeCall(item) : this.reading.call(item);
    if (callNext) this.reading.callNext(item, Number(callNext.split(" ")[1]));
    if (strings) this.reading.openStrings(item);
    if (fold) {
      this.collapsed.set(item.id, !this.isCollapsed(item));
      this.refresh(item);
    }
  }

  collapseAll(collapsed) {
    this.allCollapsed = collapsed;
    this.collapsed.clear();
    for (const [index, row] of this.rows.rows) this.fill(row, this.state.items[index]);
    for (const item of this.state.items) if (!this.rows.rows.has(item.index)) this.rows.heights.set(item.index, collapsed && !QUIET.has(item.kind) ? 36 : this.estimate(item));
    this.rows.render();
    if (this.following) this.toEnd();
  }

  // The data that the copy menu needs from an entry.
  source(id) {
    const item = this.state.itemById.get(id);
    const seqs = [item.seq, ...[...this.state.told].filter(([, told]) => told === item).map(([seq]) => seq)];
    return {
      item,
      who: AGENTS[item.agent] ?? item.agent,
      text: async () => (item.kind === "message" ? this.reading.whole(item) : this.rows.rows.get(item.index).lastElementChild.innerText),
      events: async () => {
        const found = await this.reading.events(seqs);
        if (item.kind !== "message") return found.length === 1 ? found[0] : found;
        const { run, seq, at, span, agent } = found[0];
        return { run, seq, at, span, agent, kind: "message", message: item.message, text: await this.reading.whole(item) };
      },
    };
  }

  // Brings an entry into view, opens it and marks it. Returns false if the entry has not yet arrived.
  reveal(item) {
    if (!item || item.index >= this.rows.count) return false;
    this.setFollowing(false);
    const before = this.selected && this.state.itemById.get(this.selected);
    this.selected = item.id;
    if (before) this.rows.rows.get(before.index)?.classList.remove("selected");
    if (this.isCollapsed(item)) this.collapsed.set(item.id, false);
    const row = this.rows.show(item.index);
    this.fill(row, item);
    this.rows.scrollTo(row);
    this.lastTop = this.scroller.scrollTop;
    return true;
  }

  // Does the same for a search hit: opens the text that contains it and scrolls to the hit.
  async revealHit(item, hit, needles) {
    if (!this.reveal(item)) return;
    const inside = () => rangesIn(this.rows.rows.get(item.index), needles, 1)[0];
    if (item.kind === "message" && folds(item)) {
      await this.reading.open(item);
      while (!inside() && this.reading.of(item)?.next != null) await this.reading.next(item);
    } else if (item.kind === "llm" && hit?.where && !this.reading.calls.has(item.id)) {
      await this.reading.call(item);
      const { texts } = this.reading.calls.get(item.id);
      for (let index = 0; index < texts.length && !inside(); index += 1) await this.reading.callNext(item, index);
      for (const text of this.rows.rows.get(item.index)?.querySelectorAll("details.call-text") ?? []) text.open = text.open || rangesIn(text, needles, 1).length > 0;
    } else if (item.cut && !inside()) await this.reading.openStrings(item);
    if (this.selected !== item.id) return; // the reader has selected something else in the meantime
    const range = inside();
    if (range) this.rows.scrollTo(firstLine(range), 0.3);
    this.lastTop = this.scroller.scrollTop;
  }

  find(needles) {
    this.needles = needles;
    this.mark();
  }

  mark() {
    paint(this.needles ? this.rows.rows.values() : [], this.needles);
  }

  // The item from which a step starts: the selected one if it is in view, or else the first visible one.
  get place() {
    const chosen = this.selected ? this.state.itemById.get(this.selected) : null;
    const box = this.scroller.getBoundingClientRect();
    if (chosen) {
      const at = this.rows.rows.get(chosen.index)?.getBoundingClientRect();
      if (at && at.bottom > box.top && at.top < box.bottom) return chosen.index;
    }
    return this.rows.heights.find(Math.max(0, this.scroller.scrollTop - this.list.offsetTop)) - 0.5;
  }

  tick() {
    const now = this.now();
    for (const time of this.list.querySelectorAll(".stage-time[data-from]")) tickStage(time, now);
  }
}

// A selector for the focused element in a body that is about to be redrawn.
function addressOf(element) {
  const name = [...element.attributes].find(({ name }) => name === "href" || name.startsWith("data-"));
  return name ? `[${name.name}="${CSS.escape(name.value)}"]` : null;
}
