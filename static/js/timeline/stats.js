// Figures of a range of the timeline. Times in nanoseconds.
import { firstReaching } from "./parse.js";

// Rows that stand for the device: its streams, or the threads where the device is the CPU.
export function deviceRows(model) {
  const gpu = model.rows.filter((row) => row.kind === "gpu" && row.events);
  return gpu.length ? gpu : model.rows.filter((row) => row.kind === "thread" && row.events);
}

// By name, over [from, to): how often, how long in all, on average, at least and at most. Nested time counts once, for the inner.
export function byName(model, rows, from, to) {
  const { start, duration, name } = model.columns;
  const sums = new Map();
  for (const row of rows) {
    for (let t = model.firstTrack[row.index]; t < model.firstTrack[row.index + 1]; t += 1) {
      for (let k = firstReaching(model, t, from); k < model.offsets[t + 1]; k += 1) {
        const i = model.order[k];
        if (start[i] >= to) break;
        const end = start[i] + duration[i];
        if (end <= from) continue;
        const inside = end > to || start[i] < from ? (Math.min(end, to) - Math.max(start[i], from)) / (duration[i] || 1) : 1;
        const own = model.own[i] * inside;
        let sum = sums.get(name[i]);
        if (!sum) sums.set(name[i], (sum = { name: name[i], count: 0, total: 0, least: Infinity, most: 0 }));
        sum.count += 1;
        sum.total += own;
        if (duration[i] < sum.least) sum.least = duration[i];
        if (duration[i] > sum.most) sum.most = duration[i];
      }
    }
  }
  return [...sums.values()].sort((a, b) => b.total - a.total);
}

// How much of [from, to) no row worked, and the gaps between what they did.
export function busy(model, rows, from, to) {
  const { start, duration } = model.columns;
  const heads = [];
  for (const row of rows) {
    if (!row.depths) continue;
    const t = model.firstTrack[row.index]; // what is nested lies within the first depth
    heads.push({ at: firstReaching(model, t, from), end: model.offsets[t + 1] });
  }
  let worked = 0;
  let until = from;
  let began = false;
  const gaps = [];
  for (;;) {
    let chosen = null;
    let first = Infinity;
    for (const head of heads) {
      if (head.at >= head.end) continue;
      const begin = start[model.order[head.at]];
      if (begin < first) {
        first = begin;
        chosen = head;
      }
    }
    if (!chosen || first >= to) break;
    const i = model.order[chosen.at++];
    const begin = Math.max(start[i], from);
    const end = Math.min(start[i] + duration[i], to);
    if (end <= until) continue;
    if (begin > until && began) gaps.push(begin - until);
    worked += end - Math.max(begin, until);
    until = end;
    began = true;
  }
  const sorted = Float64Array.from(gaps).sort(); // numbers sort several times faster here than in a plain array
  return { idle: to > from ? 1 - worked / (to - from) : 0, gaps: sorted.length, gap: sorted.length ? sorted[sorted.length >> 1] : null };
}
