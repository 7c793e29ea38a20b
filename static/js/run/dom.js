// @ts-check
// Builds elements from data. Text is always inserted as text, so the content of a transcript can never become markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value == null || value === false) continue;
    if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false && child !== ""));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Writes only if the text differs, so that nothing flickers and no selection is lost.
export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

export const link = (path, text, attributes = {}) => h("a", { href: path, ...attributes }, text);
