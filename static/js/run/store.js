// A run as its events tell it. `fold` is the only way in: the same events in the same order always give the same state,
// so live, late, reconnected and replayed pages cannot differ. No DOM here.
import { FOLDERS } from "./folders.js";
import { shorten } from "./preview.js";
import { createChanges } from "./state.js";

export { bestCandidate, createChanges, createState, expectedSeconds, itemOf } from "./state.js";

// Folds `events` into `state`, noting what changed. Events seen before are passed over; at a gap it stops and returns false,
// so that the caller asks again from `state.last`.
export function fold(state, events, changes = createChanges()) {
  for (const event of events) {
    if (event.seq <= state.last) continue;
    if (event.seq !== state.last + 1) return false;
    state.last = event.seq;
    take(state, event, changes);
  }
  return true;
}

// Folds a stretch of the trace as the server condensed it: it lacks events that others stand for, and covers all up to `last`.
export function foldStretch(state, { since, last, events }, changes = createChanges()) {
  if (since !== state.last) return false;
  for (const event of events) {
    state.last = event.seq;
    take(state, event, changes);
  }
  state.last = last;
  return true;
}

function take(state, event, changes) {
  const folder = FOLDERS[event.kind];
  if (!folder) return;
  const shown = shorten(event);
  folder(state, shown, shown.payload ?? {}, changes);
}
