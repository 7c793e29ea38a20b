// The columnar timeline of verifier/profiling/timeline.py as typed arrays, and the indices that drawing and searching need.
// Runs in a worker where the file is large. Throws an Error with a sentence where the bytes are not a timeline.

const MAGIC = "STWTL1\n";
const ARRAYS = { f8: Float64Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const DENSE_CORRELATIONS = 1 << 23; // below this a table by correlation, above it none is built for the rest

export function parse(buffer) {
  const bytes = new Uint8Array(buffer);
  if (buffer.byteLength < MAGIC.length + 4 || String.fromCharCode(...bytes.subarray(0, MAGIC.length)) !== MAGIC) throw new Error("this is not a Stitchwork timeline");
  const length = new DataView(buffer).getUint32(MAGIC.length, true);
  const begin = MAGIC.length + 4;
  if (begin + length > buffer.byteLength) throw new Error("the timeline is cut short");
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(begin, begin + length)));
  if (header.version !== 1) throw new Error(`this page cannot draw version ${header.version} of the timeline format`);
  const base = Math.ceil((begin + length) / 8) * 8;
  const columns = {};
  for (const { name, dtype, offset, length: count } of header.columns) {
    const Type = ARRAYS[dtype];
    if (!Type || base + offset + count * Type.BYTES_PER_ELEMENT > buffer.byteLength) throw new Error("the timeline is cut short");
    columns[name] = new Type(buffer.slice(base + offset, base + offset + count * Type.BYTES_PER_ELEMENT));
  }
  return build(header, columns);
}

// A track is one line of boxes: a row at one depth. Its events are sorted by start; `reach` is the latest end so far, so that a
// binary search finds what is visible even where events overlap.
function build(header, columns) {
  const count = columns.start.length;
  const rows = header.rows.map((row, index) => ({ ...row, index, depths: 0, events: 0 }));
  for (let i = 0; i < count; i += 1) {
    const row = rows[columns.row[i]];
    row.events += 1;
    if (columns.depth[i] >= row.depths) row.depths = columns.depth[i] + 1;
  }
  const firstTrack = new Uint32Array(rows.length + 1);
  rows.forEach((row, index) => (firstTrack[index + 1] = firstTrack[index] + row.depths));
  const tracks = firstTrack[rows.length];
  const offsets = new Uint32Array(tracks + 1);
  for (let i = 0; i < count; i += 1) offsets[firstTrack[columns.row[i]] + columns.depth[i] + 1] += 1;
  for (let t = 0; t < tracks; t += 1) offsets[t + 1] += offsets[t];
  const order = new Uint32Array(count);
  const place = new Uint32Array(count); // where an event stands in `order`
  const next = offsets.slice(0, tracks);
  for (let i = 0; i < count; i += 1) {
    const at = next[firstTrack[columns.row[i]] + columns.depth[i]]++;
    order[at] = i;
    place[i] = at;
  }
  const reach = new Float64Array(count);
  for (let t = 0; t < tracks; t += 1) {
    let end = 0;
    for (let k = offsets[t]; k < offsets[t + 1]; k += 1) {
      end = Math.max(end, columns.start[order[k]] + columns.duration[order[k]]);
      reach[k] = end;
    }
  }
  return { header, columns, count, rows, firstTrack, offsets, order, place, reach, own: selfTimes(columns, rows.length), links: correlations(columns.correlation) };
}

// Time of an event less that of the events within it, so that a table of operators does not count anything twice.
function selfTimes({ start, duration, row, depth }) {
  const own = Float64Array.from(duration);
  const open = [];
  let current = -1;
  for (let i = 0; i < start.length; i += 1) {
    if (row[i] !== current) {
      current = row[i];
      open.length = 0;
    }
    const level = depth[i];
    open.length = Math.min(open.length, level);
    const outer = level > 0 ? open[level - 1] : undefined;
    if (outer !== undefined && start[i] < start[outer] + duration[outer]) own[outer] = Math.max(0, own[outer] - duration[i]);
    open[level] = i;
  }
  return own;
}

// Chains of events that share a correlation: head[c] is the first, next[i] the one after i. Index + 1, so that 0 ends a chain.
function correlations(correlation) {
  let highest = 0;
  for (let i = 0; i < correlation.length; i += 1) if (correlation[i] > highest) highest = correlation[i];
  const known = Math.min(highest, DENSE_CORRELATIONS);
  const head = new Uint32Array(known + 1);
  const next = new Uint32Array(correlation.length);
  for (let i = correlation.length - 1; i >= 0; i -= 1) {
    const c = correlation[i];
    if (c === 0 || c > known) continue;
    next[i] = head[c];
    head[c] = i + 1;
  }
  return { head, next };
}

// Events that share the correlation of `event`, without itself.
export function linked(model, event) {
  const c = model.columns.correlation[event];
  const found = [];
  if (!c || c >= model.links.head.length) return found;
  for (let at = model.links.head[c]; at !== 0; at = model.links.next[at - 1]) if (at - 1 !== event) found.push(at - 1);
  return found;
}

// First place in track `t` whose events may reach beyond `time`.
export function firstReaching(model, t, time) {
  let low = model.offsets[t];
  let high = model.offsets[t + 1];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (model.reach[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The event of track `t` under `time`, give or take `slack`; -1 where there is none. The shortest one that holds it wins.
export function hit(model, t, time, slack) {
  const { start, duration } = model.columns;
  let best = -1;
  let distance = Infinity;
  for (let k = firstReaching(model, t, time - slack); k < model.offsets[t + 1]; k += 1) {
    const i = model.order[k];
    if (start[i] > time + slack) break;
    const end = start[i] + duration[i];
    const away = time < start[i] ? start[i] - time : time > end ? time - end : 0;
    if (away <= slack && (away < distance || (away === distance && best >= 0 && duration[i] < duration[best]))) {
      best = i;
      distance = away;
    }
  }
  return best;
}

export const transferables = (model) => [
  ...Object.values(model.columns).map((column) => column.buffer),
  ...[model.firstTrack, model.offsets, model.order, model.place, model.reach, model.own, model.links.head, model.links.next].map((array) => array.buffer),
];
