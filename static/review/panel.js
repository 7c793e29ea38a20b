// @ts-check
// The panel next to the page shows the list of threads, one thread, or a new comment, one at a time. The page stays usable.
import { h, setText } from "../js/run/dom.js";
import { ago } from "../js/lib/ago.js";
import { say } from "../js/lib/say.js";
import { composer } from "./composer.js";
import { ThreadView } from "./thread.js";

export class Panel {
  // `here(thread)` returns whether this page shows the thread's place. `reveal(thread)` brings the place into view or opens the page that shows it.
  // `stands(id)` describes the current position of a moved line. `choices()` returns the possible subjects of a new comment, likeliest first.
  constructor({ store, config, here, reveal, stands, choices }) {
    this.store = store;
    this.config = config;
    this.here = here;
    this.reveal = reveal;
    this.stands = stands;
    this.choices = choices;
    this.showsResolved = false;
    this.view = null; // {name: "list"} | {name: "thread", id} | {name: "compose", place}
    this.title = h("h2", { tabindex: "-1" }, "Review");
    this.back = h("button", { type: "button", class: "button quiet small icon", "aria-label": "All threads", title: "All threads", onclick: () => this.list() }, "←");
    this.people = h("p", { class: "review-people", role: "status" });
    this.body = h("div", { class: "review-body", tabindex: "-1" });
    this.element = h(
      "aside",
      { class: "review-panel", id: "review-panel", "aria-label": "Review", hidden: true },
      h("header", null, this.back, this.title, h("button", { type: "button", class: "button quiet icon push", "aria-label": "Close the review", title: "Close (Esc)", onclick: () => this.close() }, "✕")),
      this.people,
      this.body,
    );
    document.body.append(this.element);
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.defaultPrevented) this.close();
    });
    store.addEventListener("change", ({ detail }) => this.changed(detail));
    store.addEventListener("placed", () => (this.view?.name === "list" ? this.drawList() : this.thread?.draw()));
    document.addEventListener("visibilitychange", () => this.markSeen());
  }

  get isOpen() {
    return !this.element.hidden;
  }

  show(view) {
    if (!this.isOpen) this.opener = /** @type {HTMLElement | null} */ (document.activeElement);
    this.view = view;
    this.element.hidden = false;
    document.documentElement.classList.add("review-open");
    this.back.hidden = view.name === "list";
    this.dispatch();
  }

  close() {
    if (!this.isOpen) return;
    this.element.hidden = true;
    document.documentElement.classList.remove("review-open");
    this.view = null;
    this.thread = null;
    if (this.opener?.isConnected) this.opener.focus({ preventScroll: true });
    this.dispatch();
  }

  dispatch() {
    this.store.dispatchEvent(new CustomEvent("view", { detail: this.view }));
  }

  toggle() {
    if (this.isOpen) this.close();
    else this.list();
  }

  // The list

  list() {
    this.thread = null;
    this.show({ name: "list" });
    setText(this.title, "Review");
    this.drawList();
    this.title.focus({ preventScroll: true });
  }

  drawList() {
    const threads = [...this.store.threads.values()].filter((thread) => this.showsResolved || !thread.resolved).sort((a, b) => b.at.localeCompare(a.at));
    const resolved = [...this.store.threads.values()].length - this.store.open.length;
    const here = threads.filter((thread) => this.here(thread));
    const elsewhere = threads.filter((thread) => !this.here(thread));
    const top = this.body.scrollTop;
    const focused = this.body.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.openThread : null;
    this.body.replaceChildren(
      h(
        "div",
        { class: "review-acts" },
        this.config.writes ? h("button", { type: "button", class: "button small", title: "c", onclick: () => this.compose(this.choices()[0]) }, "Comment") : null,
        resolved ? h("label", { class: "check small" }, this.resolvedBox(), `resolved (${resolved})`) : null,
      ),
      ...this.group(here, elsewhere.length ? "On this page" : "", true),
      ...this.group(elsewhere, here.length ? "Elsewhere in this run" : "", false),
    );
    if (!threads.length) this.body.append(this.nothing(resolved));
    this.body.scrollTop = top;
    if (focused) this.body.querySelector(`[data-open-thread="${focused}"]`)?.focus({ preventScroll: true });
  }

  resolvedBox() {
    const box = h("input", { type: "checkbox" });
    box.checked = this.showsResolved;
    box.addEventListener("change", () => {
      this.showsResolved = box.checked;
      this.drawList();
      this.body.querySelector("input[type=checkbox]")?.focus();
    });
    return box;
  }

  nothing(resolved) {
    if (!this.store.loaded) return h("p", { class: "pane-note muted" }, "Reading the threads …");
    if (resolved) return h("p", { class: "pane-note muted" }, "Every thread is resolved.");
    return h("p", { class: "pane-note muted" }, this.config.writes ? "No comments yet. Point at an event, a line of code or a measured range of a timeline and use the mark next to it, or press c." : "No comments on this run yet.");
  }

  group(threads, title, shown) {
    if (!threads.length) return [];
    const list = h("ol", { class: "review-list" }, threads.map((thread) => h("li", null, this.card(thread, shown))));
    return title ? [h("h3", null, title), list] : [list];
  }

  card(thread, shown) {
    const stands = this.stands(thread.id);
    return h(
      "button",
      { type: "button", class: `thread-card${thread.unread ? " unread" : ""}${thread.resolved ? " resolved" : ""}`, "data-open-thread": thread.id, onclick: () => (shown ? this.open(thread.id, { reveal: true }) : this.reveal(thread)) },
      h("span", { class: "thread-top" }, thread.unread ? h("span", { class: "dot" }, h("span", { class: "visually-hidden" }, "unread: ")) : null, h("b", null, thread.author), h("span", { class: "faint" }, ago(new Date(thread.at)))),
      h("span", { class: "thread-excerpt" }, thread.excerpt),
      h("span", { class: "thread-foot" }, h("span", { class: "muted" }, `on ${thread.label}`), stands?.state === "outdated" ? h("span", { class: "tag" }, "outdated") : null, thread.count > 1 ? h("span", { class: "faint" }, `${thread.count} comments`) : null, thread.resolved ? h("span", { class: "chip ok" }, h("span", { class: "sign", "aria-hidden": "true" }, "✓"), "resolved") : null),
    );
  }

  // One thread

  async open(id, { reveal = false, focus = true } = {}) {
    const thread = this.store.threads.get(id);
    if (!thread) return;
    if (reveal) this.reveal(thread);
    this.show({ name: "thread", id });
    setText(this.title, "Thread");
    this.thread = new ThreadView({ id, store: this.store, config: this.config, stands: () => this.stands(id), reveal: () => this.reveal(this.store.threads.get(id)) });
    this.body.replaceChildren(this.thread.element);
    this.body.scrollTop = 0;
    if (focus) this.title.focus({ preventScroll: true });
    await this.thread.load();
    this.markSeen();
  }

  markSeen() {
    if (this.isOpen && this.view?.name === "thread" && !document.hidden) this.store.seen(this.view.id);
  }

  async changed({ changed }) {
    if (!this.isOpen) return;
    if (this.view.name === "list") return this.drawList();
    if (this.view.name !== "thread" || !changed.includes(this.view.id)) return;
    if (!this.store.threads.has(this.view.id)) {
      say("This thread was deleted.");
      return this.list();
    }
    await this.thread.load();
    this.markSeen();
  }

  // A new comment

  compose(place) {
    this.thread = null;
    this.show({ name: "compose", place });
    setText(this.title, "New comment");
    this.drawCompose(place);
  }

  drawCompose(place) {
    const choices = this.choices();
    const known = choices.findIndex((one) => JSON.stringify(one.anchor) === JSON.stringify(place.anchor));
    const all = known >= 0 ? choices : [place, ...choices];
    const select = h("select", { id: "review-place" }, all.map((one, index) => h("option", { value: index }, one.label)));
    select.value = String(Math.max(known, 0));
    select.addEventListener("change", () => this.compose(all[Number(select.value)]));
    const { form, area } = composer({
      label: `Comment on ${place.label}`,
      base: this.store.base,
      draft: `${this.config.run} ${JSON.stringify(place.anchor)}`,
      action: "Comment",
      cancel: () => this.list(),
      send: async (text) => {
        const { thread } = await this.store.act("threads", { anchor: JSON.stringify(place.anchor), text });
        say("The comment was sent.");
        await this.open(thread);
      },
    });
    this.body.replaceChildren(h("div", { class: "compose-place" }, h("label", { for: "review-place" }, "On"), select), place.quote ? h("pre", { class: "compose-quote" }, place.quote) : "", form);
    area.focus();
  }

  showPeople(people) {
    setText(this.people, people.length ? `${people.map((one) => `${one.name} is viewing ${one.place}`).join(", ")}.` : "");
  }
}
