// The timeline's reader against bytes that verifier/profiling/timeline.py wrote (the path is given by test_scripts.py).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { anchors, differences, iterations } from "../../../../static/js/timeline/compare.js";
import { counted } from "../../../../static/js/lib/words.js";
import { ceiling, columns as counterColumns, mean, reading } from "../../../../static/js/timeline/counters.js";
import { csvText } from "../../../../static/js/lib/csv.js";
import { groupCsv, headline } from "../../../../static/js/timeline/figures.js";
import { groupOf, NO_MODULE } from "../../../../static/js/timeline/groups.js";
import { firstHits } from "../../../../static/js/timeline/hits.js";
import { Choice, layout } from "../../../../static/js/timeline/rows.js";
import { duration, percent, shortName, signed, ticks } from "../../../../static/js/timeline/format.js";
import { Frame } from "../../../../static/js/timeline/levels.js";
import { readLink, writeLink } from "../../../../static/js/timeline/link.js";
import { linked } from "../../../../static/js/timeline/links.js";
import { parse, transferables } from "../../../../static/js/timeline/parse.js";
import { find, stepMatch } from "../../../../static/js/timeline/search.js";
import { atOnce, byName, devicesOf, figures } from "../../../../static/js/timeline/stats.js";
import { busyWithin, firstFrom, firstReaching, hit } from "../../../../static/js/timeline/tracks.js";

const file = readFileSync(process.env.TIMELINE);
const buffer = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
const model = parse(buffer.slice(0));

// A model of one row from [start, duration, name] triples, built as the reader builds it.
function written(rows, names, events) {
  const encode = new TextEncoder();
  const columns = { start: [], duration: [], name: [], row: [], kind: [], correlation: [], depth: [], detail: [] };
  for (const event of events) for (const key of Object.keys(columns)) columns[key].push(event[key] ?? 0);
  const types = { start: Float64Array, duration: Float64Array, name: Uint32Array, row: Uint16Array, kind: Uint8Array, correlation: Uint32Array, depth: Uint16Array, detail: Uint32Array };
  const dtypes = { start: "f8", duration: "f8", name: "u4", row: "u2", kind: "u1", correlation: "u4", depth: "u2", detail: "u4" };
  let offset = 0;
  const parts = Object.entries(columns).map(([name, values]) => {
    const data = new Uint8Array(new types[name](values).buffer);
    const part = { name, dtype: dtypes[name], offset, length: values.length, data };
    offset += Math.ceil(data.length / 8) * 8;
    return part;
  });
  const span = Math.max(...events.map((event) => event.start + event.duration));
  const header = encode.encode(JSON.stringify({ version: 1, tool: "test", device: "H200", span_ns: span, events: events.length, columns: parts.map(({ data, ...part }) => part), rows, names, kinds: ["kernel", "memcpy", "memset", "sync", "api", "nvtx", "operator", "own", "graph", "module"], details: { table: [] }, warnings: [], truncated: null }));
  const base = Math.ceil((11 + header.length) / 8) * 8;
  const bytes = new Uint8Array(base + offset);
  bytes.set(encode.encode("STWTL1\n"));
  new DataView(bytes.buffer).setUint32(7, header.length, true);
  bytes.set(header, 11);
  for (const part of parts) bytes.set(part.data, base + part.offset);
  return bytes.buffer;
}

const GPU = { name: "Stream 7", kind: "gpu", group: "H200" };

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
  assert.equal(model.launch[0], launch[0] + 1);
});

test("binary search and hit test find what is under the pointer", () => {
  assert.equal(hit(model, 0, 1500, 0), 0);
  assert.equal(hit(model, 0, 2500, 0), -1);
  assert.equal(hit(model, 0, 2050, 100), 0);
  assert.equal(firstReaching(model, 0, 2500), model.offsets[0] + 1);
  assert.equal(firstFrom(model, 0, 1001), model.offsets[0] + 1);
  assert.equal(busyWithin(model, 0, 1500, 3500), 1000);
});

