// @ts-check
// A form for writing a comment. The text is kept until it has been sent, even if the page is reloaded.
import { h } from "../js/run/dom.js";
import { completeMentions } from "./mentions.js";
import { Refused } from "./store.js";

const LONGEST = 5000;
let count = 0;

const kept = {
  get: (key) => sessionStorage.getItem(`review ${key}`) ?? "",
  set: (key, text) => (text ? sessionStorage.setItem(`review ${key}`, text) : sessionStorage.removeItem(`review ${key}`)),
};

// `send(text)` throws `Refused` with a sentence. `cancel` is missing if there is nothing to go back to.
export function composer({ label, base, draft, text = "", action, send, cancel = null, extra = [] }) {
  count += 1;
  const error = h("p", { class: "field-error", role: "alert", hidden: true });
  const area = h("textarea", { id: `composer-${count}`, rows: 3, maxlength: LONGEST, required: true, placeholder: "Markdown, @name to mention someone" });
  area.value = kept.get(draft) || text;
  const button = h("button", { class: "button primary small", type: "submit", title: "Ctrl+Enter" }, action);
  const form = h(
    "form",
    { class: "composer" },
    h("label", { for: area.id, class: "visually-hidden" }, label),
    h("div", { class: "composer-text" }, area),
    error,
    h("div", { class: "composer-acts" }, button, cancel ? h("button", { type: "button", class: "button quiet small", onclick: () => leave() }, "Cancel") : null, extra),
  );
  completeMentions(area, base);
  const grow = () => {
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, 320)}px`;
  };
  const leave = () => {
    kept.set(draft, "");
    cancel();
  };
  area.addEventListener("input", () => {
    kept.set(draft, area.value === text ? "" : area.value);
    error.hidden = true;
    grow();
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    try {
      await send(area.value);
      kept.set(draft, "");
      area.value = text = "";
      grow();
    } catch (refusal) {
      if (!(refusal instanceof Refused)) throw refusal;
      error.textContent = refusal.message;
      error.hidden = false;
      area.focus();
    } finally {
      button.disabled = false;
    }
  });
  requestAnimationFrame(grow);
  return { form, area };
}
