// @ts-check
// Parses a large timeline outside the page's thread.
import { parse, transferables } from "./parse.js";

self.onmessage = ({ data }) => {
  try {
    const model = parse(data);
    self.postMessage({ model }, { transfer: transferables(model) });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
