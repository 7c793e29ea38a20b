// @ts-check
// Finds events by name, using a text or a regular expression.

// Returns {names: matching indices, events: all their events in track order}, or null for an empty search. Throws a SyntaxError with a sentence.
export function find(model, text, asExpression) {
  if (!text.trim()) return null;
  let matches;
  if (asExpression) {
    const expression = new RegExp(text, "i");
    matches = (name) => expression.test(name);
  } else {
    const wanted = text.trim().toLowerCase();
    matches = (name) => name.toLowerCase().includes(wanted);
  }
  const names = new Set();
  const flags = new Uint8Array(model.header.names.length);
  model.header.names.forEach((name, index) => {
    if (!matches(name)) return;
    names.add(index);
    flags[index] = 1;
  });
  const { name } = model.columns;
  let count = 0;
  if (names.size) for (let i = 0; i < model.count; i += 1) count += flags[name[i]];
  const events = new Uint32Array(count);
  for (let i = 0, at = 0; at < count; i += 1) if (flags[name[i]]) events[at++] = i;
  return { names, events, text, asExpression };
}

// The next match in time after (by > 0) or before `selected`, on any row, wrapping around at the ends. Returns {event, place}, with `place` counted
// from 1.
export function stepMatch(model, matches, selected, by, from) {
  const { start, name } = model.columns;
  const later = (a, b) => start[a] - start[b] || a - b;
  const here = selected >= 0 && matches.names.has(name[selected]) ? selected : -1;
  let best = -1;
  let around = -1;
  for (const event of matches.events) {
    if (event === here) continue;
    if ((here < 0 ? start[event] >= from : later(event, here) * by > 0) && (best < 0 || later(event, best) * by < 0)) best = event;
    if (around < 0 || later(event, around) * by < 0) around = event;
  }
  const event = best >= 0 ? best : around >= 0 ? around : here;
  if (event < 0) return null;
  let place = 1;
  for (const other of matches.events) if (later(other, event) < 0) place += 1;
  return { event, place };
}
