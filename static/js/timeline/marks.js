// @ts-check
// Ranges that other modules mark in a timeline, such as ranges with comments: `element.marks = [{start_ns, end_ns, label, id, sha?}]`. A mark without
// `sha` belongs to the first timeline of the box.

export function acceptMarks(box) {
  let marks = box.element.marks ?? [];
  Object.defineProperty(box.element, "marks", {
    configurable: true,
    get: () => marks,
    set: (given) => {
      marks = [...(given ?? [])];
      placeMarks(box);
    },
  });
}

export function placeMarks(box) {
  for (const lane of box.lanes) lane.marks = box.element.marks.filter((mark) => (mark.sha ? mark.sha === lane.sha : lane.index === 0));
  box.panels.showMarks();
  box.draw();
}
