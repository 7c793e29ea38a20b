// Draws the timelines that a page's markup asks for: <div data-timeline data-url data-worker data-name>.
import { TimelineView } from "./view.js";

export function mountTimelines(root) {
  return [...root.querySelectorAll("[data-timeline]")].map((box) => {
    const { url, worker, name } = box.dataset;
    return new TimelineView(box, { url, worker, name });
  });
}