test("idle time, gaps and sums are those of the device, and the idle time has causes", () => {
  const found = atOnce(figures(model, { from: 0, to: 4000 }));
  const [device] = found.devices;
  assert.equal(device.busy, 2000);
  assert.deepEqual([device.gaps.count, device.gaps.p50, device.kernels, found.launches], [1, 1000, 2, 2]);
  // The first call begins at 0, when the device idles already; the second had begun before the first kernel ended.
  assert.deepEqual(device.idle, { host: 0, launching: 0, queued: 2000, unknown: 0 });
  assert.deepEqual(found.names.map(({ count, total }) => [count, total]), [[2, 2000]]);
  assert.equal(atOnce(byName(model, devicesOf(model)[0].rows, 1500, 2000))[0].total, 500);
});

test("time is the program's own, a library's or nobody knows whose", () => {
  const where = (own) => atOnce(figures(model, { from: 0, to: 4000, own })).devices[0].where;
  assert.deepEqual(where(null), { kernels: 2000 });
  assert.deepEqual(where(new Set([0])), { own: 2000 });
  assert.deepEqual(where(new Set()), { library: 2000 });
});

test("nested time is counted once", () => {
  const names = atOnce(byName(model, [model.rows[2]], 0, 4000));
  assert.equal(names.reduce((sum, row) => sum + row.total, 0), 1000);
});

test("a frame of many events shows the longest of each column, how full it is, and steps over blocks", () => {
  const events = Array.from({ length: 100_000 }, (_, i) => ({ start: i * 10, duration: i === 54_321 ? 9 : 5, name: i === 54_321 ? 1 : 0 }));
  const many = parse(written([GPU], ["usual", "long"], events));
  assert.ok(many.levels.length >= 4);
  const frame = new Frame();
  frame.resize(100);
  frame.sweep(many, 0, 0, 1_000_000);
  assert.equal(frame.count, 0);
  assert.equal(frame.longest[54], 54_321);
  assert.ok(frame.cover.every((share) => Math.abs(share - 0.5) < 0.02));
  frame.sweep(many, 0, 543_000, 543_200);
  assert.equal(frame.count, 20);
  assert.ok(frame.longest.every((event) => event < 0));
  frame.sweep(many, 0, 2_000_000, 3_000_000);
  assert.ok(frame.longest.every((event) => event < 0) && frame.count === 0);
});

