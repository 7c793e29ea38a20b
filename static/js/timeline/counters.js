// Hardware counters that were sampled beside the events, such as the share of multiprocessors at work.

// Index of the first sample at `time` or later.
export function sampleFrom({ times }, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (times[middle] >= time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Mean of the samples in [from, to); where none falls in it, the sample that held there; null outside of what was sampled.
export function mean(counter, from, to) {
  const [first, last] = [sampleFrom(counter, from), sampleFrom(counter, to)];
  if (last > first) {
    let sum = 0;
    for (let i = first; i < last; i += 1) sum += counter.values[i];
    return sum / (last - first);
  }
  return first > 0 && first < counter.times.length ? counter.values[first - 1] : null;
}

export function reading({ unit }, value) {
  if (value == null) return "–";
  const text = Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1);
  return unit ? `${text} ${unit}` : text;
}

// The scale of a counter's line: 100 for a share, else its highest sample.
export function ceiling(counter) {
  if (counter.unit === "%") return 100;
  if (counter.highest === undefined) counter.highest = counter.values.reduce((most, value) => Math.max(most, value), 0) || 1;
  return counter.highest;
}

// The highest sample of each of `width` columns of [from, to); NaN where none falls. A column without one keeps the value before it.
export function columns(counter, from, to, width) {
  const found = new Float32Array(width).fill(NaN);
  const scale = width / (to - from);
  const first = sampleFrom(counter, from);
  for (let i = first; i < counter.times.length && counter.times[i] < to; i += 1) {
    const c = Math.min(width - 1, Math.max(0, Math.floor((counter.times[i] - from) * scale)));
    if (!(found[c] >= counter.values[i])) found[c] = counter.values[i];
  }
  let held = first > 0 ? counter.values[first - 1] : NaN;
  const end = counter.times.length ? (counter.times.at(-1) - from) * scale : -1;
  for (let c = 0; c < width; c += 1) {
    if (Number.isNaN(found[c])) found[c] = c <= end ? held : NaN;
    else held = found[c];
  }
  return found;
}
