// @ts-check
// The toolbar above a timeline: search, zoom, row height and, in a comparison, the moment at which the two timelines are aligned.
import { counted } from "../lib/words.js";
import { h, setText } from "../run/dom.js";

const STEP = 1.6;
const HEIGHT_NAMES = { low: "Low rows", normal: "Normal rows", high: "High rows" };

export class Toolbar {
  constructor(box) {
    this.box = box;
    const button = (text, label, action) => h("button", { type: "button", class: "button quiet small icon", title: label, "aria-label": label, onclick: action }, text);
    this.search = h("input", { type: "search", placeholder: "Find a name", "aria-label": "Find events by name", spellcheck: "false", autocomplete: "off" });
    this.expression = h("button", { type: "button", class: "button quiet small icon mono", "aria-pressed": "false", title: "read the search as a regular expression", "aria-label": "Regular expression", onclick: () => this.toggleExpression() }, ".*");
    this.found = h("span", { class: "found faint", role: "status" });
    this.tracks = h("input", { type: "search", class: "track-filter", placeholder: "Filter tracks", "aria-label": "Show only tracks whose name contains", spellcheck: "false", autocomplete: "off" });
    this.hidden = h("button", { type: "button", class: "button quiet small", hidden: true, title: "Show every track again", onclick: () => box.showAllTracks() });
    this.heights = h("select", { "aria-label": "Row height" }, Object.entries(HEIGHT_NAMES).map(([value, text]) => h("option", { value, selected: value === box.rowHeight }, text)));
    this.anchor = h("select", { "aria-label": "Align both by" });
    this.anchorLabel = h("label", { class: "anchor-choice", hidden: true }, "Aligned by ", this.anchor);
    this.element = h(
      "div",
      { class: "timeline-tools", role: "toolbar", "aria-label": "Timeline" },
      this.search,
      this.expression,
      button("‹", "Previous match (N, shift-Enter)", () => box.nextMatch(-1)),
      button("›", "Next match (n, Enter)", () => box.nextMatch(1)),
      this.found,
      h("span", { class: "push" }),
      this.hidden,
      this.tracks,
      this.anchorLabel,
      this.heights,
      button("−", "Zoom out (S, ctrl-wheel)", () => box.zoom(STEP)),
      button("+", "Zoom in (W, ctrl-wheel)", () => box.zoom(1 / STEP)),
      h("button", { type: "button", class: "button quiet small", title: "The whole span (0)", onclick: () => box.fit() }, "Fit"),
    );
    this.search.addEventListener("input", () => box.search(this.search.value, this.isExpression));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") box.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        this.search.value = "";
        box.search("", this.isExpression);
        box.active.canvas.focus();
        event.preventDefault();
      }
    });
    this.tracks.addEventListener("input", () => box.filterTracks(this.tracks.value));
    this.heights.addEventListener("change", () => box.setRowHeight(this.heights.value));
    this.anchor.addEventListener("change", () => box.align(Number(this.anchor.value)));
  }

  get isExpression() {
    return this.expression.getAttribute("aria-pressed") === "true";
  }

  toggleExpression(on = !this.isExpression) {
    this.expression.setAttribute("aria-pressed", String(on));
    this.box.search(this.search.value, on);
  }

  offer(anchors, chosen) {
    this.anchor.replaceChildren(...anchors.map(({ label }, index) => h("option", { value: String(index), selected: index === chosen }, label)));
    this.anchorLabel.hidden = false;
  }

  offerHidden(number) {
    this.hidden.hidden = !number;
    setText(this.hidden, `${counted(number, "track")} hidden: show`);
  }

  say(text, bad = false) {
    setText(this.found, text);
    this.search.setAttribute("aria-invalid", String(bad));
  }
}
