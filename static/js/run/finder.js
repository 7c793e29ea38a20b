// @ts-check
// Searches the whole trace. The server does the search, so rows that are not in the document are found too, and the page jumps to them.
import { h, setText } from "./dom.js";
import { needlesOf } from "./findings.js";
import { shortcut } from "../lib/keys.js";
import { say } from "../lib/say.js";
import { counted } from "../lib/words.js";

const PAUSE_MS = 220; // delay after the last key press
const AGAIN_MS = 2500; // shortest interval between searches of a run in progress
const WHERE = { prompt: "in its prompt", reply: "in its reply", reasoning: "in its reasoning", program: "in its program" };

export class Finder {
  // `entryOf(seq)` returns the item of an event, `go(item, hit, needles)` selects an item, and `url` is the server's search endpoint.
  constructor({ root, url, state, conversation, entryOf, go }) {
    this.url = url;
    this.state = state;
    this.conversation = conversation;
    this.entryOf = entryOf;
    this.go = go;
    this.part = (name) => root.querySelector(`[data-part="${name}"]`);
    this.form = this.part("find");
    this.input = this.form.elements.q;
    this.places = [];
    this.at = -1;
    this.searched = 0; // head of the trace at the last search
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.answered === this.query()) this.step(1);
      else this.search(true);
    });
    this.form.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.search(), PAUSE_MS);
    });
    this.input.addEventListener("keydown", (event) => this.pressed(event));
    this.part("find-previous").addEventListener("click", () => this.step(-1));
    this.part("find-next").addEventListener("click", () => this.step(1));
    this.part("find-close").addEventListener("click", () => this.close());
    this.part("find-filters").addEventListener("click", () => this.showFilters(this.part("find-options").hidden));
    this.part("hits").addEventListener("click", (event) => {
      const hit = event.target.closest("[data-at]");
      if (hit) this.stepTo(Number(hit.dataset.at));
    });
    this.part("hits").addEventListener("keydown", (event) => this.walked(event));
    shortcut("n", "next hit of the search", () => this.step(1), "Trace");
    shortcut("N", "previous hit of the search", () => this.step(-1), "Trace");
  }

  showFilters(shown) {
    this.part("find-options").hidden = !shown;
    this.part("find-filters").setAttribute("aria-expanded", String(shown));
  }

  query() {
    const given = new URLSearchParams();
    for (const [name, value] of new FormData(this.form)) if (value) given.set(name, String(value));
    return given.toString();
  }

  pressed(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      this.close();
    } else if (event.key === "Enter" && event.shiftKey) {
      event.preventDefault();
      this.step(-1);
    } else if (event.key === "ArrowDown" && this.places.length) {
      event.preventDefault();
      this.part("hits").querySelector("button")?.focus();
    }
  }

  walked(event) {
    const to = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (event.key === "Escape") this.input.focus();
    if (!to) return;
    event.preventDefault();
    const next = event.target.closest("li")?.[to];
    (next?.querySelector("button") ?? (to === "previousElementSibling" ? this.input : null))?.focus();
  }

  close() {
    this.form.reset();
    this.showFilters(false);
    this.clear();
    this.conversation.scroller.focus();
  }

  clear() {
    this.asked?.abort();
    this.places = [];
    this.at = -1;
    this.answered = "";
    this.found = null;
    this.conversation.find(null);
    this.part("hits").hidden = true;
    this.part("find-close").hidden = true;
    setText(this.part("find-count"), "");
    this.enable();
  }

  // `go` jumps to the first hit immediately.
  async search(go = false, again = false) {
    clearTimeout(this.timer);
    const query = this.query();
    if (!query || query === "stored=1") return this.clear();
    this.asked?.abort();
    this.asked = new AbortController();
    if (!again) setText(this.part("find-count"), "searching …");
    let found;
    try {
      const answer = await fetch(`${this.url}?${query}`, { signal: this.asked.signal, credentials: "same-origin", headers: { accept: "application/json" } });
      found = await answer.json();
      if (!answer.ok) throw new Error(found.error ?? `the server answered ${answer.status}`);
    } catch (error) {
      if (error.name === "AbortError") return;
      setText(this.part("find-count"), again ? this.part("find-count").textContent : error.message);
      return;
    }
    const kept = again ? this.places[this.at] : null;
    this.found = found;
    this.places = found.places;
    this.answered = query;
    this.searched = found.head;
    this.searchedAt = Date.now();
    this.needles = needlesOf(this.input.value) ?? { words: [], exact: [] };
    this.at = kept == null ? -1 : found.places.indexOf(kept);
    this.conversation.find(this.needles);
    this.draw();
    if (!again) say(found.total ? `${counted(found.total, "entry")} found` : "nothing found");
    if (go) this.step(1);
  }

  draw() {
    const { found } = this;
    const list = this.part("hits");
    this.part("find-close").hidden = false;
    this.enable();
    this.showCount();
    list.hidden = false;
    const rest = [];
    if (found.total > found.shown.length) rest.push(`The first ${found.shown.length} of ${counted(found.total, "entry")} are listed; next and previous go through all of them.`);
    if (found.unread) rest.push(`Skipped ${counted(found.unread, "prompt or program", "prompts and programs")}: too large together for one search.`);
    if (!found.total) rest.push(this.form.elements.stored.checked ? "No entry, prompt, reply or program of this run matches." : "No entry matches. Prompts, replies as they were sent and programs are searched too with the filter “prompts and programs”.");
    list.replaceChildren(...found.shown.map((hit, index) => this.row(hit, index)), ...rest.map((text) => h("li", { class: "hits-note small muted" }, text)));
  }

  row(hit, index) {
    const more = hit.hits > 1 ? `${hit.hits} times` : "";
    return h(
      "li",
      null,
      h(
        "button",
        { type: "button", class: "hit", "data-at": index, "aria-current": index === this.at ? "true" : null },
        h("span", { class: "hit-place" }, [hit.agent || "engine", hit.kind, hit.span, WHERE[hit.where] ?? "", more].filter(Boolean).join(" · ")),
        h("span", { class: "hit-text" }, hit.before, h("mark", null, hit.match), hit.after),
      ),
    );
  }

  enable() {
    for (const name of ["find-previous", "find-next"]) this.part(name).disabled = !this.places.length;
  }

  showCount() {
    const total = this.places.length.toLocaleString("en");
    setText(this.part("find-count"), this.at < 0 ? `${total} found` : `${(this.at + 1).toLocaleString("en")} of ${total}`);
  }

  step(by) {
    if (!this.places.length) return;
    if (this.at < 0) {
      // Starts at the entry in view and wraps around.
      const { place } = this.conversation;
      const first = this.places.findIndex((seq) => (this.entryOf(seq)?.index ?? -1) >= place);
      this.stepTo(by > 0 ? Math.max(0, first) : first <= 0 ? this.places.length - 1 : first - 1);
    } else this.stepTo((this.at + by + this.places.length) % this.places.length);
  }

  stepTo(at) {
    this.at = at;
    const item = this.entryOf(this.places[at]);
    this.showCount();
    const rows = this.part("hits").querySelectorAll(".hit");
    for (const row of rows) row.removeAttribute("aria-current");
    rows[at]?.setAttribute("aria-current", "true");
    rows[at]?.scrollIntoView({ block: "nearest" });
    if (item) this.go(item, this.found.shown[at] ?? null, this.needles);
  }

  // While the run is in progress, newer events are searched too.
  tick() {
    if (this.found && this.state.last > this.searched && Date.now() - this.searchedAt > AGAIN_MS && !document.hidden) this.search(false, true);
  }
}
