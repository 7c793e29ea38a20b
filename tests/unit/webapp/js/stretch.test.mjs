// A trace that comes condensed ends in the same state as the same trace event by event.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createState, fold, foldStretch, itemOf } from "../../../../static/js/run/store.js";

const given = JSON.parse(readFileSync(process.env.STRETCHES));
const plain = (state) => JSON.parse(JSON.stringify({ items: state.items, run: state.run, spans: [...state.spans], candidates: [...state.candidates], usage: [...state.usage], last: state.last, spent: state.spent }));

test("condensed and live give the same state", () => {
  const live = createState();
  assert.equal(fold(live, given.events), true);
  const late = createState();
  for (const stretch of given.stretches) assert.equal(foldStretch(late, stretch), true);
  assert.deepEqual(plain(late), plain(live));
  assert.ok(given.stretches.length > 1);
});

test("a stretch that does not begin where the state ends is not taken", () => {
  const state = createState();
  assert.equal(foldStretch(state, given.stretches[1]), false);
  assert.equal(state.last, 0);
});

test("half condensed, half live", () => {
  const state = createState();
  foldStretch(state, given.stretches[0]);
  assert.equal(fold(state, given.events), true);
  const live = createState();
  fold(live, given.events);
  assert.deepEqual(plain(state), plain(live));
});

test("every event leads to the item that shows it", () => {
  const state = createState();
  fold(state, given.events);
  for (const event of given.events) {
    const item = itemOf(state, event.seq);
    if (event.kind === "verification.finished") assert.equal(item.key, event.payload.key);
    if (event.kind === "llm.completed") assert.equal(item.key, event.payload.key);
  }
});
