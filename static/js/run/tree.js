// @ts-check
// The tree of spans shows the parts of the run, how each of them ended, and what it used. A span's usage includes that of the spans below it.
import { h, setText } from "./dom.js";
import { count, seconds, shortStatus, statusOf, times } from "./format.js";
import { write } from "./selection.js";
import { clock } from "../lib/ago.js";
import { counted } from "../lib/words.js";

const OVERSCAN = 12; // rows
const TYPING_MS = 700;

export class Tree {
  constructor({ box, fold, now }) {
    this.box = box;
    this.foldButton = fold;
    this.now = now; // () => server time in ms
    this.folded = new Set(); // paths
    this.rows = new Map(); // path -> elements, for rows in the document
    this.visible = []; // [{path, depth, place, siblings}]
    this.active = null;
    this.typed = "";
    this.list = h("div", { class: "tree", role: "tree", tabindex: "0", "aria-label": "Steps of the run" });
    this.list.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("click", (event) => this.clicked(event));
    this.list.addEventListener("focus", () => this.active ?? this.move(0));
    box.addEventListener("scroll", () => this.place(), { passive: true });
    new ResizeObserver(() => this.place()).observe(box);
    fold.addEventListener("click", () => this.foldAll(!this.folded.size));
  }

  draw(state, selection) {
    this.state = state;
    this.selection = selection;
    if (!state.roots.length) {
      if (state.run.state === "finished") setText(this.box.firstElementChild, "This run ended before its first step.");
      return;
    }
    if (!this.list.isConnected) this.box.replaceChildren(this.list);
    this.sums = new Map();
    for (const path of state.roots) this.add(path);
    const priced = [...this.sums.values()].some((sum) => sum.calls);
    this.box.classList.toggle("priced", priced);
    this.flatten();
  }

  // The usage of a span, including all spans below it.
  add(path) {
    const span = this.state.spans.get(path);
    const sum = { ...span.own, inside: 0 };
    for (const child of span.children) {
      const below = this.add(child);
      for (const name of ["tokens", "dollars", "calls", "failures"]) sum[name] += below[name];
      sum.inside += below.failures;
    }
    this.sums.set(path, sum);
    return sum;
  }

  flatten() {
    this.visible = [];
    const walk = (paths, depth) => {
      paths.forEach((path, index) => {
        this.visible.push({ path, depth, place: index + 1, siblings: paths.length });
        if (!this.folded.has(path)) walk(this.state.spans.get(path).children, depth + 1);
      });
    };
    walk(this.state.roots, 0);
    setText(this.foldButton, this.folded.size ? "Unfold" : "Fold");
    this.foldButton.hidden = this.state.spans.size === this.state.roots.length;
    this.place();
  }

  get height() {
    return this.measured || (this.measured = this.list.querySelector(".line")?.offsetHeight || 0) || 28;
  }

  // Puts the rows near the view into the document. All rows have the same height.
  place() {
    if (!this.state || !this.list.isConnected) return;
    const { height } = this;
    const from = Math.max(0, Math.floor(this.box.scrollTop / height) - OVERSCAN);
    const to = Math.min(this.visible.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + OVERSCAN);
    const wanted = this.visible.slice(from, to);
    const kept = new Set(wanted.map(({ path }) => path));
    for (const [path, row] of this.rows) {
      if (kept.has(path)) continue;
      row.line.remove();
      this.rows.delete(path);
    }
    let before = null;
    for (const entry of wanted) {
      let row = this.rows.get(entry.path);
      if (!row) this.rows.set(entry.path, (row = this.build(entry)));
      const next = before ? before.nextSibling : this.list.firstChild;
      if (next !== row.line) this.list.insertBefore(row.line, next);
      before = row.line;
      this.update(entry, row);
    }
    this.list.style.paddingTop = `${4 + from * height}px`;
    this.list.style.paddingBottom = `${4 + (this.visible.length - to) * height}px`;
  }

  build({ path }) {
    const part = (name) => h("span", { class: name });
    const [twist, sign, title, inside, result, tokens, cost, time] = ["twist", "sign", "title", "inside", "result", "tokens", "cost", "time"].map(part);
    for (const mark of [twist, sign]) mark.setAttribute("aria-hidden", "true");
    const line = h("a", { class: "line span-row", role: "treeitem", tabindex: "-1", id: `span-${path}`, "data-path": path }, twist, sign, title, inside, result, tokens, cost, time);
    return { line, twist, sign, title, inside, result, tokens, cost, time };
  }

