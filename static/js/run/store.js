// @ts-check
// Builds the state of a run from its events. All events enter through `fold`, and the same events in the same order always give the same state, so
// live, late, reconnected and replayed pages cannot differ. It doesn't use the DOM.
import { FOLDERS } from "./folders.js";
import { shorten } from "./preview.js";
import { createChanges } from "./state.js";

export { bestCandidate, createChanges, createState, expectedSeconds, itemOf } from "./state.js";

// Applies `events` to `state` and records the changes. Skips events that were already applied. Stops at a gap and returns false, so that the caller
// can request events from `state.last` again.
export function fold(state, events, changes = createChanges()) {
  for (const event of events) {
    if (event.seq <= state.last) continue;
    if (event.seq !== state.last + 1) return false;
    state.last = event.seq;
    take(state, event, changes);
  }
  return true;
}

// Applies a stretch of the trace that the server has condensed. Some events have been merged into others, and the stretch covers everything up to
// `last`.
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
