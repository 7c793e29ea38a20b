// @ts-check
// Pause, resume, cancel, and notes for the agents.
import { say } from "../lib/say.js";

export function wireSteering({ root, part, controlUrl }) {
  root.addEventListener("click", (event) => {
    const control = event.target.closest("button[data-action]");
    if (control) ask(control, controlUrl, part("control-error"));
  });
  const note = part("note");
  note?.addEventListener("submit", (event) => {
    event.preventDefault();
    send(note, part("control-error"));
  });
  note?.elements.text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    note.requestSubmit();
  });
}

async function post(url, body, headers = {}) {
  const answer = await fetch(url, { method: "POST", body, headers: { accept: "application/json", ...headers }, credentials: "same-origin" });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`);
}

async function ask(button, url, problem) {
  const { action } = button.dataset;
  if (action === "cancel" && !button.dataset.sure) {
    button.dataset.sure = "1";
    const before = button.textContent;
    button.textContent = "Really cancel?";
    setTimeout(() => {
      delete button.dataset.sure;
      button.textContent = before;
    }, 4000);
    return;
  }
  button.disabled = true;
  const body = new FormData();
  body.set("action", action);
  try {
    await post(url, body, { "X-CSRFToken": JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"] });
  } catch (error) {
    problem.textContent = error.message;
    say(error.message);
    button.disabled = false;
  }
}

async function send(form, problem) {
  const button = form.querySelector("button");
  button.disabled = true;
  problem.textContent = "";
  try {
    await post(form.action, new FormData(form));
    form.elements.text.value = "";
    say("The note is on its way to the next prompt.");
  } catch (error) {
    problem.textContent = error.message;
    say(error.message);
  }
  button.disabled = false;
}
