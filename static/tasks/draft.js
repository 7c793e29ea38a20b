// @ts-check
// Keeps the typed text in this browser until it is submitted, across errors, reloads and sign-outs. The key includes the person, so that nobody else
// who signs in here can see it.
import { ago } from "../js/lib/ago.js";

const SAVE_MS = 400;
const KEPT_DAYS = 14;
const NEVER = new Set(["csrfmiddlewaretoken", "draft", "task_sha", "team"]);

const storage = {
  get(key) {
    try {
      return JSON.parse(localStorage.getItem(key));
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      // Storage is full or blocked, so the draft is not kept.
    }
  },
  drop(key) {
    try {
      localStorage.removeItem(key);
    } catch {
      // No draft was kept.
    }
  },
};

// In this cookie, the server names the last draft that became a run.
const submitted = () => /(?:^|; )submitted_draft=([\w-]+)/.exec(document.cookie)?.[1];

// `editors` is keyed by field name. Returns `save`, which has to be called after every change.
export function keepDraft(form, editors) {
  const key = `draft:${form.dataset.draft}`;
  const notice = form.querySelector(".draft-notice");
  let draft = storage.get(key);
  if (draft && (draft.id === submitted() || Date.now() - draft.at > KEPT_DAYS * 86_400_000)) {
    storage.drop(key);
    draft = null;
  }
  const opened = read();
  // A page that arrived with content (an example, an old run, a refused form) is not overwritten.
  if (draft && form.dataset.fresh && JSON.stringify(draft.fields) !== JSON.stringify(opened)) {
    write(draft.fields);
    notice.querySelector("[data-draft-age]").textContent = ago(new Date(draft.at));
    notice.hidden = false;
  }
  form.elements.draft.value = draft?.id ?? identity();

  notice.querySelector("[data-draft-drop]").addEventListener("click", () => {
    storage.drop(key);
    write(opened);
    notice.hidden = true;
    form.elements.draft.value = identity();
    clearTimeout(timer);
  });

  function read() {
    const fields = {};
    for (const field of form.elements) {
      if (!field.name || NEVER.has(field.name) || field.type === "file" || field.type === "hidden" || field.closest("[data-module]")) continue;
      if (field.type === "radio") {
        if (field.checked) fields[field.name] = field.value;
      } else fields[field.name] = field.type === "checkbox" ? field.checked : field.value;
    }
    for (const [name, editor] of Object.entries(editors)) fields[name] = editor.text();
    return fields;
  }

  function write(fields) {
    for (const [name, value] of Object.entries(fields)) {
      if (editors[name]) {
        if (editors[name].text() !== value) editors[name].setText(value);
        continue;
      }
      const field = form.elements[name];
      if (!field) continue;
      if (field instanceof RadioNodeList) {
        for (const one of field) if (!one.disabled) one.checked = one.value === value;
      } else if (field.type === "checkbox") field.checked = value;
      else if (!(field instanceof HTMLSelectElement) || [...field.options].some((option) => option.value === value)) field.value = value;
    }
    form.dispatchEvent(new Event("change", { bubbles: true }));
  }

  let timer = null;
  function save() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      const fields = read();
      if (JSON.stringify(fields) !== JSON.stringify(opened)) storage.set(key, { id: form.elements.draft.value, at: Date.now(), fields });
    }, SAVE_MS);
  }
  form.addEventListener("input", save);
  form.addEventListener("submit", () => {
    clearTimeout(timer);
    storage.set(key, { id: form.elements.draft.value, at: Date.now(), fields: read() });
  });
  return save;
}

const identity = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
