// @ts-check
// A track is one line of boxes: a row at one depth. Events are sorted by (row, depth, start), so a track is a slice of every column, and a binary
// search finds the visible events.

export function buildTracks(header, columns) {
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
  const own = selfTimes(columns);
  const order = permutation(columns, firstTrack, offsets, tracks);
  const sorted = order ? Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, reorder(column, order)])) : columns;
  return { columns: sorted, own: order ? reorder(own, order) : own, rows, firstTrack, offsets, ...sums(sorted, offsets, tracks) };
}

// The new order of the events, or null if they are already sorted.
function permutation({ row, depth, start }, firstTrack, offsets, tracks) {
  const order = new Uint32Array(start.length);
  const next = offsets.slice(0, tracks);
  let moved = false;
  for (let i = 0; i < start.length; i += 1) {
    const at = next[firstTrack[row[i]] + depth[i]]++;
    order[at] = i;
    if (at !== i) moved = true;
  }
  return moved ? order : null;
}

function reorder(column, order) {
  const sorted = new column.constructor(column.length);
  for (let k = 0; k < order.length; k += 1) sorted[k] = column[order[k]];
  return sorted;
}

// `reach` is the latest end so far in the track, for tracks with overlapping events. `sum` is the total duration of all earlier events.
function sums({ start, duration }, offsets, tracks) {
  const reach = new Float64Array(start.length);
  const sum = new Float64Array(start.length + 1);
  for (let t = 0; t < tracks; t += 1) {
    let end = 0;
    for (let k = offsets[t]; k < offsets[t + 1]; k += 1) {
      const done = start[k] + duration[k];
      if (done > end) end = done;
      reach[k] = end;
      sum[k + 1] = sum[k] + duration[k];
    }
  }
  return { reach, sum };
}

// The time of an event minus that of the events directly inside it, so that a table of nested ranges counts nothing twice.
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
    if (level === 0 && open.length <= 1) {
      open[0] = i;
      continue;
    }
    open.length = Math.min(open.length, level);
    const outer = level > 0 ? open[level - 1] : undefined;
    if (outer !== undefined && start[i] < start[outer] + duration[outer]) own[outer] = Math.max(0, own[outer] - duration[i]);
    open[level] = i;
  }
  return own;
}

export const trackOf = (model, event) => model.firstTrack[model.columns.row[event]] + model.columns.depth[event];

// The first event of track `t` that may extend beyond `time`.
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

// The first event of track `t` that begins at `time` or later.
export function firstFrom(model, t, time) {
  const { start } = model.columns;
  let low = model.offsets[t];
  let high = model.offsets[t + 1];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (start[middle] >= time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The event of track `t` at `time`, within `slack`, or -1 if there is none. The nearest one wins, then the shortest.
export function hit(model, t, time, slack) {
  const { start, duration } = model.columns;
  let best = -1;
  let distance = Infinity;
  for (let k = firstReaching(model, t, time - slack); k < model.offsets[t + 1]; k += 1) {
    if (start[k] > time + slack) break;
    const end = start[k] + duration[k];
    const away = time < start[k] ? start[k] - time : time > end ? time - end : 0;
    if (away <= slack && (away < distance || (away === distance && best >= 0 && duration[k] < duration[best]))) {
      best = k;
      distance = away;
    }
  }
  return best;
}

// The busy time of track `t` in [from, to). It is exact if the events don't overlap, and never more than the range otherwise.
export function busyWithin(model, t, from, to) {
  return Math.min(to - from, Math.max(0, before(model, t, to) - before(model, t, from)));
}

function before(model, t, time) {
  const k = firstFrom(model, t, time);
  const first = model.offsets[t];
  if (k === first) return 0;
  const { start, duration } = model.columns;
  return model.sum[k] - model.sum[first] - Math.max(0, start[k - 1] + duration[k - 1] - time);
}
