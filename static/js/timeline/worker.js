// Parses a large timeline outside the page's thread.
import { parse, transferables } from "./parse.js";

self.onmessage = ({ data }) => {
  try {
    const model = parse(data);
    self.postMessage({ model }, transferables(model));
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
