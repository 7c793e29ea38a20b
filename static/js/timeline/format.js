// Times of a timeline, given in nanoseconds, in the unit that reads best.
export function duration(ns) {
  if (ns == null || !Number.isFinite(ns)) return "–";
  const [value, unit] = ns >= 1e9 ? [ns / 1e9, "s"] : ns >= 1e6 ? [ns / 1e6, "ms"] : ns >= 1e3 ? [ns / 1e3, "µs"] : [ns, "ns"];
  return `${value >= 100 || unit === "ns" ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${unit}`;
}

// Marks of a time axis: round steps, about `wish` of them, and labels that tell neighbours apart.
export function ticks(from, to, wish) {
  const raw = (to - from) / Math.max(1, wish);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const [scale, unit] = to >= 1e9 && step >= 1e6 ? [1e9, "s"] : step >= 1e5 || to >= 1e7 ? [1e6, "ms"] : step >= 1e2 || to >= 1e4 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / scale) + 1e-9)));
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push({ at, label: `${(at / scale).toFixed(digits)} ${unit}` });
  return found;
}

export const share = (part) => `${(part * 100).toFixed((part > 0 && part < 0.1) || (part < 1 && part > 0.99) ? 1 : 0)} %`;
