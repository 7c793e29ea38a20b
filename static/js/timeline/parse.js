// @ts-check
// Reads the columnar timeline format of verifier/profiling/timeline.py as typed arrays over the received bytes, and checks it before anything is
// drawn. Runs in a worker if the file is large. Throws an Error with a sentence if the bytes are not a timeline.
import { correlations, hiddenGraphs, launches } from "./links.js";
import { buildLevels } from "./levels.js";
import { buildTracks } from "./tracks.js";

const MAGIC = "STWTL1\n";
const ARRAYS = { f8: Float64Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const COLUMNS = { start: "f8", duration: "f8", name: "u4", row: "u2", kind: "u1", correlation: "u4", depth: "u2", detail: "u4" };

/**
 * @typedef {{ start: Float64Array, duration: Float64Array, name: Uint32Array, row: Uint16Array, kind: Uint8Array, correlation: Uint32Array,
 *   depth: Uint16Array, detail: Uint32Array }} Columns
 */

/** @param {ArrayBuffer} buffer */
export function parse(buffer) {
  const { header, columns } = read(buffer);
  check(header, columns);
  header.counters = counters(buffer, header);
  const tracks = buildTracks(header, columns);
  const links = correlations(tracks.columns.correlation);
  const drawn = { header, count: tracks.columns.start.length, ...tracks, links };
  const launched = { ...drawn, launch: launches(drawn) };
  const model = { ...launched, hiddenGraphs: hiddenGraphs(launched) };
  return { ...model, levels: buildLevels(model) };
}

function read(buffer) {
  const bytes = new Uint8Array(buffer);
  if (buffer.byteLength < MAGIC.length + 4 || String.fromCharCode(...bytes.subarray(0, MAGIC.length)) !== MAGIC) throw new Error("these bytes are not a Stitchwork timeline");
  const length = new DataView(buffer).getUint32(MAGIC.length, true);
  const begin = MAGIC.length + 4;
  if (begin + length > buffer.byteLength) throw new Error("the timeline is cut short: its header does not end");
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(begin, begin + length)));
  } catch {
    throw new Error("the timeline is damaged: its header is not JSON");
  }
  if (header?.version !== 1) throw new Error(`this page cannot draw version ${header?.version} of the timeline format`);
  if (![header.columns, header.rows, header.names, header.kinds].every(Array.isArray)) throw new Error("the timeline is damaged: its header lacks columns, rows, names or kinds");
  const base = Math.ceil((begin + length) / 8) * 8;
  const columns = /** @type {Columns} */ ({});
  for (const { name, dtype, offset, length: count } of header.columns) {
    if (COLUMNS[name] !== dtype) continue; // a column added by a newer writer
    const Type = ARRAYS[dtype];
    const at = base + offset;
    if (!Number.isInteger(at) || at % Type.BYTES_PER_ELEMENT || !(count >= 0)) throw new Error(`the timeline is damaged: column ${name} has no place`);
    if (at + count * Type.BYTES_PER_ELEMENT > buffer.byteLength) throw new Error(`the timeline is cut short: column ${name} ends ${at + count * Type.BYTES_PER_ELEMENT - buffer.byteLength} bytes after the file does`);
    columns[name] = new Type(buffer, at, count);
  }
  const missing = Object.keys(COLUMNS).filter((name) => !columns[name]);
  if (missing.length) throw new Error(`the timeline is damaged: it has no column ${missing.join(", ")}`);
  header.base = base;
  return { header, columns };
}

// Sampled hardware counters: {name, group, unit, times (ns), values}. Older files have none.
function counters(buffer, { counters: listed = [], base }) {
  return listed.map(({ name, group, unit, offset, length }) => {
    const at = base + offset;
    if (!Number.isInteger(at) || at % 8 || !(length >= 0)) throw new Error(`the timeline is damaged: counter ${name} has no place`);
    if (at + length * 12 > buffer.byteLength) throw new Error(`the timeline is cut short: counter ${name} ends after the file does`);
    return { name, group, unit, times: new Float64Array(buffer, at, length), values: new Float32Array(buffer, at + length * 8, length) };
  });
}

// Every index must be valid, because the drawing code doesn't check again.
function check(header, { start, duration, name, row, kind, correlation, depth, detail }) {
  const count = start.length;
  if ([duration, name, row, kind, correlation, depth, detail].some((column) => column.length !== count)) throw new Error("the timeline is damaged: its columns differ in length");
  const [names, rows, kinds] = [header.names.length, header.rows.length, header.kinds.length];
  const details = header.details?.table?.length ?? 0;
  for (let i = 0; i < count; i += 1) {
    if (name[i] >= names || row[i] >= rows || kind[i] >= kinds || detail[i] > details) throw new Error(`the timeline is damaged: event ${i} names something that is not in its tables`);
    if (!(start[i] >= 0) || !(duration[i] >= 0) || start[i] + duration[i] === Infinity) throw new Error(`the timeline is damaged: event ${i} has no valid time`);
  }
}

// The buffers to transfer from the worker to the page without copying, each listed only once.
export function transferables(model) {
  const arrays = [...Object.values(model.columns), model.firstTrack, model.offsets, model.reach, model.sum, model.own, model.launch, model.hiddenGraphs, model.links.head, model.links.next];
  for (const { times, values } of model.header.counters) arrays.push(times, values);
  for (const level of model.levels) arrays.push(level.offsets, level.longest);
  return [...new Set(arrays.map((array) => array.buffer))];
}
