// @ts-check
// Handles the pointer and the wheel on a lane, as in Perfetto. Dragging measures, shift-drag (or the middle button) pans, ctrl-wheel zooms at the
// pointer, shift-wheel pans, and the plain wheel scrolls the rows. Touch: one finger pans, two zoom, and a long press followed by a drag measures.
import { AXIS } from "./rows.js";

const LONG_PRESS = 450; // ms
const SNAP = 5; // in px; a measured edge snaps to an event's start or end within this distance

export class Input {
  constructor(box, lane) {
    this.box = box;
    this.lane = lane;
    this.pointers = new Map();
    this.at = null; // the position of the pointer over the canvas
    this.listen();
  }

  listen() {
    const { signal } = this.box.aborter;
    const on = (target, name, action, options = {}) => target.addEventListener(name, action, { signal, ...options });
    const { canvas, minimapCanvas } = this.lane;
    on(canvas, "focus", () => this.box.activate(this.lane));
    on(canvas, "wheel", (event) => this.wheel(event), { passive: false });
    on(canvas, "pointerdown", (event) => this.press(event));
    on(canvas, "pointermove", (event) => this.move(event));
    on(canvas, "pointerup", (event) => this.release(event));
    on(canvas, "pointercancel", () => this.end());
    on(canvas, "auxclick", (event) => event.preventDefault());
    on(canvas, "pointerleave", () => {
      this.at = null;
      this.lane.hoverAt(null);
    });
    on(canvas, "dblclick", (event) => {
      const found = this.lane.under(this.point(event));
      if (found >= 0) this.box.focusOn(this.lane, found);
    });
    on(minimapCanvas, "pointerdown", (event) => {
      minimapCanvas.setPointerCapture(event.pointerId);
      this.scrub(event);
    });
    on(minimapCanvas, "pointermove", (event) => event.buttons && this.scrub(event));
    on(minimapCanvas, "wheel", (event) => event.ctrlKey && this.wheel(event), { passive: false });
  }

  point(event) {
    const frame = this.lane.canvas.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  }

  time(x) {
    return this.lane.painter.time(x, this.lane.view);
  }

  wheel(event) {
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 240 : 1;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !sideways) return;
    event.preventDefault();
    if (sideways && !event.ctrlKey && !event.metaKey) {
      this.box.pan(((event.deltaX || event.deltaY) * unit) / this.lane.painter.width);
      return;
    }
    const by = Math.max(-240, Math.min(240, event.deltaY * unit));
    this.box.zoom(Math.exp(by * 0.0035), this.time(this.point(event).x) - this.lane.offset);
  }

  press(event) {
    if (event.button > 1) return;
    this.lane.canvas.focus({ preventScroll: true });
    try {
      this.lane.canvas.setPointerCapture(event.pointerId);
    } catch {
      // The pointer is already gone.
    }
    const at = this.point(event);
    this.pointers.set(event.pointerId, at);
    const touch = event.pointerType === "touch";
    this.drag = { at, range: { ...this.box.range }, moved: false, measuring: !touch && !event.shiftKey && event.button === 0 };
    clearTimeout(this.holding);
    if (touch && this.pointers.size === 1) {
      this.holding = setTimeout(() => {
        if (!this.drag || this.drag.moved) return;
        this.drag.measuring = true;
        navigator.vibrate?.(10);
        this.box.say("Measuring: drag to the other end.");
      }, LONG_PRESS);
    }
    if (this.pointers.size === 2) this.pinch = { distance: this.distance(), middle: this.time(this.centre()) - this.lane.offset, range: { ...this.box.range } };
  }

  distance() {
    const [a, b] = [...this.pointers.values()];
    return Math.max(8, Math.hypot(a.x - b.x, a.y - b.y));
  }

  centre() {
    const [a, b] = [...this.pointers.values()];
    return (a.x + b.x) / 2;
  }

  move(event) {
    const at = this.point(event);
    if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, at);
    if (this.pinch && this.pointers.size === 2) {
      const { distance, middle, range } = this.pinch;
      const factor = distance / this.distance();
      this.box.set(middle - (middle - range.from) * factor, middle + (range.to - middle) * factor);
      this.drag.moved = true;
      return;
    }
    if (!this.drag) {
      this.at = at;
      this.lane.hoverAt(at);
      return;
    }
    if (!this.drag.moved && Math.hypot(at.x - this.drag.at.x, at.y - this.drag.at.y) < 4) return;
    this.drag.moved = true;
    this.lane.hoverAt(null);
    if (this.drag.measuring) {
      const [a, b] = [this.edge(this.drag.at), this.edge(at)];
      this.box.measure(this.lane, Math.min(a, b), Math.max(a, b), this.lane.linesBetween(this.drag.at.y, at.y));
      return;
    }
    const by = ((at.x - this.drag.at.x) / this.lane.painter.width) * (this.drag.range.to - this.drag.range.from);
    this.box.set(this.drag.range.from - by, this.drag.range.to - by);
  }

  // The time under a point, or the start or end of the event there if it is very close.
  edge({ x, y }) {
    const found = y >= AXIS ? this.lane.under({ x, y }) : -1;
    const time = this.time(x);
    if (found < 0) return time;
    const { start, duration } = this.lane.model.columns;
    const { view, painter } = this.lane;
    for (const sticky of [start[found], start[found] + duration[found]]) if (Math.abs(painter.x(sticky, view) - x) <= SNAP) return sticky;
    return time;
  }

  release(event) {
    const { drag } = this;
    this.end(event.pointerId);
    if (!drag) return;
    if (drag.moved) {
      if (drag.measuring) this.box.measured(this.lane);
      return;
    }
    if (event.button === 1) return;
    const mark = drag.at.y < AXIS ? this.markAt(drag.at.x) : null;
    if (mark) this.box.openMark(this.lane, mark);
    else {
      const found = this.lane.under(this.point(event));
      if (found < 0 && this.lane.measure) this.box.measure(null);
      this.box.select(this.lane, found);
    }
  }

  markAt(x) {
    const { painter, view, marks } = this.lane;
    return marks.find((mark) => x >= painter.x(mark.start_ns, view) - 4 && x <= Math.max(painter.x(mark.end_ns, view), painter.x(mark.start_ns, view) + 6) + 4);
  }

  end(pointer = null) {
    clearTimeout(this.holding);
    if (pointer === null) this.pointers.clear();
    else this.pointers.delete(pointer);
    this.drag = this.pinch = null;
  }

  scrub(event) {
    const frame = this.lane.minimapCanvas.getBoundingClientRect();
    const time = this.lane.minimap.time(event.clientX - frame.left) - this.lane.offset;
    const wide = this.box.range.to - this.box.range.from;
    this.box.set(time - wide / 2, time + wide / 2);
  }
}
