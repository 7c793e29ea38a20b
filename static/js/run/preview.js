// @ts-check
// Keeps only a preview of long strings, with their length. The server cuts the traces that it sends at the same position
// (webapp/runs/trace/condense.py).
export const PREVIEW = 2000; // in characters (code points)

export const preview = (text) => (text.length <= PREVIEW ? text : [...text.slice(0, 2 * PREVIEW)].slice(0, PREVIEW).join(""));

// Counts code points, like Python. The length of a JavaScript string is in UTF-16 units.
export function characters(text) {
  let pairs = 0;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (unit >= 0xd800 && unit < 0xdc00) pairs += 1;
  }
  return text.length - pairs;
}

export function newlines(text) {
  let count = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) count += 1;
  return count;
}

// Converts a live event to the form in which the server would send it later, with payload strings cut to previews and their lengths in `cut`.
export function shorten(event) {
  if (event.cut || event.kind === "message.delta" || event.kind === "message.completed") return event;
  let cut = null;
  for (const [name, value] of Object.entries(event.payload ?? {})) {
    if (typeof value === "string" && value.length > PREVIEW && characters(value) > PREVIEW) (cut ??= {})[name] = characters(value);
  }
  if (!cut) return event;
  const payload = { ...event.payload };
  for (const name of Object.keys(cut)) payload[name] = preview(payload[name]);
  return { ...event, payload, cut };
}
