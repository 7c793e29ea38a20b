// @ts-check
// Copies an entry as text, Markdown, JSON or a link. One menu serves all entries. It is in the top layer, so no pane clips it.
import { h } from "./dom.js";
import { write } from "./selection.js";
import { copyText } from "../lib/copy.js";
import { say } from "../lib/say.js";

const CHOICES = [
  ["text", "Copy text"],
  ["markdown", "Copy as Markdown"],
  ["json", "Copy as JSON"],
  ["link", "Copy link"],
];

export class CopyMenu {
  // `source(id)` returns {item, text(), events()} for an entry.
  constructor(source) {
    this.source = source;
    this.menu = h("div", { class: "copy-menu", role: "menu", popover: "auto", "aria-label": "Copy this entry" }, CHOICES.map(([name, label]) => h("button", { type: "button", role: "menuitem", "data-as": name }, label)));
    document.body.append(this.menu);
    this.menu.addEventListener("click", (event) => this.chosen(event.target.closest("[data-as]")?.dataset.as));
    this.menu.addEventListener("keydown", (event) => this.pressed(event));
    this.menu.addEventListener("toggle", (event) => this.opener?.setAttribute("aria-expanded", String(event.newState === "open")));
  }

  open(button, id) {
    this.opener = button;
    this.id = id;
    this.menu.showPopover();
    const at = button.getBoundingClientRect();
    const { width, height } = this.menu.getBoundingClientRect();
    this.menu.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
    this.menu.style.top = `${at.bottom + height + 8 > innerHeight ? at.top - height - 4 : at.bottom + 4}px`;
    this.menu.firstElementChild.focus();
  }

  pressed(event) {
    const items = [...this.menu.children];
    const to = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Home") items[0].focus();
    else if (event.key === "End") items.at(-1).focus();
    else if (to) items[(items.indexOf(document.activeElement) + to + items.length) % items.length].focus();
    else return;
    event.preventDefault();
  }

  async chosen(name) {
    if (!name) return;
    const { opener } = this;
    this.menu.hidePopover();
    opener?.focus();
    await this.copy(this.id, name, opener);
  }

  async copy(id, name, opener = null) {
    const label = opener?.querySelector("[data-copy-label]");
    let said = "Copied";
    try {
      await copyText(await this.content(id, name));
    } catch (error) {
      said = `It could not be copied: ${error.message}`;
    }
    say(said);
    if (!label) return;
    label.textContent = said === "Copied" ? said : "Not copied";
    setTimeout(() => (label.textContent = "Copy"), 1500);
  }

  async content(id, name) {
    const { item, who, text, events } = this.source(id);
    if (name === "link") return new URL(write({ event: item.seq }), location.href).href;
    if (name === "json") return JSON.stringify(await events(), null, 2);
    const words = await text();
    if (name === "text") return words;
    const where = new URL(write({ event: item.seq }), location.href).href;
    return `**${who}**${item.span ? ` (${item.span})` : ""}, [event ${item.seq}](${where}), ${item.at.slice(0, 19).replace("T", " ")} UTC\n\n${words.trim()}\n`;
  }
}
