// @ts-check
// The state of a timeline's view in the fragment of its URL: #t=from-to (ns) &m=from-to (measured) &sel=event &q=search &anchor=n. In a comparison,
// an event of the second timeline is written as b123.
const RANGE = /^(-?\d+(?:\.\d+)?)-(-?\d+(?:\.\d+)?)$/;

export function readLink(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const found = {};
  for (const key of ["t", "m"]) {
    const range = RANGE.exec(given.get(key) ?? "");
    if (range && Number(range[1]) < Number(range[2])) found[key] = { from: Number(range[1]), to: Number(range[2]) };
  }
  const selected = /^(b?)(\d+)$/.exec(given.get("sel") ?? "");
  if (selected) found.sel = { lane: selected[1] ? 1 : 0, event: Number(selected[2]) };
  if (given.get("rows")) found.rows = given.get("rows").split("|");
  if (given.get("q")) Object.assign(found, { q: given.get("q"), expression: given.get("re") === "1" });
  if (/^\d+$/.test(given.get("anchor") ?? "")) found.anchor = Number(given.get("anchor"));
  return found;
}

const range = ({ from, to }) => `${Math.round(from)}-${Math.max(Math.round(to), Math.round(from) + 1)}`;

export function writeLink({ view = null, measure = null, rows = null, selected = null, search = "", expression = false, anchor = null }) {
  const parts = [];
  if (view) parts.push(`t=${range(view)}`);
  if (measure) parts.push(`m=${range(measure)}`);
  if (measure && rows) parts.push(`rows=${encodeURIComponent(rows.join("|"))}`);
  if (selected && selected.event >= 0) parts.push(`sel=${selected.lane ? "b" : ""}${selected.event}`);
  if (search) parts.push(`q=${encodeURIComponent(search)}${expression ? "&re=1" : ""}`);
  if (anchor != null) parts.push(`anchor=${anchor}`);
  return parts.length ? `#${parts.join("&")}` : "";
}
