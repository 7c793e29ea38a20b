// @ts-check
// The submit and verify pages: their editors with live feedback while somebody types, the draft, and the budget.
import { shortcut } from "../js/lib/keys.js";
import { keepDraft } from "./draft.js";
import { chooseAmount, showLimits, submitByKey } from "./limits.js";
import { attachModuleForm } from "./module.js";
import { attachSource } from "./source.js";
import { attachTryOut } from "./tryout.js";

const form = /** @type {SourceForm} */ (document.querySelector("form.submit"));
const button = form.querySelector(".submit-button");
const ready = button.textContent;
const editors = {};
let save = () => {};
let tryAgain = () => {};

for (const panel of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll(".editor"))) {
  /** @type {ReturnType<typeof attachTryOut>} */
  let tryOut = { ask() {}, clear() {} };
  let moduleForm = null;
  let last = null; // the source that passed the check
  const editor = attachSource(form, panel, {
    onChange() {
      last = null;
      tryOut.clear();
      save();
    },
    onChecked(found, source) {
      if (found.module) moduleForm.offer(found.arguments, found.written);
      else moduleForm.hide();
      if (panel.dataset.kind === "task" && form.elements.task_sha) sha(found.sha ?? "");
      if (!found.ok) return;
      last = source;
      tryOut.ask(source);
    },
  });
  moduleForm = attachModuleForm(form, panel, editor, (names) => {
    if (panel.dataset.kind === "task") button.textContent = names.length ? `Missing: ${names.join(", ")}` : ready;
  });
  form.addEventListener("submit", (event) => {
    if (moduleForm.refuse()) event.preventDefault();
  });
  tryOut = attachTryOut(form, panel, editor);
  if (panel.dataset.kind === "task") tryAgain = () => last !== null && tryOut.ask(last);
  editors[panel.querySelector("textarea").name] = editor;
}

function sha(value) {
  if (form.elements.task_sha.value === value) return;
  form.elements.task_sha.value = value;
  form.dispatchEvent(new Event("change"));
}

if (form.dataset.draft) save = keepDraft(form, editors);

// The settings of the try-out have changed.
form.addEventListener("change", () => tryAgain());

chooseAmount(form);
showLimits(form);
submitByKey(form);
shortcut("Ctrl+Enter", "submit, also while typing", () => {});
