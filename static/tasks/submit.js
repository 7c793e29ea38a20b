// The editors of the submit and verify pages: check while typing, examples, upload, drop.
import { attachEditor } from "../js/lib/editor.js";
import { shortcut } from "../js/lib/keys.js";
import { say } from "../js/lib/say.js";

const form = document.querySelector("form.submit");
const token = form.elements.csrfmiddlewaretoken.value;

for (const panel of form.querySelectorAll(".editor")) wire(panel);

function wire(panel) {
  const textarea = panel.querySelector("textarea");
  const verdict = panel.querySelector(".verdict");
  const { kind, check, maxBytes } = panel.dataset;
  const most = Number(maxBytes);
  let timer = null;
  let asked = null;
  let shown = null;

  const editor = attachEditor(textarea, {
    onChange: () => {
      clearTimeout(timer);
      timer = setTimeout(ask, 300);
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
      const { problems } = await answer.json();
      if (source === editor.text()) show(problems, true);
    } catch (error) {
      if (error.name !== "AbortError") show([{ place: "server", message: "the server does not answer", hint: "what you typed is kept here" }], false);
    }
  }

  function show(problems, checked) {
    const key = JSON.stringify([problems, editor.view.state.doc.lines]);
    if (key === shown) return;
    shown = key;
    if (checked) editor.showProblems(problems);
    verdict.replaceChildren();
    if (!problems.length) {
      const line = document.createElement("p");
      const sound = document.createElement("span");
      sound.className = "sound";
      sound.textContent = kind === "task" ? "✓ Model, get_inputs and get_init_inputs found" : "✓ ModelNew found";
      const rest = document.createElement("span");
      rest.className = "faint";
      rest.textContent = `${editor.view.state.doc.lines} lines; what it does is checked when you submit`;
      line.append(sound, rest);
      verdict.append(line);
      return;
    }
    const list = document.createElement("ol");
    list.className = "problems";
    for (const { line, column, message, hint, place: where } of problems) {
      const item = document.createElement("li");
      const place = document.createElement(line ? "button" : "span");
      place.className = "place";
      place.textContent = line ? `line ${line}` : (where ?? "source");
      if (line) {
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
    verdict.append(list);
  }

  function tooLarge(source) {
    return source.length > most || new Blob([source]).size > most;
  }

  // The server would refuse it without being able to show what was typed.
  form.addEventListener("submit", (event) => {
    if (!tooLarge(editor.text())) return;
    event.preventDefault();
    ask();
    editor.view.focus();
  });

  const refuse = (message, hint) => show([{ place: "file", message, hint }], false);

  async function read(file) {
    if (file.size > most) return refuse(`${file.name} has ${Math.ceil(file.size / 1024)} KiB; at most ${most / 1024} KiB are read`, "submit one Python module without data in it");
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      editor.setText(text.replaceAll("\r\n", "\n").replaceAll("\r", "\n"));
      say(`${file.name} is in the editor`);
      if (kind === "task" && !form.elements.title.value) form.elements.title.value = file.name.replace(/\.py$/, "").slice(0, 140);
    } catch {
      refuse(`${file.name} is not UTF-8 text`, "upload the Python source itself");
    }
  }

  const upload = panel.querySelector("input[type=file]");
  upload.addEventListener("change", async () => {
    if (upload.files[0]) await read(upload.files[0]);
    upload.value = ""; // the editor's text is what is sent
  });

  panel.addEventListener("dragover", (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    panel.classList.add("dropping");
  });
  panel.addEventListener("dragleave", (event) => {
    if (!panel.contains(event.relatedTarget)) panel.classList.remove("dropping");
  });
  // Before the editor's own handler, which would insert the file at the cursor.
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

  const picker = panel.querySelector("[data-example]");
  picker?.addEventListener("change", async () => {
    if (!picker.value) return;
    const answer = await fetch(picker.dataset.base.replace("SLUG", picker.value)).catch(() => null);
    if (!answer?.ok) return refuse("this example could not be read", "try again, or paste it");
    editor.setText(await answer.text());
    form.elements.title.value = picker.value.replaceAll("_", " ");
    say(`Example ${picker.value} is in the editor; undo brings back what was there`);
    picker.value = "";
    editor.view.focus();
  });
}

for (const [field, place] of [
  ["candidates", "[data-cost-candidates]"],
  ["verifier_minutes", "[data-cost-minutes]"],
]) {
  form.elements[field]?.addEventListener("input", (event) => (form.querySelector(place).textContent = event.target.value || "?"));
}

// What models may cost: nothing where only the compiler plays, else up to the limits that are set.
const costs = form.querySelector("[data-cost-models]");
if (costs) {
  const built = new Set(["", "built-in"]);
  const show = () => {
    const value = (name) => form.elements[name]?.value ?? "";
    const search = form.elements.workflow?.value;
    const llm = value("llm");
    const asked = ["planner", "coder", "judge"].some((role) => !built.has(value(role) || llm)) && !["descend", "random"].includes(search);
    const limits = [value("calls") && `${value("calls")} model calls`, value("tokens") && `${value("tokens")} tokens`, value("dollars") && `$${value("dollars")}`].filter(Boolean);
    costs.textContent = !asked ? "no model calls, $0.00" : limits.length ? `at most ${limits.join(", ")}` : "model calls without a limit of their own";
  };
  form.addEventListener("input", show);
  show();
}

// Ctrl+Enter submits from anywhere, the editor included.
addEventListener(
  "keydown",
  (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      form.requestSubmit(form.querySelector(".submit-button"));
    }
  },
  true,
);
shortcut("Ctrl+Enter", "submit, also while typing", () => {});
