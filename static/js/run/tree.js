// The tree of spans: what the run is made of, how each part ended, and how long it took.
import { h, setText } from "./dom.js";
import { seconds, shortStatus, statusOf, times } from "./format.js";
import { write } from "./selection.js";
import { clock } from "../lib/ago.js";

export class Tree {
  constructor(box, now) {
    this.box = box;
    this.now = now; // () => server time in ms
    this.rows = new Map(); // path -> elements
    this.list = h("ul", { class: "tree" });
  }

  draw(state, selection) {
    if (!this.list.isConnected && state.roots.length) this.box.replaceChildren(this.list);
    this.state = state;
    if (!state.roots.length && state.run.state === "finished") setText(this.box.firstElementChild, "This run ended before its first step.");
    for (const path of state.roots) this.place(path, this.list, 0);
    for (const [path, row] of this.rows) this.update(path, row, selection);
  }

  place(path, list, depth) {
    const span = this.state.spans.get(path);
    let row = this.rows.get(path);
    if (!row) {
      row = this.build(path, depth);
      this.rows.set(path, row);
      list.append(row.item);
    }
    for (const child of span.children) this.place(child, row.children, depth + 1);
  }

  build(path, depth) {
    const children = h("ul", null);
    const toggle = h("button", { type: "button", class: "twist", "aria-expanded": "true", "aria-label": "Fold", onclick: () => this.fold(path) }, "▾");
    const sign = h("span", { class: "sign", "aria-hidden": "true" });
    const title = h("span", { class: "title" });
    const result = h("span", { class: "result" });
    const time = h("span", { class: "time" });
    const anchor = h("a", { class: "span-row" }, sign, title, result, time);
    const line = h("div", { class: `line depth-${Math.min(depth, 4)}` }, toggle, anchor);
    return { item: h("li", null, line, children), children, toggle, sign, title, result, time, anchor, line };
  }

  fold(path) {
    const row = this.rows.get(path);
    row.children.hidden = !row.children.hidden;
    row.toggle.setAttribute("aria-expanded", String(!row.children.hidden));
    row.toggle.setAttribute("aria-label", row.children.hidden ? "Unfold" : "Fold");
    row.toggle.textContent = row.children.hidden ? "▸" : "▾";
  }

  update(path, row, selection) {
    const span = this.state.spans.get(path);
    const number = span.candidates.at(-1) ?? null;
    const candidate = number == null ? null : this.state.candidates.get(number);
    const status = candidate?.status || (span.status === "open" && this.state.run.state === "finished" ? "ended" : span.status);
    const [tone, sign, word] = statusOf(status);
    row.toggle.classList.toggle("none", span.children.length === 0);
    row.sign.className = `sign ${tone}`;
    setText(row.sign, sign);
    setText(row.title, span.title);
    setText(row.result, !candidate?.status ? "" : candidate.status === "passed" && candidate.speedup ? `${times(candidate.speedup.ratio)}×` : shortStatus(status));
    row.result.className = `result ${candidate?.status === "passed" ? (candidate.faster ? "ok" : "") : tone}`;
    row.anchor.setAttribute("href", number == null ? write({ span: path }) : write({ candidate: number, span: path }));
    row.anchor.setAttribute("title", [span.title, word, span.summary].filter(Boolean).join(": "));
    const selected = selection.span === path || (selection.candidate != null && span.candidates.includes(selection.candidate));
    if (selected) row.anchor.setAttribute("aria-current", "true");
    else row.anchor.removeAttribute("aria-current");
    this.tickRow(span, row);
  }

  tickRow(span, row) {
    const open = span.closedAt == null && span.openedAt && this.state.run.state !== "finished";
    const spent = span.seconds ?? (open ? Math.max(0, (this.now() - Date.parse(span.openedAt)) / 1000) : null);
    setText(row.time, spent == null ? "" : spent >= 60 ? clock(spent) : open ? `${Math.floor(spent)} s` : seconds(spent));
  }

  tick() {
    for (const [path, row] of this.rows) if (this.state.spans.get(path).closedAt == null) this.tickRow(this.state.spans.get(path), row);
  }
}
