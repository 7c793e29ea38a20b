// @ts-check
// Shows an exchange with a model as one line in the conversation, which expands to its figures, prompts and reply.
import { counted } from "../lib/words.js";
import { codeBlock } from "./colours.js";
import { h } from "./dom.js";
import { count, seconds } from "./format.js";

const NAMES = { system: "System prompt", user: "Prompt", assistant: "Earlier reply", reply: "Reply", reasoning: "Reasoning" };
const FINISHES = { stop: "finished", length: "cut off at the maximum length", filter: "stopped by a filter", other: "ended otherwise" };

// Profiles whose requests a person answers.
let byPerson = null;
const config = () => JSON.parse(document.getElementById("run-config")?.textContent ?? "{}");
const mailboxes = () => (byPerson ??= new Set(config().mailboxes));
const mayReplay = () => Boolean(config().control); // only people who may steer the run may replay its requests

export function callLine(item, agent, open) {
  const { usage } = item;
  const parts = [`${agent} asked ${item.profile || "the model"}${item.purpose ? ` (${item.purpose})` : ""}`];
  if (item.notes) parts.push(`with ${counted(item.notes, "note")}`);
  if (usage) parts.push(`${count(usage.input_tokens ?? 0)} tokens in, ${count(usage.output_tokens ?? 0)} out`);
  if (item.dollars != null) parts.push(`$${item.dollars.toFixed(4)}`);
  if (item.attempts > 1) parts.push(`${item.attempts} attempts`);
  if (item.failed) parts.push(`no answer: ${item.failed}`);
  else if (item.seconds != null) parts.push(seconds(item.seconds));
  if (item.finish === "length") parts.push(FINISHES.length);
  const byHand = !item.done && mailboxes().has(item.profile);
  if (!item.done) parts.push(byHand ? "waits for a person" : "waiting for the answer …");
  const details = item.request ? h("button", { type: "button", class: "more inline", "data-call": item.id, "aria-expanded": String(open) }, open ? "close" : "details and prompts") : null;
  return h("p", null, parts.join(" · "), byHand ? [" ", h("a", { href: "reply" }, "reply")] : null, details ? [" ", details] : null);
}

// `opened` has the form {texts, settings, loading, error}.
export function callDetails(item, opened) {
  const { usage } = item;
  const facts = [
    ["model", item.model || item.profile],
    ["profile", item.profile],
    ["purpose", item.purpose],
    ["tokens in", usage ? `${(usage.input_tokens ?? 0).toLocaleString("en")}${usage.cached_tokens ? ` (${usage.cached_tokens.toLocaleString("en")} cached)` : ""}` : item.done ? "not counted by the server" : null],
    ["tokens out", usage ? `${(usage.output_tokens ?? 0).toLocaleString("en")}${usage.reasoning_tokens ? ` (${usage.reasoning_tokens.toLocaleString("en")} for reasoning)` : ""}` : null],
    ["speed", usage?.output_tokens && item.seconds ? `${(usage.output_tokens / item.seconds).toFixed(1)} tokens/s` : null],
    ["cost", item.dollars == null ? (item.done ? "no price is known" : null) : `$${item.dollars.toFixed(4)}`],
    ["time", item.seconds == null ? null : seconds(item.seconds)],
    ["requests sent", item.attempts ? `${item.attempts}${item.attempts > 1 ? ` (${counted(item.attempts - 1, "retry", "retries")})` : ""}` : null],
    ["end", item.failed ? `no answer: ${item.failed}` : (FINISHES[item.finish] ?? null)],
    ...Object.entries(opened.settings).map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)]).filter(([name]) => name !== "purpose"),
  ].filter(([, value]) => value != null && value !== "");
  return h(
    "div",
    { class: "call" },
    h("dl", { class: "call-facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    mayReplay() ? h("p", null, h("a", { class: "button small", href: `calls/${item.seq}/replay` }, "Replay this request")) : null,
    opened.loading ? h("p", { class: "faint" }, "loading the prompts …") : null,
    opened.error ? h("p", null, opened.error) : null,
    opened.texts.map((text, index) => callText(item, text, index)),
  );
}

function callText(item, text, index) {
  const shown = [...text.text].length;
  const extent = `${counted(text.lines, "line")}, ${counted(text.characters, "character")}`;
  return h(
    "details",
    { class: `call-text by-${text.name}`, open: text.name === "reply" || index === 0 },
    h("summary", null, NAMES[text.name] ?? text.name, " ", h("span", { class: "faint" }, extent)),
    text.name === "reasoning" || !text.text.includes("```") ? h("pre", { class: "fence wrapped", tabindex: "0" }, text.text) : codeBlock(text.text, "text"),
    text.next == null ? null : h("button", { type: "button", class: "more", "data-call-next": `${item.id} ${index}` }, `Show more (${shown.toLocaleString("en")} of ${counted(text.characters, "character")} shown)`),
  );
}
