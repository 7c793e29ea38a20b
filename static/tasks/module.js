// The form for a plain module, under the editor: fetched when one is recognised, and sent to have the task written from it.
import { say } from "../js/lib/say.js";

// Whether `after` is another text than `before` rather than an edit of it: less than half of it was left at its begin and its end.
export function replaced(before, after) {
  const least = Math.min(before.length, after.length);
  let begin = 0;
  while (begin < least && before[begin] === after[begin]) begin += 1;
  let end = 0;
  while (end < least - begin && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  return begin + end < before.length / 2;
}

// `onMissing` is told which fields are empty, by name; none where the source is a task already.
export function attachModuleForm(form, panel, editor, onMissing = () => {}) {
  const place = panel.querySelector("[data-module]");
  if (!place) return { offer() {}, hide() {}, refuse: () => false };
  const token = form.elements.csrfmiddlewaretoken.value;
  let offered = "";
  let source = ""; // that the form was opened for
  let asked = 0; // how many questions were sent,
  let shown = 0; // and which of them the form on the page answers

  const named = () => [...place.querySelectorAll("input, select")].filter((field) => field.name);
  const fields = () => Object.fromEntries(named().map((field) => [field.name, field.value]));

  // While the button is held down, replacing it would lose the click.
  const released = async () => {
    while (place.querySelector("[data-write]:active")) await new Promise((done) => setTimeout(done, 20));
  };

  // Puts an answer in place; what was typed while it was on its way stays. Whether something was.
  function show(html, sent) {
    const typed = named().filter((field) => field.value !== (sent[field.name] ?? field.value));
    const focused = document.activeElement;
    const caret = place.contains(focused) && focused.matches("input") ? [focused.selectionStart, focused.selectionEnd] : null;
    const name = place.contains(focused) && focused.name;
    place.innerHTML = html;
    place.hidden = false;
    const find = (wanted) => place.querySelector(`[name="${CSS.escape(wanted)}"]`);
    for (const { name: changed, value } of typed) {
      const field = find(changed);
      if (field && (field.matches("input") || [...field.options].some((option) => option.value === value))) field.value = value;
    }
    const field = name ? find(name) : null;
    field?.focus();
    if (caret && field?.matches("input")) field.setSelectionRange(...caret);
    nameMissing();
    return typed.length > 0;
  }

  // Fields that a task needs and that are empty: the page's button names them, and leads to the first.
  const missing = () => [...place.querySelectorAll("[data-needed]")].filter((field) => !field.value.trim());
  const plain = () => !place.hidden && place.querySelector(".module")?.dataset.written === "";
  const nameMissing = () => onMissing(plain() ? missing().map((field) => field.dataset.needed) : []);

  function write() {
    const [first] = missing();
    if (first) first.focus();
    else ask({ write: "1" });
  }

  async function ask(more = {}, sent = fields()) {
    const question = ++asked;
    const body = new URLSearchParams({ source: editor.text(), ...sent, ...more });
    const answer = await fetch(place.dataset.module, { method: "POST", headers: { "X-CSRFToken": token }, body }).catch(() => null);
    if (!answer || answer.redirected || (!answer.ok && answer.status !== 422)) return say("The form could not be fetched: the server does not answer.");
    if (answer.headers.get("Content-Type").startsWith("application/json")) {
      const { source } = await answer.json();
      editor.setText(source);
      const line = source.slice(0, source.indexOf("# --- Written")).split("\n").length;
      editor.goto(line);
      return say("Task generated: review and edit it in the editor.");
    }
    const html = await answer.text();
    await released();
    if (question < shown) return; // a later question was answered first
    shown = question;
    const busy = show(html, sent);
    if (answer.status === 422 && !busy) place.querySelector('[aria-invalid="true"]')?.focus();
  }

  place.addEventListener("change", (event) => {
    event.stopPropagation(); // nothing here changes what a run costs
    if (event.target.matches("[data-reopen]")) ask();
  });
  place.addEventListener("click", (event) => {
    if (event.target.closest("[data-write]")) write();
  });
  place.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || !event.target.matches("input")) return;
    event.preventDefault();
    write();
  });
  place.addEventListener("input", nameMissing);

  return {
    // The classes with their arguments, and whether a task was written already; asks again only where they changed. What was filled in for
    // another source is not this one's: the fields of one that was pasted over it, uploaded or chosen are sent no more.
    offer(module, written) {
      const key = JSON.stringify([module, written]);
      const text = editor.text();
      const another = replaced(source, text);
      if (!offered && place.querySelector(".module")) offered = key; // a refused page came with its form filled in
      if (key !== offered || another) {
        offered = key;
        ask({}, another ? {} : fields());
      }
      source = text;
      place.hidden = false;
      nameMissing();
    },
    hide() {
      if (offered) place.replaceChildren();
      offered = "";
      place.hidden = true;
      nameMissing();
    },
    // Whether something is missing still: then its field has the focus.
    refuse() {
      const [first] = plain() ? missing() : [];
      first?.focus();
      return Boolean(first);
    },
  };
}
