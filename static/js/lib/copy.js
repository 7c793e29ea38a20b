// @ts-check
// <button data-copy="text"> or <button data-copy-from="#selector">: copies the text and confirms it on the button and to screen readers.
import { say } from "./say.js";

export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  // The clipboard API is not available over plain HTTP from another host.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("copy refused");
}

document.addEventListener("click", async (event) => {
  const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-copy], [data-copy-from]"));
  if (!button) return;
  const source = button.dataset.copyFrom && /** @type {HTMLElement & { value?: string }} */ (document.querySelector(button.dataset.copyFrom));
  const label = button.querySelector("[data-copy-label]") ?? button;
  const before = (button.dataset.label ??= label.textContent);
  try {
    await copyText(source ? (source.value ?? source.textContent) : button.dataset.copy);
    label.textContent = "Copied";
    say("Copied");
  } catch {
    label.textContent = "Select and copy";
    if (source) getSelection().selectAllChildren(source);
  }
  setTimeout(() => (label.textContent = before), 1500);
});
