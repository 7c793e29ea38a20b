// @ts-check
// Fetches a timeline's bytes, reports progress, and parses them, in a worker if there are many.
import { parse } from "./parse.js";

const BIG = 512 * 1024; // size in bytes above which a worker parses the file
const SHOW_PROGRESS = 4 * 1024 * 1024;

export async function load(url, { worker, signal, say }) {
  const answer = await fetch(url, { credentials: "same-origin", signal });
  if (answer.status === 404) throw new Error("the server has no such timeline; it may have been deleted with its run");
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const buffer = await received(answer, say);
  performance.mark("timeline:bytes", { detail: url });
  if (buffer.byteLength <= BIG || !worker) return parse(buffer);
  say("Reading the timeline …");
  return parseAside(buffer, worker, signal);
}

async function received(answer, say) {
  const size = Number(answer.headers.get("Content-Length")) || 0;
  if (size < SHOW_PROGRESS || answer.headers.get("Content-Encoding") || !answer.body) return answer.arrayBuffer();
  const bytes = new Uint8Array(size);
  let at = 0;
  let said = -1;
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) throw new Error("the server sent more than it had announced");
    bytes.set(value, at);
    at += value.length;
    const tenths = Math.floor((at / size) * 20);
    if (tenths !== said) say(`Loading the timeline: ${(at / 1e6).toFixed(1)} of ${(size / 1e6).toFixed(1)} MB`);
    said = tenths;
  }
  return at === size ? bytes.buffer : bytes.buffer.slice(0, at);
}

function parseAside(buffer, url, signal) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(url, { type: "module" });
    const end = (action) => (value) => {
      worker.terminate();
      action(value);
    };
    signal.addEventListener("abort", () => worker.terminate(), { once: true });
    worker.onmessage = end(({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data.model)));
    worker.onerror = end(() => reject(new Error("its bytes could not be read; there may be too little memory for a timeline of this size")));
    worker.postMessage(buffer, [buffer]);
  });
}
