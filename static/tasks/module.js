// The form for a plain module, under the editor: fetched when one is recognised, and sent to have the task written from it.
import { say } from "../js/lib/say.js";

export function attachModuleForm(form, panel, editor) {
  const place = panel.querySelector("[data-module]");
  if (!place) return { offer() {}, hide() {} };
  const token = form.elements.csrfmiddlewaretoken.value;
  let offered = "";

  const fields = () => Object.fromEntries([...place.querySelectorAll("input, select")].filter((field) => field.name).map((field) => [field.name, field.value]));

  async function ask(more = {}) {
    const body = new URLSearchParams({ source: editor.text(), ...fields(), ...more });
    const answer = await fetch(place.dataset.module, { method: "POST", headers: { "X-CSRFToken": token }, body }).catch(() => null);
    if (!answer || answer.redirected || (!answer.ok && answer.status !== 422)) return say("The form could not be fetched: the server does not answer.");
    if (answer.headers.get("Content-Type").startsWith("application/json")) {
      const { source } = await answer.json();
      editor.setText(source);
      const line = source.slice(0, source.indexOf("# --- Written")).split("\n").length;
      editor.goto(line);
      return say("The task is written: read it in the editor, and change what you like.");
    }
    const focused = document.activeElement?.name;
    place.innerHTML = await answer.text();
    place.hidden = false;
    if (answer.status === 422) place.querySelector('[aria-invalid="true"]')?.focus();
    else if (focused) place.querySelector(`[name="${CSS.escape(focused)}"]`)?.focus();
  }

  place.addEventListener("change", (event) => {
    event.stopPropagation(); // nothing here changes what a run costs
    if (event.target.matches("[data-reopen]")) ask();
  });
  place.addEventListener("click", (event) => {
    if (event.target.closest("[data-write]")) ask({ write: "1" });
  });
  place.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || !event.target.matches("input")) return;
    event.preventDefault();
    ask({ write: "1" });
  });

  return {
    // The classes and whether a task was written already; asks again only where they changed.
    offer(module, written) {
      const key = JSON.stringify([module, written]);
      if (key !== offered) {
        offered = key;
        ask();
      }
      place.hidden = false;
    },
    hide() {
      offered = "";
      place.hidden = true;
    },
  };
}
