// @ts-check
// The editor of one source. The source is checked while somebody types, and can be pasted, uploaded, dropped or taken from an example.
import { attachEditor } from "../js/lib/editor.js";
import { say } from "../js/lib/say.js";
import { counted } from "../js/lib/words.js";

const SETTLE_MS = 300; // delay after the last key press before a request is sent

/**
 * @param {SourceForm} form
 * @param {HTMLElement} panel
 * @param {{ onChecked?: (answer: CheckedSource, source: string) => void, onChange?: () => void }} [told] - `onChecked` is called with the response of
 *   /submit/check for the text in the editor.
 */
export function attachSource(form, panel, { onChecked = () => {}, onChange = () => {} } = {}) {
  const textarea = panel.querySelector("textarea");
  const verdict = panel.querySelector(".verdict");
  const { kind, check, maxBytes } = panel.dataset;
  const most = Number(maxBytes);
  const token = form.elements.csrfmiddlewaretoken.value;
  let timer = null;
  let asked = null;
  let shown = null;
  let refused = null; // why a file was refused; shown until the text changes, regardless of a check in progress
  let last = { problems: [], found: null };

  const editor = attachEditor(textarea, {
    onChange: () => {
      refused = null;
      clearTimeout(timer);
      timer = setTimeout(ask, SETTLE_MS);
      onChange();
    },
  });
  ask();

  async function ask() {
    asked?.abort();
    asked = new AbortController();
    const source = editor.text();
    if (tooLarge(source)) return show([{ place: "source", message: `the source is larger than ${most / 1024} KiB`, hint: "submit one module without data in it" }], true);
    try {
      const answer = await fetch(check, { method: "POST", signal: asked.signal, headers: { "X-CSRFToken": token }, body: new URLSearchParams({ kind, source }) });
      if (answer.redirected || !answer.ok) return show([{ place: "server", message: "this source could not be checked just now", hint: "it is checked again when you submit" }], false);
      const found = await answer.json();
      if (source !== editor.text()) return;
      show(found.problems, true, found);
      onChecked(found, source);
    } catch (error) {
      if (error.name !== "AbortError") show([{ place: "server", message: "the server does not answer", hint: "your text is kept here" }], false);
    }
  }

  function show(problems, checked, found = null) {
    last = { problems, found };
    const key = JSON.stringify([refused, problems, found !== null, found?.module, found?.written, editor.view.state.doc.lines]);
    if (key === shown) return;
    shown = key;
    if (checked) editor.showProblems(problems);
    const all = refused ? [refused, ...problems] : problems;
    verdict.replaceChildren(...(all.length ? [listed(all)] : []), ...(found && !problems.length ? [sound(found)] : []));
  }

  function sound(found) {
    const line = document.createElement("p");
    const plain = found.module && !found.written;
    const mark = document.createElement("span");
    mark.className = plain ? "plain" : "sound";
    const names = kind === "task" ? "✓ Model, get_inputs and get_init_inputs found" : "✓ ModelNew found";
    mark.textContent = plain ? `A plain module: ${found.module.join(", ")}` : names;
    const rest = document.createElement("span");
    rest.className = "faint";
    rest.textContent = `${counted(editor.view.state.doc.lines, "line")}${kind === "program" ? "; what it does is checked when you submit" : ""}`;
    line.append(mark, rest);
    return line;
  }

  function listed(problems) {
    const list = document.createElement("ol");
    list.className = "problems";
    for (const { line, column, message, hint, place: where } of problems) {
      const item = document.createElement("li");
      const place = document.createElement(line ? "button" : "span");
      place.className = "place";
      place.textContent = line ? `line ${line}` : (where ?? "source");
      if (place instanceof HTMLButtonElement) {
        place.type = "button";
        place.dataset.goto = textarea.id;
        place.dataset.line = line;
        place.dataset.column = column ?? 1;
      }
      const cause = document.createElement("span");
      cause.className = "cause";
      cause.textContent = message;
      item.append(place, cause);
      if (hint) {
        const todo = document.createElement("span");
        todo.className = "todo";
        todo.textContent = hint;
        item.append(todo);
      }
      list.append(item);
    }
    return list;
  }

  function tooLarge(source) {
    return source.length > most || new Blob([source]).size > most;
  }

  // The server would refuse it and could not show what was typed again.
  form.addEventListener("submit", (event) => {
    if (!tooLarge(editor.text())) return;
    event.preventDefault();
    ask();
    editor.view.focus();
  });

  function refuse(message, hint) {
    refused = { place: "file", message, hint };
    show(last.problems, false, last.found);
  }

  function unrefuse() {
    refused = null;
    show(last.problems, false, last.found);
  }

  async function read(file) {
    if (file.size > most) return refuse(`${file.name} has ${Math.ceil(file.size / 1024)} KiB; at most ${most / 1024} KiB are read`, "submit one Python module without data in it");
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      editor.setText(text.replaceAll("\r\n", "\n").replaceAll("\r", "\n"));
      if (refused) unrefuse(); // the text is the same as before, so no change event has cleared the refusal
      say(`${file.name} is in the editor`);
      if (kind === "task" && !form.elements.title.value) form.elements.title.value = file.name.replace(/\.py$/, "").slice(0, 140);
    } catch {
      refuse(`${file.name} is not UTF-8 text`, "upload the Python source itself");
    }
  }

  const upload = /** @type {HTMLInputElement} */ (panel.querySelector("input[type=file]"));
  upload.addEventListener("change", async () => {
    if (upload.files[0]) await read(upload.files[0]);
    upload.value = ""; // the editor's text is submitted instead
  });

  panel.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    panel.classList.add("dropping");
  });
  panel.addEventListener("dragleave", (event) => {
    if (!panel.contains(/** @type {Node | null} */ (event.relatedTarget))) panel.classList.remove("dropping");
  });
  // Must run before the editor's own handler, which would insert the file at the cursor.
  panel.addEventListener(
    "drop",
    (event) => {
      panel.classList.remove("dropping");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      event.stopPropagation();
      read(event.dataTransfer.files[0]);
    },
    true,
  );

  panel.querySelector("[data-clear]")?.addEventListener("click", () => {
    editor.setText("");
    editor.view.focus();
    say("The editor is empty; undo restores what was there");
  });

  const picker = /** @type {HTMLSelectElement | null} */ (panel.querySelector("[data-example]"));
  picker?.addEventListener("change", async () => {
    if (!picker.value) return;
    const answer = await fetch(picker.dataset.base.replace("SLUG", picker.value)).catch(() => null);
    if (!answer?.ok) return refuse("this example could not be read", "try again, or paste it");
    editor.setText(await answer.text());
    form.elements.title.value = ""; // left empty, so the server uses the title of the example, or the docstring if the text is edited
    say(`Example ${picker.value} is in the editor; undo restores what was there`);
    picker.value = "";
    editor.view.focus();
  });

  return editor;
}
