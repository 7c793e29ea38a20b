// @ts-check
// Hardware counters that were sampled along with the events, such as the share of active multiprocessors.

// The index of the first sample at `time` or later.
export function sampleFrom({ times }, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (times[middle] >= time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The mean of the samples in [from, to). If there are none, the last sample before the range. Null outside the sampled time.
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

// The upper end of a counter's scale: 100 for a percentage, or else its highest sample.
export function ceiling(counter) {
  if (counter.unit === "%") return 100;
  if (counter.highest === undefined) counter.highest = counter.values.reduce((most, value) => Math.max(most, value), 0) || 1;
  return counter.highest;
}

// The highest sample in each of `width` columns of [from, to). A column without samples keeps the previous value, and is NaN outside the sampled
// time.
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
