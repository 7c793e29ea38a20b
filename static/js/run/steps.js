// @ts-check
// Steps through the entries of one kind (decisions, failures, improvements) and to the best result.
import { setText } from "./dom.js";
import { shortcut } from "../lib/keys.js";
import { say } from "../lib/say.js";
import { bestCandidate } from "./store.js";

const FAILED = new Set(["wrong_result", "build_failed", "crashed", "timed_out", "rejected", "inconclusive", "infrastructure_error"]);
const KINDS = {
  decision: { test: (item) => item.kind === "decision", key: "d", words: ["decision", "decisions"] },
  failure: { test: (item) => FAILED.has(item.status) || Boolean(item.failed) || item.ok === false || item.kind === "error", key: "x", words: ["failure", "failures"] },
  improvement: { test: (item) => item.improved === true, key: "i", words: ["improvement", "improvements"] },
  note: { test: (item) => item.kind === "note", key: "o", words: ["note", "notes"] },
  error: { test: (item) => item.kind === "error" || Boolean(item.failed), key: "e", words: ["error", "errors"] },
};

export class Steps {
  // `go(item)` selects an entry.
  constructor({ state, conversation, select, count, previous, next, best, go }) {
    this.state = state;
    this.conversation = conversation;
    this.select = select;
    this.count = count;
    this.previous = previous;
    this.next = next;
    this.best = best;
    this.go = go;
    previous.addEventListener("click", () => this.step(select.value, -1));
    next.addEventListener("click", () => this.step(select.value, 1));
    best.addEventListener("click", () => this.toBest());
    select.addEventListener("change", () => this.draw());
    for (const [kind, { key, words }] of Object.entries(KINDS)) {
      shortcut(key, `next ${words[0]}`, () => this.choose(kind, 1), "Trace");
      shortcut(key.toUpperCase(), `previous ${words[0]}`, () => this.choose(kind, -1), "Trace");
    }
    shortcut("b", "the best result", () => this.toBest(), "Trace");
  }

  choose(kind, by) {
    this.select.value = kind;
    this.step(kind, by);
  }

  of(kind) {
    return this.state.items.filter(KINDS[kind].test);
  }

  step(kind, by) {
    const found = this.of(kind);
    const { place } = this.conversation;
    const target = by > 0 ? found.find((item) => item.index > place) : found.findLast((item) => item.index < place);
    if (target) {
      this.go(target);
      say(`${KINDS[kind].words[0]} ${found.indexOf(target) + 1} of ${found.length}`);
    } else say(found.length ? `There is no ${by > 0 ? "later" : "earlier"} ${KINDS[kind].words[0]}.` : `There is no ${KINDS[kind].words[0]} in this run.`);
    this.draw();
  }

  // The verdict of the best candidate.
  toBest() {
    const best = bestCandidate(this.state);
    const item = best && this.state.items.findLast((one) => one.kind === "verification" && one.candidate === best.number && one.status === "passed");
    if (item) this.go(item);
    else say("No program has passed yet.");
  }

  draw() {
    const found = this.of(this.select.value);
    const at = found.findIndex((item) => item.id === this.conversation.selected);
    const total = found.length.toLocaleString("en");
    setText(this.count, at < 0 ? total : `${(at + 1).toLocaleString("en")} of ${total}`);
    this.previous.disabled = this.next.disabled = !found.length;
    this.best.disabled = !bestCandidate(this.state);
  }
}
