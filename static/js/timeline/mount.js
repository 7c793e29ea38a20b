// @ts-check
// Draws the timelines declared in a page's markup: <div data-timeline data-worker data-lanes='[{"url", "name", "sha", "own"}]'>.
import { TimelineView } from "./view.js";

export function mountTimelines(root) {
  return [...root.querySelectorAll("[data-timeline]")].map((element) => {
    const { url, worker, name, lanes } = element.dataset;
    return new TimelineView(element, { url, worker, name, ...(lanes ? { lanes: JSON.parse(lanes) } : {}) });
  });
}
