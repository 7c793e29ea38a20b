// The tree of decisions is asked for again where a newer one is told of, one request at a time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Decisions } from "../../../../static/js/run/decisions.js";

// A box as the page has it: markup, the place of scrolling, and nothing that has the focus.
function boxOf(seq) {
  const list = { scrollTop: 40, scrollLeft: 0, scrolledTo: null, scrollTo(left, top) { this.scrolledTo = [left, top]; } };
  return { dataset: { url: "/decisions" }, innerHTML: "old", list, contains: () => false, querySelector: (selector) => (selector === "[data-seq]" ? { dataset: { seq: String(seq) } } : list) };
}

function serving(answer) {
  const asked = [];
  globalThis.document = { activeElement: null };
  globalThis.fetch = async (url) => {
    asked.push(url);
    return answer(asked.length);
  };
  return asked;
}

const page = (text) => ({ ok: true, text: async () => text });

test("nothing is asked where the page has the newest, or the workflow keeps no tree", async () => {
  const asked = serving(() => page("new"));
  await new Decisions(boxOf(7)).draw({ tree: 7 });
  await new Decisions(null).draw({ tree: 9 });
  assert.deepEqual(asked, []);
});

test("what comes while a request is under way is asked for after it, once, and the reader's place is kept", async () => {
  const box = boxOf(7);
  const state = { tree: 8 };
  const asked = serving((time) => page(`new ${time}`));
  const decisions = new Decisions(box);
  const first = decisions.draw(state);
  state.tree = 9;
  await decisions.draw(state);
  state.tree = 11;
  await first;
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(asked, ["/decisions", "/decisions"]);
  assert.equal(box.innerHTML, "new 2");
  assert.deepEqual(box.list.scrolledTo, [0, 40]);
});

test("a page that cannot be had leaves the old one, and is had with the next change", async () => {
  const box = boxOf(7);
  const asked = serving((time) => {
    if (time === 1) throw new TypeError("no network");
    return time === 2 ? { ok: false } : page("new");
  });
  const decisions = new Decisions(box);
  for (const tree of [8, 8, 9]) await decisions.draw({ tree });
  assert.equal(box.innerHTML, "old");
  await decisions.draw({ tree: 10 });
  assert.equal(box.innerHTML, "new");
  assert.equal(asked.length, 3);
});
