// @ts-check
// Highlights search hits in the rows that are in the document. The CSS Custom Highlight API leaves the elements unchanged.
const MOST = 2000;

// Returns the ranges of the needles {words, exact} in the text of `row`, across its elements.
export function rangesIn(row, { words, exact }, most = MOST) {
  const nodes = [];
  let text = "";
  const walker = document.createTreeWalker(row?.querySelector(".entry-body") ?? row, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    nodes.push([text.length, walker.currentNode]);
    text += /** @type {Text} */ (walker.currentNode).data;
  }
  const lower = text.toLowerCase().length === text.length ? text.toLowerCase() : text;
  const found = [];
  for (const [haystack, needles] of [[text, exact], [lower, words]]) {
    for (const needle of needles) {
      for (let at = haystack.indexOf(needle); at >= 0 && found.length < most; at = haystack.indexOf(needle, at + needle.length)) found.push([at, at + needle.length]);
    }
  }
  return found.sort((a, b) => a[0] - b[0]).map(([start, end]) => rangeOf(nodes, start, end));
}

function rangeOf(nodes, start, end) {
  const range = new Range();
  /** @returns {[node: Text, offset: number]} */
  const place = (offset, last) => {
    let low = 0;
    let high = nodes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (nodes[middle][0] < offset + (last ? 0 : 1)) low = middle;
      else high = middle - 1;
    }
    return [nodes[low][1], offset - nodes[low][0]];
  };
  range.setStart(...place(start, false));
  range.setEnd(...place(end, true));
  return range;
}

export function paint(rows, needles) {
  if (!globalThis.CSS?.highlights) return;
  const ranges = [];
  if (needles) for (const row of rows) if (ranges.length < MOST) ranges.push(...rangesIn(row, needles));
  CSS.highlights.set("found", new Highlight(...ranges));
}

// Scrolls to a range as if it were an element.
export const firstLine = (range) => ({ getBoundingClientRect: () => range.getClientRects()[0] ?? range.startContainer.parentElement.getBoundingClientRect() });

// Splits a query as the server does (webapp/runs/trace/search.py): quoted phrases are matched literally, and words in upper or lower case.
export function needlesOf(query) {
  const exact = [...query.matchAll(/"([^"]+)"/g)].map(([, phrase]) => phrase);
  const words = query.replaceAll(/"[^"]*"?/g, " ").toLowerCase().split(/\s+/).filter(Boolean);
  return exact.length || words.length ? { words, exact } : null;
}
