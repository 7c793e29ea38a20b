// The timeline's reader against bytes that verifier/profiling/timeline.py wrote (the path is given by test_scripts.py).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { firstReaching, hit, linked, parse } from "../../../../static/js/timeline/parse.js";
import { busy, byName, deviceRows } from "../../../../static/js/timeline/stats.js";
import { duration, ticks } from "../../../../static/js/timeline/format.js";

const file = readFileSync(process.env.TIMELINE);
const buffer = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
const model = parse(buffer);

test("columns come back as they were written", () => {
  assert.equal(model.count, 6);
  assert.deepEqual(model.rows.map((row) => [row.name, row.events, row.depths]), [["Stream 7", 2, 1], ["CUDA API", 2, 1], ["Thread 1", 2, 2]]);
  assert.equal(model.header.names[model.columns.name[0]], "softmax");
});

test("a launch and its kernel are linked both ways", () => {
  const launch = linked(model, 0);
  assert.equal(launch.length, 1);
  assert.equal(model.header.kinds[model.columns.kind[launch[0]]], "api");
  assert.deepEqual(linked(model, launch[0]), [0]);
});

test("binary search and hit test find what is under the pointer", () => {
  assert.equal(hit(model, 0, 1500, 0), 0);
  assert.equal(hit(model, 0, 2500, 0), -1);
  assert.equal(hit(model, 0, 2050, 100), 0);
  assert.equal(firstReaching(model, 0, 2500), model.offsets[0] + 1);
});

test("idle time, gaps and sums are those of the device", () => {
  const rows = deviceRows(model);
  const found = busy(model, rows, 0, 4000);
  assert.equal(found.idle, 0.5);
  assert.equal(found.gap, 1000);
  const names = byName(model, rows, 0, 4000);
  assert.deepEqual(names.map(({ count, total }) => [count, total]), [[2, 2000]]);
  assert.equal(byName(model, rows, 1500, 2000)[0].total, 500);
});

test("nested time is counted once", () => {
  const names = byName(model, [model.rows[2]], 0, 4000);
  assert.equal(names.reduce((sum, row) => sum + row.total, 0), 1000);
});

test("what is cut short or something else is refused with a sentence", () => {
  assert.throws(() => parse(new ArrayBuffer(4)), /not a Stitchwork timeline/);
  assert.throws(() => parse(buffer.slice(0, buffer.byteLength - 16)), /cut short/);
});

test("axis marks are round and told apart", () => {
  const labels = ticks(1_000_000, 1_000_400, 8).map((tick) => tick.label);
  assert.equal(new Set(labels).size, labels.length);
  assert.equal(duration(1530), "1.53 µs");
});