test("columns and boxes together are the same as looking at every event", () => {
  let seed = 7;
  const random = () => ((seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648);
  let at = 0;
  const events = Array.from({ length: 5000 }, () => {
    at += random() < 0.02 ? 4000 : random() * 30;
    const event = { start: at, duration: random() < 0.05 ? 300 * random() : 8 * random() };
    at += event.duration;
    return event;
  });
  const many = parse(written([GPU], ["k"], events));
  const frame = new Frame();
  frame.resize(640);
  for (const [from, to] of [[0, at], [at * 0.3, at * 0.6], [at * 0.5, at * 0.502]]) {
    frame.sweep(many, 0, from, to);
    const scale = 640 / (to - from);
    const longest = new Int32Array(640).fill(-1);
    const boxes = [];
    events.forEach(({ start, duration: took }, i) => {
      if (start >= to || start + took <= from) return;
      if (took * scale >= 1.5) boxes.push(i);
      else {
        const c = Math.max(0, Math.floor((start - from) * scale));
        if (longest[c] < 0 || took > events[longest[c]].duration) longest[c] = i;
      }
    });
    assert.deepEqual([...frame.boxes.subarray(0, frame.count)], boxes);
    assert.deepEqual([...frame.longest], [...longest]);
  }
});

test("events that stand in another order are sorted into tracks", () => {
  const mixed = parse(written([GPU], ["outer", "inner"], [{ start: 0, duration: 100, name: 0, depth: 0 }, { start: 10, duration: 20, name: 1, depth: 1 }, { start: 200, duration: 10, name: 0, depth: 0 }]));
  assert.deepEqual([...mixed.offsets], [0, 2, 3]);
  assert.deepEqual([...mixed.columns.start], [0, 200, 10]);
  assert.deepEqual([...mixed.own], [80, 10, 20]);
});

test("search takes texts and regular expressions, and goes around in time", () => {
  const found = find(model, "^cuda|softmax$", true);
  assert.equal(found.events.length, 5);
  assert.equal(find(model, "SOFT", false).events.length, 3);
  assert.equal(find(model, "  ", false), null);
  assert.throws(() => find(model, "(", true), SyntaxError);
  const launches = find(model, "cudaLaunch", false);
  const first = stepMatch(model, launches, -1, 1, 0);
  assert.deepEqual([first.place, model.columns.start[first.event]], [1, 0]);
  const second = stepMatch(model, launches, first.event, 1, 0);
  assert.deepEqual([second.place, model.columns.start[second.event]], [2, 500]);
  assert.equal(stepMatch(model, launches, second.event, 1, 0).event, first.event);
  assert.equal(stepMatch(model, launches, first.event, -1, 0).event, second.event);
});

test("two recordings have moments in common, and totals that differ", () => {
  const rows = [GPU, { name: "NVTX", kind: "nvtx", group: "NVTX" }];
  const a = parse(written(rows, ["slow", "iter"], [{ start: 50, duration: 400 }, { start: 40, duration: 500, row: 1, kind: 5, name: 1 }]));
  const b = parse(written(rows, ["fast", "slow", "iter"], [{ start: 15, duration: 100 }, { start: 130, duration: 50, name: 1 }, { start: 10, duration: 200, row: 1, kind: 5, name: 2 }]));
  assert.deepEqual(anchors([a, b]), [{ label: "the start of the recording", at: [0, 0] }, { label: "the start of iter 1", at: [40, 10] }]);
  assert.deepEqual(iterations(a), { count: 1, wall: 500, from: 40, to: 540 });
  const names = [a, b].map((one) => atOnce(byName(one, devicesOf(one)[0].rows, 0, 1000)));
  assert.deepEqual(differences(...names, [1, 1]).map((row) => [row.name, row.difference]), [["slow", -350], ["fast", 100]]);
});

test("an address says what is shown, and is read back", () => {
  const hash = writeLink({ view: { from: 10.4, to: 20.6 }, measure: { from: -5, to: 7 }, rows: ["H200 / Stream 7"], selected: { lane: 1, event: 12 }, search: "a|b", expression: true, anchor: 0 });
  assert.deepEqual(readLink(hash), { t: { from: 10, to: 21 }, m: { from: -5, to: 7 }, sel: { lane: 1, event: 12 }, rows: ["H200 / Stream 7"], q: "a|b", expression: true, anchor: 0 });
  assert.equal(writeLink({}), "");
  assert.deepEqual(readLink("#t=9-3&sel=x&m="), {});
});

test("what is cut short, damaged or something else is refused with a sentence", () => {
  assert.throws(() => parse(new ArrayBuffer(4)), /not a Stitchwork timeline/);
  assert.throws(() => parse(buffer.slice(0, buffer.byteLength - 16)), /cut short/);
  assert.throws(() => parse(buffer.slice(0, 40)), /cut short/);
  assert.throws(() => parse(written([GPU], ["k"], [{ start: 0, duration: 1, name: 3 }])), /names something that is not in its tables/);
  assert.throws(() => parse(written([GPU], ["k"], [{ start: NaN, duration: 1 }])), /no valid time/);
  const garbled = buffer.slice(0);
  new Uint8Array(garbled).fill(255, 12, 20);
  assert.throws(() => parse(garbled), /header is not JSON/);
});

test("every buffer is handed over once", () => {
  const moved = transferables(model);
  assert.equal(new Set(moved).size, moved.length);
});

test("axis marks are round and told apart; names are shortened to the function", () => {
  const labels = ticks(1_000_000, 1_000_400, 8).map((tick) => tick.label);
  assert.equal(new Set(labels).size, labels.length);
  assert.equal(duration(1530), "1.53 µs");
  assert.equal(signed(-1530), "−1.53 µs");
  assert.equal(shortName("void at::native::vectorized_elementwise_kernel<(int)2, at::native::Add<long>>(int, T2)"), "vectorized_elementwise_kernel");
  assert.equal(shortName("sm80_xmma_gemm_f32"), "sm80_xmma_gemm_f32");
});

test("a range outside of what was recorded has no figures, and the headline says so", () => {
  const found = atOnce(figures(model, { from: 4000, to: 4000 }));
  assert.deepEqual(found.devices, []);
  assert.equal(headline(found, { span: 4000, from: 4000, to: 4000 }, false), "Nothing was recorded in this range");
  assert.equal(percent(0 / 0), "–");
});

test("one is one", () => {
  const found = atOnce(figures(model, { from: 2500, to: 4000 }));
  assert.match(headline(found, { span: 4000, from: 2500, to: 4000 }, false), / · 1 kernel · 0 launches$/);
  assert.deepEqual([counted(1, "entry"), counted(2, "entry"), counted(0, "launch"), counted(1234, "day"), counted(1, "more name")], ["1 entry", "2 entries", "0 launches", "1,234 days", "1 more name"]);
});

const KERNEL = 0, API = 4, NVTX = 5, GRAPH = 8, MODULE = 9;
const CALLS = { name: "CUDA API, thread 1", kind: "api", group: "CUDA" };

test("kernels inside CUDA graphs that were recorded as a whole are unknown, not none", () => {
  const rows = [GPU, CALLS];
  const names = ["k", "CUDA graph 3", "cudaGraphLaunch"];
  const said = (events) => {
    const one = parse(written(rows, names, events));
    return headline(atOnce(figures(one, { from: 0, to: 1000 })), { span: 1000, from: 0, to: 1000 }, false);
  };
  const launch = (start, correlation) => ({ start, duration: 10, name: 2, row: 1, kind: API, correlation });
  // As a whole: the graph and its launch are one.
  assert.match(said([launch(0, 1), { start: 20, duration: 100, name: 1, kind: GRAPH, correlation: 1 }]), /kernels inside 1 CUDA graph launch not recorded/);
  // Only the calls, beside a kernel of its own.
  assert.match(said([launch(0, 1), launch(50, 2), { start: 70, duration: 5, kind: KERNEL, correlation: 9 }]), / · 1 kernel · kernels inside 2 CUDA graph launches not recorded/);
  // By nodes: nothing is hidden.
  assert.match(said([launch(0, 1), { start: 20, duration: 5, correlation: 1 }, { start: 30, duration: 5, correlation: 1 }]), / · 2 kernels · /);
});

test("a table is grouped by name, module, stream and grid, and goes into a file", () => {
  const rows = [GPU, { name: "Stream 9", kind: "gpu", group: "H200" }, CALLS, { name: "Modules, thread 1", kind: "nvtx", group: "NVTX" }, { name: "NVTX, thread 1", kind: "nvtx", group: "NVTX" }];
  const names = ["gemm", "relu", "cudaLaunchKernel", "model (Net)", "model.0 (Linear)", "iter"];
  const kernels = (at, c) => [
    { start: at + 20, duration: 30, name: 0, row: 0, kind: KERNEL, correlation: c },
    { start: at + 60, duration: 10, name: 1, row: 1, kind: KERNEL, correlation: c + 1 },
    { start: at + 2, duration: 1, name: 2, row: 2, kind: API, correlation: c },
    { start: at + 12, duration: 1, name: 2, row: 2, kind: API, correlation: c + 1 },
  ];
  const events = [...kernels(0, 1), ...kernels(1000, 3), { start: 0, duration: 90, name: 5, row: 4, kind: NVTX }, { start: 1000, duration: 90, name: 5, row: 4, kind: NVTX }];
  events.push({ start: 1001, duration: 40, name: 3, row: 3, kind: MODULE }, { start: 1002, duration: 5, name: 4, row: 3, kind: MODULE, depth: 1 });
  const one = parse(written(rows, names, events.sort((a, b) => a.row - b.row || a.start - b.start)));
  const table = (by, from = 0, to = 2000) => atOnce(figures(one, { from, to, group: groupOf(one, by) })).names.map(({ label, count, total }) => [label, count, total]);
  assert.deepEqual(table("name"), [["gemm", 2, 60], ["relu", 2, 20]]);
  assert.deepEqual(table("module"), [[NO_MODULE, 2, 40], ["model.0 (Linear)", 1, 30], ["model (Net)", 1, 10]]);
  assert.deepEqual(table("module", 1000, 1500), [["model.0 (Linear)", 1, 30], ["model (Net)", 1, 10]]);
  assert.deepEqual(table("stream"), [["H200, Stream 7", 2, 60], ["H200, Stream 9", 2, 20]]);
  const grids = atOnce(figures(model, { from: 0, to: 5000, group: groupOf(model, "grid") })).names.map((row) => row.label);
  assert.deepEqual(grids.sort(), ["(no grid)", "grid 8 × 1 × 1"]);
  assert.equal(atOnce(figures(model, { from: 0, to: 5000, group: groupOf(model, "module") })).names[0].label, NO_MODULE);
  const [head, lines] = groupCsv("Name", atOnce(figures(one, { from: 0, to: 2000 })).names, 80);
  assert.equal(csvText(head, lines), "name,calls,total_ns,share,average_ns,least_ns,most_ns\r\ngemm,2,60,0.75,30,30,30\r\nrelu,2,20,0.25,10,10,10\r\n");
  assert.equal(csvText(["a"], [['=1+1"x", y'], [-5]]), `a\r\n"'=1+1""x"", y"\r\n-5\r\n`);
});

test("tracks are pinned, hidden and filtered", () => {
  const choice = new Choice();
  const shown = () => layout(model, choice, 18).lines.map((line) => line.name);
  assert.deepEqual(shown(), ["H200", "Stream 7", "SMs Active", "CUDA", "CUDA API", "Threads", "Thread 1"]);
  choice.toggle("pinned", "Thread 1");
  assert.deepEqual(shown(), ["Pinned", "Thread 1", "H200", "Stream 7", "SMs Active", "CUDA", "CUDA API"]);
  choice.toggle("hidden", "CUDA API");
  choice.filter = "STREAM";
  assert.deepEqual(shown(), ["Pinned", "Thread 1", "H200", "Stream 7"]);
  assert.equal(layout(model, choice, 18).hidden, 2);
  choice.toggle("folded", "group:H200");
  assert.deepEqual(shown(), ["Pinned", "Thread 1", "H200"]);
  for (const line of layout(model, choice, 18).lines) assert.equal(line.tracks.length > 0, line.name !== "Pinned");
});

test("hits are listed in time or the longest first, and only so many", () => {
  const events = [{ start: 0, duration: 5 }, { start: 10, duration: 50 }, { start: 100, duration: 1 }, { start: 200, duration: 50 }];
  const one = parse(written([GPU], ["k"], events));
  const all = find(one, "k", false).events;
  assert.deepEqual(firstHits(one, all, "time", 3), [0, 1, 2]);
  assert.deepEqual(firstHits(one, all, "longest", 3), [1, 3, 0]);
});

test("sampled counters are read, averaged and drawn by their highest", () => {
  const counter = model.header.counters[0];
  assert.deepEqual([counter.name, counter.unit, counter.group, ceiling(counter)], ["SMs Active", "%", "H200", 100]);
  assert.deepEqual([...counter.values], [10, 30, 50, 70]);
  assert.equal(mean(counter, 0, 2000), 20);
  assert.equal(mean(counter, 1100, 1200), 30);
  assert.equal(mean(counter, 9000, 9100), null);
  assert.equal(reading(counter, 33.333), "33.3 %");
  assert.deepEqual([...counterColumns(counter, 0, 4000, 4)], [10, 30, 50, 70]);
  assert.deepEqual([...counterColumns(counter, 1000, 1200, 2)], [30, 30]);
  assert.equal(layout(model, new Choice(), 18).lines.filter((line) => line.counter).length, 1);
});
