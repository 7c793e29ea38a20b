// @ts-check
// Shows the text of a message, with fenced code as code and everything else as written. Long texts are folded. For very long ones, the page has only
// a preview and the counts, and requests the rest from the server.
import { codeBlock } from "./colours.js";
import { h } from "./dom.js";
import { size } from "./format.js";
import { counted } from "../lib/words.js";

const LONG_LINES = 14;
const LONG_CHARACTERS = 1400;
const REPLY_LINES = 3;

const whole = (number) => number.toLocaleString("en");

// A model's own words, unchanged. The agent's conclusions follow below.
const isAnswer = (item) => Boolean(item.answer) && item.newlines + 1 > REPLY_LINES;

export const folds = (item) => item.done && (!item.whole || item.characters > LONG_CHARACTERS || item.newlines + 1 > LONG_LINES || isAnswer(item));

// The server's counts in words.
export function extent(item) {
  if (item.artefact && !item.characters) return size(item.artefact.bytes ?? 0);
  return `${counted(item.newlines + 1, "line")}, ${counted(item.characters, "character")}`;
}

export function textBlocks(text) {
  const parts = text.split(/^```([\w+-]*)[^\n]*\n?/m); // text, language, code, "", text, ...
  const blocks = [];
  for (let index = 0; index < parts.length; index += 2) {
    const part = parts[index].replace(/\n$/, "");
    const code = (index / 2) % 2 === 1;
    if (code && part) blocks.push(codeBlock(part, parts[index - 1] ?? ""));
    else if (part.trim()) blocks.push(h("p", { class: "prose" }, inline(part.trim())));
  }
  return blocks;
}

const inline = (text) => text.split(/`([^`\n]+)`/).map((part, index) => (index % 2 ? h("code", null, part) : part));

// `reading` is null if the text is folded. Otherwise it is {text, next, loading, error}, the part that the reader has opened.
export function messageBody(item, reading) {
  const body = h("div", { class: "message-text" });
  if (!item.done) {
    body.classList.add("streaming");
    body.append(document.createTextNode(item.text));
    return [body];
  }
  body.append(...textBlocks(reading?.text ?? item.text));
  if (!folds(item)) return [body];
  body.classList.toggle("folded", !reading);
  body.classList.toggle("answer", isAnswer(item));
  const controls = [];
  if (reading?.next != null) controls.push(more("data-more-next", item, `Show the next part (${whole(reading.next)} of ${counted(reading.characters, "character")} shown)`));
  if (reading?.loading) controls.push(h("span", { class: "small faint" }, "loading …"));
  if (reading?.error) controls.push(h("span", { class: "small" }, reading.error));
  controls.push(more("data-more", item, reading ? "Show less" : `${item.answer ? "Show the whole reply" : "Show all"} (${extent(item)})`, Boolean(reading)));
  return [body, h("p", { class: "more-line" }, controls)];
}

function more(name, item, text, open = null) {
  return h("button", { type: "button", class: "more", [name]: item.id, "aria-expanded": open == null ? null : String(open) }, text);
}
