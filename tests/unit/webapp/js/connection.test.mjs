// The connection against a server that loses the line in the middle: nothing lost, nothing doubled.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

const sockets = [];
class FakeSocket {
  static OPEN = 1;
  constructor(url) {
    this.url = url;
    this.readyState = 0;
    this.sent = [];
    sockets.push(this);
  }
  open() {
    this.readyState = 1;
    this.onopen();
  }
  send(text) {
    this.sent.push(JSON.parse(text));
  }
  close() {
    this.drop(1000);
  }
  drop(code = 1006) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code });
  }
  receive(first, last, head = last, more = "") {
    const events = Array.from({ length: last - first + 1 }, (_, index) => ({ seq: first + index, kind: "note.added", payload: { text: String(first + index) + more } }));
    this.onmessage({ data: JSON.stringify({ type: "events", events, last, head }) });
  }
}

globalThis.WebSocket = FakeSocket;
globalThis.navigator ??= { onLine: true }; // Node 20 has none
globalThis.addEventListener = () => {};
globalThis.document = { addEventListener: () => {}, hidden: false };
const { Connection } = await import("../../../../static/js/run/connection.js");
const { createState, fold } = await import("../../../../static/js/run/store.js");

function connect() {
  const state = createState();
  const said = [];
  const connection = new Connection({ socketUrl: "ws://x/", eventsUrl: "/events", cursor: () => state.last, take: (events) => fold(state, events), status: (name) => said.push(name), random: () => 0 });
  connection.open();
  return { connection, state, said };
}

const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
beforeEach(() => {
  sockets.length = 0;
  globalThis.fetch = async () => ({ ok: false });
});

test("it opens at its cursor and acknowledges every eighth frame", () => {
  const { connection, state } = connect();
  sockets[0].open();
  assert.deepEqual(sockets[0].sent, [{ type: "open", since: 0 }]);
  for (let frame = 0; frame < 16; frame += 1) {
    sockets[0].receive(1 + 3 * frame, 3 + 3 * frame);
    assert.equal(sockets[0].sent.length, 1 + Math.floor((frame + 1) / 8));
  }
  assert.deepEqual(sockets[0].sent.slice(1), [{ type: "ack", seq: 24 }, { type: "ack", seq: 48 }]);
  assert.equal(state.last, 48);
  connection.stop();
});

test("large frames are acknowledged sooner, and a new line counts from nothing", async () => {
  const { connection } = connect();
  sockets[0].open();
  const half = "x".repeat(32768);
  sockets[0].receive(1, 1, 1, half);
  assert.equal(sockets[0].sent.length, 1);
  sockets[0].receive(2, 2, 2, half);
  assert.deepEqual(sockets[0].sent[1], { type: "ack", seq: 2 });
  sockets[0].receive(3, 3, 3, half);
  sockets[0].drop();
  await later(230);
  sockets[1].open();
  sockets[1].receive(4, 4, 4, half);
  assert.deepEqual(sockets[1].sent, [{ type: "open", since: 3 }]);
  connection.stop();
});

test("what came by a poll is not acknowledged for the socket, on which it is still on its way", () => {
  const { connection, state } = connect();
  sockets[0].open();
  fold(state, Array.from({ length: 100 }, (_, index) => ({ seq: index + 1, kind: "note.added", payload: { text: "by poll" } })));
  for (let frame = 0; frame < 8; frame += 1) sockets[0].receive(1 + 3 * frame, 3 + 3 * frame);
  assert.deepEqual(sockets[0].sent.slice(1), [{ type: "ack", seq: 24 }]);
  assert.equal(state.last, 100);
  connection.stop();
});

test("a line that drops is opened again where it broke off", async () => {
  const { connection, state } = connect();
  sockets[0].open();
  sockets[0].receive(1, 3);
  sockets[0].drop();
  await later(230);
  assert.equal(sockets.length, 2);
  sockets[1].open();
  assert.deepEqual(sockets[1].sent, [{ type: "open", since: 3 }]);
  sockets[1].receive(2, 5); // the server repeats what it is not sure of
  assert.deepEqual(state.items.map((item) => item.text), ["1", "2", "3", "4", "5"]);
  connection.stop();
});

test("a batch that leaves a gap is not taken, and the line is opened again", async () => {
  const { connection, state } = connect();
  sockets[0].open();
  sockets[0].receive(5, 6);
  assert.equal(state.last, 0);
  assert.deepEqual(sockets[0].sent.map((message) => message.type), ["open"]);
  await later(230);
  sockets[1].open();
  assert.deepEqual(sockets[1].sent, [{ type: "open", since: 0 }]);
  connection.stop();
});

test("without a socket the same events come over HTTP", async () => {
  const { connection, state } = connect();
  globalThis.fetch = async (url) => {
    const since = Number(new URL(url, "http://x").searchParams.get("since"));
    const events = since < 4 ? [{ seq: since + 1, kind: "note.added", payload: {} }] : [];
    return { ok: true, json: async () => ({ events, last: since + events.length, head: 4 }) };
  };
  await connection.poll();
  assert.equal(state.last, 4);
  connection.stop();
});

test("a refusal is final and said in words", () => {
  const { said } = connect();
  sockets[0].open();
  sockets[0].drop(4404);
  assert.deepEqual(said, ["refused"]);
  assert.equal(sockets.length, 1);
});
