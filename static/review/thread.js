// @ts-check
// One thread in the panel: the comments as rendered by the server, and the actions on them.
import { h, setText } from "../js/run/dom.js";
import { say } from "../js/lib/say.js";
import { composer } from "./composer.js";
import { Refused } from "./store.js";

const STANDS = { moved: "It is on another line here.", changed: "The line has changed since then.", outdated: "Outdated: the line is gone from this program." };

export class ThreadView {
  constructor({ id, store, config, stands, reveal }) {
    this.id = id;
    this.store = store;
    this.config = config;
    this.stands = stands;
    this.where = h("button", { type: "button", class: "thread-where", title: "Show the place", onclick: reveal });
    this.note = h("p", { class: "thread-note", hidden: true });
    this.error = h("p", { class: "field-error", role: "alert", hidden: true });
    this.comments = h("div", { class: "thread-comments" }, h("p", { class: "pane-note muted" }, "Reading the comments …"));
    this.resolve = h("button", { type: "button", class: "button small", onclick: () => this.setResolved() });
    const link = h("button", { type: "button", class: "button quiet small", "data-copy": new URL(`/review/threads/${id}/`, location.href).href, title: "Copy a link to this thread" }, h("span", { "data-copy-label": "" }, "Copy link"));
    this.element = h("div", { class: "thread" }, this.where, this.note, this.comments, this.error);
    if (config.writes) {
      const { form } = composer({
        label: "Answer",
        base: store.base,
        draft: `${config.run} thread ${id}`,
        action: "Reply",
        send: async (text) => {
          await store.act(`threads/${id}/reply`, { text });
          say("The answer was sent.");
        },
        extra: [this.resolve, link],
      });
      this.element.append(form);
    } else this.element.append(h("p", { class: "row" }, link));
    this.comments.addEventListener("click", (event) => this.clicked(event));
    this.draw();
  }

  get summary() {
    return this.store.threads.get(this.id);
  }

  draw() {
    const thread = this.summary;
    if (!thread) return;
    setText(this.where, `on ${thread.label}`);
    setText(this.resolve, thread.resolved ? "Open again" : "Resolve");
    const stands = this.stands();
    this.note.hidden = !STANDS[stands?.state];
    setText(this.note, stands?.state === "moved" && stands.line ? `It is on line ${stands.line} here.` : (STANDS[stands?.state] ?? ""));
  }

  // Redraws the comments, but waits while one of them is being edited.
  async load() {
    this.draw();
    if (this.comments.querySelector(".composer")) return;
    try {
      const content = await this.store.comments(this.id);
      if (this.comments.querySelector(".composer")) return;
      const bottom = this.element.parentElement;
      const atEnd = this.shown && bottom && bottom.scrollHeight - bottom.scrollTop - bottom.clientHeight < 40;
      this.comments.replaceChildren(...content.childNodes);
      if (atEnd) bottom.scrollTop = bottom.scrollHeight;
      this.shown = true;
    } catch (error) {
      this.comments.replaceChildren(h("p", { class: "pane-note" }, error instanceof Refused ? error.message : "The comments could not be read. ", h("button", { type: "button", class: "button small", onclick: () => this.load() }, "Try again")));
    }
  }

  async attempt(act) {
    this.error.hidden = true;
    try {
      await act();
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      this.error.hidden = false;
      setText(this.error, refusal.message);
    }
  }

  setResolved() {
    const resolved = this.summary.resolved ? "0" : "1";
    return this.attempt(async () => {
      await this.store.act(`threads/${this.id}/resolve`, { resolved });
      say(resolved === "1" ? "Resolved" : "Opened again");
    });
  }

  clicked(event) {
    const { edit, delete: remove, history } = event.target.closest("button")?.dataset ?? {};
    const item = event.target.closest("[data-comment]");
    if (edit) this.startEdit(item);
    else if (remove) this.askDelete(item, event.target.closest("button"));
    else if (history) this.showHistory(item, event.target.closest("button"));
  }

  startEdit(item) {
    const id = item.dataset.comment;
    const said = item.querySelector(".said");
    const done = () => {
      form.remove();
      said.hidden = false;
      this.load();
    };
    const { form, area } = composer({
      label: "Your comment",
      base: this.store.base,
      draft: `${this.config.run} edit ${id}`,
      text: item.querySelector("template[data-text]").content.textContent,
      action: "Save",
      cancel: done,
      send: async (text) => {
        await this.store.act(`comments/${id}/edit`, { text });
        done();
      },
    });
    said.hidden = true;
    said.after(form);
    area.focus();
  }

  // A second press confirms the deletion, which prevents accidents without a dialog.
  askDelete(item, button) {
    if (button.dataset.sure) return void this.attempt(() => this.store.act(`comments/${item.dataset.comment}/delete`, {}));
    button.dataset.sure = "1";
    button.classList.add("danger");
    setText(button, "Really delete");
    button.addEventListener("blur", () => {
      delete button.dataset.sure;
      button.classList.remove("danger");
      setText(button, "Delete");
    }, { once: true });
  }

  async showHistory(item, button) {
    const shown = item.querySelector(".revisions");
    if (shown) return void shown.remove();
    const answer = await fetch(`${this.store.base}comments/${item.dataset.comment}/history`, { credentials: "same-origin" });
    if (!answer.ok) return;
    item.append(...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes);
    button.focus();
  }
}
