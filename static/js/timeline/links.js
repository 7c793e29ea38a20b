// Correlation: a CUDA call and what it launched share an id. For the arrows of the selection, launch latencies and causes of idle time.
const DENSE = 1 << 24; // a table by correlation up to here; the writer numbers them from 1

// Chains of events that share a correlation: head[c] is the first, next[i] the one after i. Index + 1, so that 0 ends a chain.
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

// Events that share the correlation of `event`, without itself, in time.
export function linked(model, event) {
  const c = model.columns.correlation[event];
  const found = [];
  if (!c || c >= model.links.head.length) return found;
  for (let at = model.links.head[c]; at !== 0; at = model.links.next[at - 1]) if (at - 1 !== event) found.push(at - 1);
  return found.sort((a, b) => model.columns.start[a] - model.columns.start[b] || a - b);
}

// For each event on a device, 1 + the call that launched it (the earliest with its correlation); 0 where none was recorded.
export function launches(model) {
  const { kind, correlation, start } = model.columns;
  const api = model.header.kinds.indexOf("api");
  const onDevice = model.header.kinds.map((name) => ["kernel", "memcpy", "memset", "graph"].includes(name));
  const { head, next } = model.links;
  const call = new Uint32Array(head.length); // by correlation
  for (let c = 1; c < head.length; c += 1) {
    for (let at = head[c]; at !== 0; at = next[at - 1]) if (kind[at - 1] === api && (call[c] === 0 || start[at - 1] < start[call[c] - 1])) call[c] = at;
  }
  const launch = new Uint32Array(kind.length);
  for (let i = 0; i < kind.length; i += 1) if (onDevice[kind[i]] && correlation[i] < call.length) launch[i] = call[correlation[i]];
  return launch;
}

// When CUDA graphs were launched whose kernels the recording lacks, ns: graphs recorded as a whole, or of which only the call was recorded.
export function hiddenGraphs(model) {
  const { start, kind, name } = model.columns;
  const [api, graph] = ["api", "graph"].map((text) => model.header.kinds.indexOf(text));
  const launching = model.header.names.map((text) => /^cu(da)?GraphLaunch/.test(text));
  const found = [];
  for (let i = 0; i < kind.length; i += 1) if (kind[i] === graph || (kind[i] === api && launching[name[i]] && !linked(model, i).length)) found.push(start[i]);
  return Float64Array.from(found).sort();
}
