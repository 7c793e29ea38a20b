// @ts-check
// Levels of detail. For each block of 16, 256, 4096 ... events in a track, the longest event is stored. A frame that shows the whole span can then
// skip blocks that fit into one pixel column instead of visiting a million events. (As in Perfetto, a column shows its longest event.)
import { firstFrom, firstReaching } from "./tracks.js";

const BLOCK = 16;
const CROWDED = 64; // events per column above which a block of the lowest level is not split between two columns
export const NARROW = 1.5; // in pixels; a narrower event shares its column with others

export function buildLevels(model) {
  const { offsets } = model;
  const { duration } = model.columns;
  const tracks = offsets.length - 1;
  const levels = [];
  let below = null;
  for (let size = BLOCK; ; size *= BLOCK) {
    const starts = new Uint32Array(tracks + 1);
    let needed = false;
    for (let t = 0; t < tracks; t += 1) {
      const events = offsets[t + 1] - offsets[t];
      starts[t + 1] = starts[t] + Math.ceil(events / size);
      if (events > size) needed = true;
    }
    if (!needed) return levels;
    const longest = new Uint32Array(starts[tracks]);
    for (let t = 0; t < tracks; t += 1) {
      const blocks = starts[t + 1] - starts[t];
      for (let b = 0; b < blocks; b += 1) {
        const first = below ? below.offsets[t] + b * BLOCK : offsets[t] + b * BLOCK;
        const last = Math.min(first + BLOCK, below ? below.offsets[t + 1] : offsets[t + 1]);
        let best = below ? below.longest[first] : first;
        for (let k = first + 1; k < last; k += 1) {
          const other = below ? below.longest[k] : k;
          if (duration[other] > duration[best]) best = other;
        }
        longest[starts[t] + b] = best;
      }
    }
    below = { size, offsets: starts, longest };
    levels.push(below);
  }
}

// The contents of a track in the `width` columns of a frame. `longest[c]` is the event that represents the narrow ones in column c (-1 if none), and
// `cover[c]` is the fraction of the column that they fill. `boxes` are the events that are wide enough to be drawn individually.
export class Frame {
  resize(width) {
    if (width === this.width) return;
    this.width = width;
    this.longest = new Int32Array(width);
    this.cover = new Float32Array(width);
    this.boxes = new Int32Array(width + 2);
  }

  sweep(model, track, from, to) {
    const { width, longest, cover } = this;
    const { offsets, levels, sum } = model;
    const { start, duration } = model.columns;
    longest.fill(-1);
    cover.fill(0);
    this.count = 0;
    const scale = width / (to - from);
    const narrow = NARROW / scale; // ns
    const base = offsets[track];
    const end = offsets[track + 1];
    let k = firstReaching(model, track, from);
    const loose = firstFrom(model, track, to) - k > CROWDED * width ? 1 / scale : 0; // how far in ns such a block may extend beyond its column
    while (k < end && start[k] < to) {
      if (duration[k] >= narrow) {
        if (this.count < this.boxes.length && start[k] + duration[k] > from) this.boxes[this.count++] = k;
        k += 1;
        continue;
      }
      const column = Math.max(0, Math.floor((start[k] - from) * scale));
      if (column >= width) break;
      const limit = from + (column + 1) / scale;
      const first = k;
      let best = k;
      k += 1;
      while (k < end && start[k] < limit && duration[k] < narrow) {
        // Choose the largest block that begins here, ends in this column and contains no wide event.
        let chosen = k;
        let size = 1;
        for (const level of levels) {
          if ((k - base) % level.size !== 0 || start[Math.min(end, k + level.size) - 1] >= limit + (level.size === BLOCK ? loose : 0)) break;
          const candidate = level.longest[level.offsets[track] + (k - base) / level.size];
          if (duration[candidate] >= narrow) break;
          chosen = candidate;
          size = level.size;
        }
        if (duration[chosen] > duration[best]) best = chosen;
        k = Math.min(end, k + size);
      }
      cover[column] += (sum[k] - sum[first]) * scale;
      if (longest[column] < 0 || duration[best] > duration[longest[column]]) longest[column] = best;
    }
  }
}
