// @ts-check
// Completes @names in a textarea with a list below it. A name is chosen with the arrow keys and Enter or Tab, or by a click.
import { h } from "../js/run/dom.js";

const NAME = /(?:^|[^\w@./-])@([\w.+-]*)$/;
let count = 0;

export function completeMentions(area, base) {
  count += 1;
  const list = h("ul", { class: "mention-list", role: "listbox", id: `mentions-${count}`, "aria-label": "People", hidden: true });
  let chosen = 0;
  let asked = 0;
  area.setAttribute("role", "combobox");
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", list.id);
  area.setAttribute("aria-expanded", "false");
  area.after(list);

  const typed = () => NAME.exec(area.value.slice(0, area.selectionStart))?.[1] ?? null;
  const close = () => {
    asked += 1;
    list.hidden = true;
    area.setAttribute("aria-expanded", "false");
    area.removeAttribute("aria-activedescendant");
  };
  const show = () => {
    [...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(index === chosen)));
    area.setAttribute("aria-activedescendant", list.children[chosen].id);
  };
  const take = (name) => {
    const before = area.value.slice(0, area.selectionStart).replace(/[\w.+-]*$/, "");
    area.setRangeText(`${name} `, before.length, area.selectionStart, "end");
    close();
    area.focus();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  };

  area.addEventListener("input", async () => {
    const wanted = typed();
    if (wanted == null) return close();
    const mine = (asked += 1);
    let people = [];
    try {
      const answer = await fetch(`${base}people?q=${encodeURIComponent(wanted)}`, { credentials: "same-origin" });
      if (answer.ok) people = (await answer.json()).people;
    } catch {
      // a name can still be typed without the list
    }
    if (mine !== asked) return;
    if (!people.length || (people.length === 1 && people[0].toLowerCase() === wanted.toLowerCase())) return close();
    chosen = 0;
    list.replaceChildren(...people.map((name, index) => h("li", { role: "option", id: `${list.id}-${index}`, "data-name": name }, `@${name}`)));
    list.hidden = false;
    area.setAttribute("aria-expanded", "true");
    show();
  });
  area.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      chosen = (chosen + step + list.children.length) % list.children.length;
      show();
    } else if ((event.key === "Enter" && !event.ctrlKey && !event.metaKey) || event.key === "Tab") take(list.children[chosen].dataset.name);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  list.addEventListener("mousedown", (event) => {
    event.preventDefault(); // the caret stays in the text
    const item = event.target.closest("[data-name]");
    if (item) take(item.dataset.name);
  });
  area.addEventListener("blur", close);
}
