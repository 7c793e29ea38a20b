import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, write } from "../../../../static/js/run/selection.js";

test("what is written is read back", () => {
  for (const selection of [{ candidate: 4, tab: "report" }, { event: 12 }, { span: "step-1/attempt-2", candidate: 2 }, { reference: true, tab: "timeline" }]) {
    const found = parse(write(selection));
    for (const [name, value] of Object.entries(selection)) assert.equal(found[name], value);
  }
  assert.equal(write({ span: "step-1/attempt-2" }), "#span=step-1/attempt-2");
});

test("nonsense selects nothing", () => {
  assert.deepEqual(parse("#candidate=x&tab=evil&event=-1"), { candidate: null, event: null, span: null, reference: false, tab: null });
});
