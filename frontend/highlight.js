// Entry for esbuild: syntax highlighting for code in conversations. Served as static/vendor/highlight.js; static/js/run/colours.js uses it.
import { parser as cpp } from "@lezer/cpp";
import { highlightCode, tagHighlighter, tags } from "@lezer/highlight";
import { parser as python } from "@lezer/python";

const PARSERS = { cpp, python };
// Uses Pygments' classes, which colour the code on every page.
const classes = tagHighlighter([
  { tag: tags.keyword, class: "k" },
  { tag: [tags.string, tags.special(tags.string)], class: "s" },
  { tag: [tags.number, tags.bool, tags.null], class: "m" },
  { tag: [tags.comment, tags.processingInstruction, tags.meta], class: "c" },
  { tag: tags.typeName, class: "kt" },
  { tag: [tags.function(tags.variableName), tags.function(tags.definition(tags.variableName)), tags.definition(tags.className)], class: "nf" },
]);
const CUDA = /#include|__global__|__device__|extern "C"/;

// [[text, class or ""], ...] of `code`; CUDA and C++ inside Python strings are highlighted as such.
export function pieces(code, language) {
  const found = [];
  const put = (text, name) => {
    if (found.length && found.at(-1)[1] === name) found.at(-1)[0] += text;
    else found.push([text, name]);
  };
  highlightCode(code, PARSERS[language].parse(code), classes, put, () => put("\n", found.at(-1)?.[1] ?? ""));
  if (language !== "python") return found;
  return found.flatMap(([text, name]) => (name === "s" && CUDA.test(text) ? pieces(text, "cpp") : [[text, name]]));
}