  update({ path, depth, place, siblings }, row) {
    const span = this.state.spans.get(path);
    const sum = this.sums.get(path);
    const number = span.candidates.at(-1) ?? null;
    const candidate = number == null ? null : this.state.candidates.get(number);
    const status = candidate?.status || (span.status === "open" && this.state.run.state === "finished" ? "ended" : span.status);
    const [tone, sign, word] = statusOf(status);
    const parent = span.children.length > 0;
    const folded = this.folded.has(path);
    const failed = folded ? sum.inside : 0;
    row.line.dataset.depth = Math.min(depth, 6);
    row.line.setAttribute("aria-level", depth + 1);
    row.line.setAttribute("aria-posinset", place);
    row.line.setAttribute("aria-setsize", siblings);
    if (parent) row.line.setAttribute("aria-expanded", String(!folded));
    setText(row.twist, parent ? (folded ? "▸" : "▾") : "");
    row.sign.className = `sign ${tone}`;
    setText(row.sign, sign);
    setText(row.title, span.title);
    row.inside.hidden = !failed;
    setText(row.inside, failed ? `✕ ${failed}` : "");
    setText(row.result, !candidate?.status ? "" : candidate.status === "passed" && candidate.speedup ? `${times(candidate.speedup.ratio)}×` : shortStatus(status));
    row.result.className = `result ${candidate?.status === "passed" ? (candidate.faster ? "ok" : "") : tone}`;
    setText(row.tokens, sum.tokens ? count(sum.tokens) : "");
    setText(row.cost, sum.dollars ? `$${sum.dollars < 0.1 ? sum.dollars.toFixed(3) : sum.dollars.toFixed(2)}` : "");
    row.line.setAttribute("href", number == null ? write({ span: path }) : write({ candidate: number, span: path }));
    const told = [
      word,
      failed ? `${failed} failed inside` : "",
      sum.calls ? `${count(sum.tokens)} tokens in ${counted(sum.calls, "call")}, $${sum.dollars.toFixed(4)}` : "",
      span.summary,
    ].filter(Boolean);
    row.line.setAttribute("title", `${span.title}: ${told.join(", ")}`);
    const { selection } = this;
    const selected = selection.span === path || (selection.span == null && selection.candidate != null && span.candidates.includes(selection.candidate));
    row.line.setAttribute("aria-selected", String(selected));
    row.line.classList.toggle("active", path === this.active);
    this.tickRow(span, row);
  }

  tickRow(span, row) {
    const open = span.closedAt == null && span.openedAt && this.state.run.state !== "finished";
    const spent = span.seconds ?? (open ? Math.max(0, (this.now() - Date.parse(span.openedAt)) / 1000) : null);
    setText(row.time, spent == null ? "" : spent >= 60 ? clock(spent) : open ? `${Math.floor(spent)} s` : seconds(spent));
  }

  tick() {
    for (const [path, row] of this.rows) {
      const span = this.state.spans.get(path);
      if (span.closedAt == null) this.tickRow(span, row);
    }
  }

  setFolded(path, folded) {
    if (!this.state.spans.get(path)?.children.length) return;
    if (folded) this.folded.add(path);
    else this.folded.delete(path);
    this.flatten();
  }

  foldAll(folded) {
    this.folded = new Set(folded ? [...this.state.spans.values()].filter((span) => span.children.length).map((span) => span.path) : []);
    this.flatten();
  }

  // Unfolds the parents of the span and brings it into view.
  reveal(path) {
    const cut = path.lastIndexOf("/");
    if (cut > 0) {
      let above = path.slice(0, cut);
      for (;;) {
        this.folded.delete(above);
        if (!above.includes("/")) break;
        above = above.slice(0, above.lastIndexOf("/"));
      }
      if (this.state) this.flatten(); // otherwise it is about to be drawn for the first time
    }
    const index = this.visible.findIndex((entry) => entry.path === path);
    if (index >= 0) this.scrollTo(index);
  }

  scrollTo(index) {
    const { height, box } = this;
    const top = index * height;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + height * 2 > box.scrollTop + box.clientHeight) box.scrollTop = top + height * 2 - box.clientHeight;
    this.place();
  }

  move(index) {
    const entry = this.visible[Math.max(0, Math.min(this.visible.length - 1, index))];
    if (!entry) return;
    this.active = entry.path;
    this.scrollTo(this.visible.indexOf(entry));
    this.list.setAttribute("aria-activedescendant", `span-${entry.path}`);
  }

  clicked(event) {
    const line = event.target.closest(".line");
    if (!line) return;
    const { path } = line.dataset;
    this.move(this.visible.findIndex((entry) => entry.path === path));
    if (!event.target.closest(".twist") || !this.state.spans.get(path).children.length) return;
    event.preventDefault();
    this.setFolded(path, !this.folded.has(path));
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.visible.findIndex((entry) => entry.path === this.active);
    const entry = this.visible[at];
    const span = entry && this.state.spans.get(entry.path);
    const keys = {
      ArrowDown: () => this.move(at + 1),
      ArrowUp: () => this.move(at - 1),
      Home: () => this.move(0),
      End: () => this.move(this.visible.length - 1),
      ArrowRight: () => (this.folded.has(entry?.path) ? this.setFolded(entry.path, false) : span?.children.length && this.move(at + 1)),
      ArrowLeft: () => {
        if (span?.children.length && !this.folded.has(entry.path)) this.setFolded(entry.path, true);
        else this.move(this.visible.findIndex((other) => other.path === span?.parent));
      },
      Enter: () => this.rows.get(this.active)?.line.click(),
      " ": () => this.rows.get(this.active)?.line.click(),
    };
    const typed = event.key.length === 1 && (/[\p{L}\p{N}]/u.test(event.key) || (event.key === " " && this.typed !== ""));
    if (!keys[event.key] && !typed) return;
    event.preventDefault();
    if (typed) this.type(event.key, at);
    else keys[event.key]();
  }

  // Type-ahead finds the next row whose title begins with the letters just typed.
  type(key, at) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => (this.typed = ""), TYPING_MS);
    this.typed += key.toLowerCase();
    const from = this.typed.length === 1 ? at + 1 : Math.max(0, at);
    const order = [...this.visible.keys()].map((index) => (from + index) % this.visible.length);
    const found = order.find((index) => this.state.spans.get(this.visible[index].path).title.toLowerCase().startsWith(this.typed));
    if (found != null) this.move(found);
  }
}
