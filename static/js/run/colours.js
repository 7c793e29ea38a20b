// @ts-check
// Highlights code in messages. The parsers are loaded when the first code scrolls into view.
import { h } from "./dom.js";

const LANGUAGES = { python: "python", py: "python", cpp: "cpp", "c++": "cpp", c: "cpp", cuda: "cpp", cu: "cpp", triton: "python" };
const MOST = 60000; // in characters; longer code stays plain so that it renders quickly

/** @type {Promise<typeof import("../../vendor/highlight.js")> | null} */
let parsers = null;

// Returns a <pre> that shows the code as plain text immediately, and highlighted once the parsers are loaded.
export function codeBlock(code, language) {
  const block = h("pre", { class: "fence", tabindex: "0" }, code);
  const known = LANGUAGES[language.toLowerCase()] ?? guess(code);
  if (known && code.length <= MOST) paint(block, code, known);
  return block;
}

function guess(code) {
  if (/^\s*(import|from|def|class) \w/m.test(code)) return "python";
  return /#include|__global__|\bvoid \w+\(|\bconst (float|int|auto)/.test(code) ? "cpp" : null;
}

async function paint(block, code, language) {
  try {
    parsers ??= import("../../vendor/highlight.js");
    const { pieces } = await parsers;
    block.replaceChildren(...pieces(code, language).map(([text, name]) => (name ? h("span", { class: name }, text) : document.createTextNode(text))));
  } catch {
    // The parsers could not be loaded, so the code stays plain.
  }
}
