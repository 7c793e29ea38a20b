// @ts-check
// A CUDA call and the work that it launched share a correlation id, which is used for the arrows of the selection, launch latencies and causes of
// idle time.
const DENSE = 1 << 24; // highest correlation id in the table; the writer numbers the ids from 1

// Linked lists of the events that share a correlation id. head[c] is the first event, and next[i] is the one after i. Both hold the index + 1, so
// that 0 ends a list.
export function correlations(correlation) {
  let highest = 0;
  for (let i = 0; i < correlation.length; i += 1) if (correlation[i] > highest) highest = correlation[i];
  const known = Math.min(highest, DENSE);
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

// The other events with the same correlation id as `event`, in order of time.
export function linked(model, event) {
  const c = model.columns.correlation[event];
  const found = [];
  if (!c || c >= model.links.head.length) return found;
  for (let at = model.links.head[c]; at !== 0; at = model.links.next[at - 1]) if (at - 1 !== event) found.push(at - 1);
  return found.sort((a, b) => model.columns.start[a] - model.columns.start[b] || a - b);
}

// For each event on a device, 1 + the call that launched it (the earliest one with its correlation id), or 0 if none was recorded.
export function launches(model) {
  const { kind, correlation, start } = model.columns;
  const api = model.header.kinds.indexOf("api");
  const onDevice = model.header.kinds.map((name) => ["kernel", "memcpy", "memset", "graph"].includes(name));
  const { head, next } = model.links;
  const call = new Uint32Array(head.length); // indexed by correlation id
  for (let c = 1; c < head.length; c += 1) {
    for (let at = head[c]; at !== 0; at = next[at - 1]) if (kind[at - 1] === api && (call[c] === 0 || start[at - 1] < start[call[c] - 1])) call[c] = at;
  }
  const launch = new Uint32Array(kind.length);
  for (let i = 0; i < kind.length; i += 1) if (onDevice[kind[i]] && correlation[i] < call.length) launch[i] = call[correlation[i]];
  return launch;
}

// The launch times in ns of CUDA graphs whose kernels are missing from the recording, because only the graph as a whole or only the call was
// recorded.
export function hiddenGraphs(model) {
  const { start, kind, name } = model.columns;
  const [api, graph] = ["api", "graph"].map((text) => model.header.kinds.indexOf(text));
  const launching = model.header.names.map((text) => /^cu(da)?GraphLaunch/.test(text));
  const found = [];
  for (let i = 0; i < kind.length; i += 1) if (kind[i] === graph || (kind[i] === api && launching[name[i]] && !linked(model, i).length)) found.push(start[i]);
  return Float64Array.from(found).sort();
}
