// What the pointer, the wheel and the keys do to a timeline: zoom at the pointer, drag to pan, shift-drag to measure, pinch.
const STEP = 1.25;

export class Input {
  constructor(timeline) {
    this.timeline = timeline;
    this.pointers = new Map();
    this.point0 = null; // where the pointer rests over the canvas
    this.listen();
  }

  listen() {
    const { signal } = this.timeline.aborter;
    const on = (target, name, action, options = {}) => target.addEventListener(name, action, { signal, ...options });
    on(this.timeline.canvas, "wheel", (event) => this.wheel(event), { passive: false });
    on(this.timeline.canvas, "pointerdown", (event) => this.press(event));
    on(this.timeline.canvas, "pointermove", (event) => this.move(event));
    on(this.timeline.canvas, "pointerup", (event) => this.release(event));
    on(this.timeline.canvas, "pointercancel", () => this.endDrag());
    on(this.timeline.canvas, "pointerleave", () => {
      this.point0 = null;
      this.timeline.hideTip();
    });
    on(this.timeline.canvas, "dblclick", (event) => {
      const found = this.timeline.under(this.timeline.point(event));
      if (found >= 0) this.timeline.focusOn(found);
    });
    on(this.timeline.canvas, "keydown", (event) => this.key(event));
    on(this.timeline.minimap, "pointerdown", (event) => this.scrub(event));
    on(this.timeline.minimap, "pointermove", (event) => event.buttons && this.scrub(event));
    on(this.timeline.search, "input", () => this.timeline.applySearch());
    on(this.timeline.search, "keydown", (event) => {
      if (event.key === "Enter") this.timeline.nextMatch(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") {
        this.timeline.search.value = "";
        this.timeline.applySearch();
        this.timeline.canvas.focus();
      }
    });
    const repaint = () => {
      this.timeline.painter.readColours();
      this.timeline.draw();
    };
    on(document, "themechange", repaint);
    on(matchMedia("(prefers-color-scheme: dark)"), "change", repaint);
  }

  wheel(event) {
    const { x } = this.timeline.point(event);
    if (x < this.timeline.painter.gutter && !event.ctrlKey) return; // over the labels the page scrolls
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.timeline.pan(((event.deltaX || event.deltaY) * unit) / (this.timeline.painter.width - this.timeline.painter.gutter));
      return;
    }
    this.timeline.zoom(Math.exp(Math.max(-240, Math.min(240, event.deltaY * unit)) * (event.ctrlKey ? 0.008 : 0.0022)), this.timeline.painter.time(x, this.timeline.view));
  }

  press(event) {
    if (event.button !== 0) return;
    this.timeline.canvas.focus({ preventScroll: true });
    this.timeline.canvas.setPointerCapture(event.pointerId);
    const at = this.timeline.point(event);
    this.pointers.set(event.pointerId, at);
    this.drag = { at, view: { ...this.timeline.view }, top: this.timeline.scroller.scrollTop, moved: false, measuring: event.shiftKey };
    if (this.pointers.size === 2) this.pinch = { distance: this.pinchDistance(), view: { ...this.timeline.view } };
  }

  pinchDistance() {
    const [a, b] = [...this.pointers.values()];
    return Math.max(8, Math.abs(a.x - b.x));
  }

  move(event) {
    const at = this.timeline.point(event);
    if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, at);
    if (this.pinch && this.pointers.size === 2) {
      const factor = this.pinch.distance / this.pinchDistance();
      const middle = (this.pinch.view.from + this.pinch.view.to) / 2;
      const wide = (this.pinch.view.to - this.pinch.view.from) * factor;
      this.timeline.set(middle - wide / 2, middle + wide / 2);
      return;
    }
    if (!this.drag) {
      this.point0 = at;
      this.timeline.hoverAt(at);
      return;
    }
    const dx = at.x - this.drag.at.x;
    if (!this.drag.moved && Math.hypot(dx, at.y - this.drag.at.y) < 4) return;
    this.drag.moved = true;
    this.timeline.hideTip();
    if (this.drag.measuring) {
      this.timeline.measure = { from: this.timeline.painter.time(this.drag.at.x, this.drag.view), to: this.timeline.painter.time(at.x, this.timeline.view), top: Math.min(this.drag.at.y, at.y), bottom: Math.max(this.drag.at.y, at.y) };
      this.timeline.draw();
      this.timeline.settle();
      return;
    }
    const by = (dx / (this.timeline.painter.width - this.timeline.painter.gutter)) * (this.drag.view.to - this.drag.view.from);
    this.timeline.set(this.drag.view.from - by, this.drag.view.to - by);
  }

  release(event) {
    const drag = this.drag;
    this.pointers.delete(event.pointerId);
    this.endDrag();
    if (!drag || drag.moved) return;
    const at = this.timeline.point(event);
    if (at.x < this.timeline.painter.gutter) {
      this.timeline.toggleRow(at);
      return;
    }
    const found = this.timeline.under(at);
    if (found < 0 && this.timeline.measure) {
      this.timeline.measure = null;
      this.timeline.settle();
    }
    this.timeline.select(found);
  }

  endDrag() {
    this.drag = null;
    this.pinch = null;
    this.pointers.clear();
  }

  scrub(event) {
    const box = this.timeline.minimap.getBoundingClientRect();
    const part = (event.clientX - box.left - this.timeline.painter.gutter) / (this.timeline.painter.width - this.timeline.painter.gutter);
    this.timeline.minimap.setPointerCapture(event.pointerId);
    const wide = this.timeline.view.to - this.timeline.view.from;
    this.timeline.set(part * this.timeline.span - wide / 2, part * this.timeline.span + wide / 2);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.point0 ? this.timeline.painter.time(Math.max(this.point0.x, this.timeline.painter.gutter), this.timeline.view) : undefined;
    const actions = {
      w: () => this.timeline.zoom(1 / STEP, at),
      s: () => this.timeline.zoom(STEP, at),
      a: () => this.timeline.pan(-0.15),
      d: () => this.timeline.pan(0.15),
      "+": () => this.timeline.zoom(1 / STEP),
      "=": () => this.timeline.zoom(1 / STEP),
      "-": () => this.timeline.zoom(STEP),
      ArrowLeft: () => this.timeline.pan(-0.15),
      ArrowRight: () => this.timeline.pan(0.15),
      ArrowUp: () => this.timeline.zoom(1 / STEP),
      ArrowDown: () => this.timeline.zoom(STEP),
      ".": () => this.timeline.step(1),
      ",": () => this.timeline.step(-1),
      0: () => this.timeline.fit(),
      Home: () => this.timeline.fit(),
      f: () => this.timeline.selected >= 0 && this.timeline.focusOn(this.timeline.selected),
      Enter: () => this.timeline.selected >= 0 && this.timeline.focusOn(this.timeline.selected),
      "/": () => this.timeline.search.focus(),
      Escape: () => {
        this.timeline.measure = null;
        this.timeline.select(-1);
        this.timeline.settle();
      },
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
