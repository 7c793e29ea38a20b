// @ts-check
// Formats times given in nanoseconds in the most readable unit.
export function duration(ns) {
  if (ns == null || !Number.isFinite(ns)) return "–";
  const size = Math.abs(ns);
  const [value, unit] = size >= 1e9 ? [ns / 1e9, "s"] : size >= 1e6 ? [ns / 1e6, "ms"] : size >= 1e3 ? [ns / 1e3, "µs"] : [ns, "ns"];
  const shown = Math.abs(value);
  return `${shown >= 100 || unit === "ns" ? value.toFixed(0) : shown >= 10 ? value.toFixed(1) : value.toFixed(2)} ${unit}`;
}

export const signed = (ns) => (ns > 0 ? `+${duration(ns)}` : ns < 0 ? `−${duration(-ns)}` : "0");

// The ticks of a time axis: about `wish` round steps, with labels precise enough to distinguish neighbours.
export function ticks(from, to, wish) {
  const raw = (to - from) / Math.max(1, wish);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const far = Math.max(Math.abs(from), Math.abs(to));
  const [scale, unit] = far >= 1e9 && step >= 1e6 ? [1e9, "s"] : step >= 1e5 || far >= 1e7 ? [1e6, "ms"] : step >= 1e2 || far >= 1e4 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / scale) + 1e-9)));
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push({ at, label: `${(at / scale).toFixed(digits).replace(/^-(0(\.0+)?)$/, "$1").replace("-", "−")} ${unit}` });
  return found;
}

export const percent = (part) => (!Number.isFinite(part) ? "–" : `${(part * 100).toFixed((part > 0 && part < 0.1) || (part < 1 && part > 0.99) ? 1 : 0)} %`);
export const count = (number) => number.toLocaleString("en");

// Shortens a kernel's name to fit: the full name, or else the function without types, namespaces and template arguments.
export function shortName(name) {
  const plain = name.replace(/^void /, "").replaceAll("<unnamed>", "unnamed").replaceAll("(anonymous namespace)", "unnamed");
  const end = plain.search(/[<(]/);
  const bare = end > 0 ? plain.slice(0, end) : plain;
  return (bare.includes("::") ? bare.slice(bare.lastIndexOf("::") + 2) : bare) || plain;
}
