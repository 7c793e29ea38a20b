// Estimates: what is said of a stage, of a run, and of a place in the queue.
import assert from "node:assert/strict";
import { test } from "node:test";
import { leftText, progressText, roughly, secondsLeft, standingText } from "../../../../static/js/run/progress.js";

const state = (verified, { candidates = 8, seconds = null } = {}) => ({
  run: { state: "running" },
  candidates: new Map(Array.from({ length: verified }, (_, index) => [index + 1, { status: "passed" }])),
  limits: { candidates, seconds },
});

test("what takes longer than usual is not said to take what it usually does", () => {
  assert.equal(progressText(5, 8.9), "5 s of about 8.9 s");
  assert.equal(progressText(93, 8.9), "1 min 33 s, longer than the usual 8.9 s");
  assert.equal(progressText(4, null), "4 s");
});

test("the estimate of a run begins with what such runs took and follows its own pace", () => {
  assert.equal(secondsLeft(state(0), null, 10), null);
  assert.equal(secondsLeft(state(0), 100, 10), 90);
  assert.equal(secondsLeft(state(2), null, 20), 60);
  assert.equal(secondsLeft(state(2), 100, 20), (100 * 2 + 80 * 2) / 4 - 20);
});

test("it grows once it is passed, and never beyond the budget", () => {
  assert.equal(secondsLeft(state(0), 100, 200), 20);
  assert.equal(secondsLeft(state(0, { seconds: 210 }), 100, 200), 10);
  assert.equal(secondsLeft({ ...state(1), run: { state: "finished" } }, 100, 10), null);
  assert.deepEqual([3, 41, 60, 200, 7200, 9000].map(roughly), ["10 s", "50 s", "1 min", "3 min", "2 h", "2.5 h"]);
  assert.equal(leftText(200), "About 3 min left.");
});

test("a place in the queue is said with what is before it", () => {
  const waits = { what: "verifier", before: 2, at_work: 1, seconds: 130, online: 1, device: "cpu" };
  assert.equal(standingText(waits), "Waiting for a free verifier: 2 jobs ahead, about 2 min.");
  const lacking = standingText({ ...waits, online: 0, needs_sandbox: "bubblewrap is not installed: apt-get install bubblewrap" });
  assert.match(lacking, /^Needs a sandbox: .*apt-get install bubblewrap.*starts by itself/);
  assert.equal(standingText({ ...waits, before: 1, seconds: null }), "Waiting for a free verifier: 1 job ahead.");
  assert.equal(standingText({ ...waits, before: 0, seconds: 0 }), "Waiting for a free verifier: next in line.");
  assert.equal(standingText({ ...waits, online: 0, device: "cuda" }), "Waiting for a GPU verifier: none is online. The run starts when one connects.");
  assert.equal(standingText({ ...waits, what: "" }), "");
});
