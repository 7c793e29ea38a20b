// @ts-check
// The form for a plain module, below the editor. It is fetched when a plain module is recognised, and sent to generate the task.
import { say } from "../js/lib/say.js";

// Returns whether `after` is a new text rather than an edit of `before`, which means that less than half of `before` remains at the start and end.
export function replaced(before, after) {
  const least = Math.min(before.length, after.length);
  let begin = 0;
  while (begin < least && before[begin] === after[begin]) begin += 1;
  let end = 0;
  while (end < least - begin && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  return begin + end < before.length / 2;
}

/** @typedef {HTMLInputElement | HTMLSelectElement} Field */

/**
 * @param {SourceForm} form
 * @param {HTMLElement} panel
 * @param {SourceEditor} editor
 * @param {(names: string[]) => void} [onMissing] - called with the names of the empty fields, or with none if the source is already a task
 */
export function attachModuleForm(form, panel, editor, onMissing = () => {}) {
  const place = /** @type {HTMLElement | null} */ (panel.querySelector("[data-module]"));
  if (!place) return { offer() {}, hide() {}, refuse: () => false };
  const token = form.elements.csrfmiddlewaretoken.value;
  let offered = "";
  let source = ""; // the source for which the form was opened
  let asked = 0; // number of requests sent
  let shown = 0; // number of the request whose response is the form on the page

  const named = () => [.../** @type {NodeListOf<Field>} */ (place.querySelectorAll("input, select"))].filter((field) => field.name);
  const fields = () => Object.fromEntries(named().map((field) => [field.name, field.value]));

  // Waits while the button is held down, because replacing it would lose the click.
  const released = async () => {
    while (place.querySelector("[data-write]:active")) await new Promise((done) => setTimeout(done, 20));
  };

  // Shows a response but keeps text typed in the meantime. Returns whether there was any.
  function show(html, sent) {
    const typed = named().filter((field) => field.value !== (sent[field.name] ?? field.value));
    const focused = /** @type {HTMLInputElement | null} */ (document.activeElement);
    const caret = place.contains(focused) && focused.matches("input") ? [focused.selectionStart, focused.selectionEnd] : null;
    const name = place.contains(focused) && focused.name;
    place.innerHTML = html;
    place.hidden = false;
    /** @returns {Field | null} */
    const find = (wanted) => place.querySelector(`[name="${CSS.escape(wanted)}"]`);
    for (const { name: changed, value } of typed) {
      const field = find(changed);
      if (field && (field instanceof HTMLInputElement || [...field.options].some((option) => option.value === value))) field.value = value;
    }
    const field = name ? find(name) : null;
    field?.focus();
    if (caret && field instanceof HTMLInputElement) field.setSelectionRange(caret[0], caret[1]);
    nameMissing();
    return typed.length > 0;
  }

  // Empty fields that a task needs. The page's button names them and leads to the first one.
  const missing = () => [.../** @type {NodeListOf<Field>} */ (place.querySelectorAll("[data-needed]"))].filter((field) => !field.value.trim());
  const plain = () => !place.hidden && /** @type {HTMLElement | null} */ (place.querySelector(".module"))?.dataset.written === "";
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
    if (question < shown) return; // a later request has already been answered
    shown = question;
    const busy = show(html, sent);
    if (answer.status === 422 && !busy) /** @type {HTMLElement | null} */ (place.querySelector('[aria-invalid="true"]'))?.focus();
  }

  place.addEventListener("change", (event) => {
    event.stopPropagation(); // nothing in this form affects the cost of a run
    if (/** @type {Element} */ (event.target).matches("[data-reopen]")) ask();
  });
  place.addEventListener("click", (event) => {
    if (/** @type {Element} */ (event.target).closest("[data-write]")) write();
  });
  place.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || !/** @type {Element} */ (event.target).matches("input")) return;
    event.preventDefault();
    write();
  });
  place.addEventListener("input", nameMissing);

  return {
    // Shows the form for the classes in `module`. `written` says whether a task has already been generated. The form is requested again only if
    // either has changed. If the source was replaced by pasting, uploading or choosing another, the old field values are not sent.
    offer(module, written) {
      const key = JSON.stringify([module, written]);
      const text = editor.text();
      const another = replaced(source, text);
      if (!offered && place.querySelector(".module")) offered = key; // after a refusal, the page arrives with its form filled in
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
    // Returns whether something is still missing, and if so focuses its field.
    refuse() {
      const [first] = plain() ? missing() : [];
      first?.focus();
      return Boolean(first);
    },
  };
}
