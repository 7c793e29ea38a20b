// @ts-check
// The keyboard shortcuts of a timeline. They always work on its canvas. On the timeline's own page, they work anywhere and are listed in the help.
import { shortcut } from "../lib/keys.js";

const STEP = 1.25;

/** @type {[key: string, what: string, action: (box: TimelineView) => void][]} */
const KEYS = [
  ["w", "zoom in", (box) => box.zoom(1 / STEP, box.pointed())],
  ["s", "zoom out", (box) => box.zoom(STEP, box.pointed())],
  ["a", "pan left", (box) => box.pan(-0.15)],
  ["d", "pan right", (box) => box.pan(0.15)],
  [".", "next event of the row", (box) => box.step(1)],
  [",", "previous event of the row", (box) => box.step(-1)],
  ["f", "focus on the selected event or the measured range", (box) => box.focusOnSelection()],
  ["r", "measure the selected event", (box) => box.measureSelected(false)],
  ["R", "stretch the measured range to the selected event", (box) => box.measureSelected(true)],
  ["/", "search for a name", (box) => box.toolbar.search.focus()],
  ["n", "next match", (box) => box.nextMatch(1)],
  ["N", "previous match", (box) => box.nextMatch(-1)],
  ["0", "the whole span", (box) => box.fit()],
  ["Escape", "drop the measured range and the selection", (box) => box.clear()],
];
const MORE = { "+": "w", "=": "w", "-": "s", ArrowLeft: "a", ArrowRight: "d", ArrowUp: "w", ArrowDown: "s", Home: "0", Enter: "f", F: "f", W: "w", S: "s", A: "a", D: "d" };
const ACTIONS = new Map(KEYS.map(([key, , action]) => [key, action]));

export function keysOnCanvas(box, canvas, signal) {
  canvas.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const action = ACTIONS.get(event.key) ?? ACTIONS.get(MORE[event.key]);
      if (!action) return;
      event.preventDefault();
      action(box);
    },
    { signal },
  );
}

export function keysOnPage(box) {
  for (const [key, what, action] of KEYS) shortcut(key, what, () => action(box), "Timeline");
}
