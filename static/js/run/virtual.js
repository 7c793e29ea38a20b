// @ts-check
// A virtual list, which keeps only the rows near the view in the document. Row heights differ and are estimated until they are measured. The
// browser's scroll anchoring keeps the visible text in place while the heights above it become known.
import { h } from "./dom.js";

const FEW = 300; // up to this many rows, all are in the document, so that the browser's own search and printing include them
const OVERSCAN = 1; // screens above and below the view

// Row heights and their sums, stored in a Fenwick tree. Every operation is O(log n).
export class Heights {
  constructor() {
    this.count = 0;
    this.values = new Float64Array(1024);
    this.tree = new Float64Array(1025);
  }

  push(height) {
    if (this.count === this.values.length) {
      const grow = (old, size) => {
        const larger = new Float64Array(size);
        larger.set(old);
        return larger;
      };
      this.values = grow(this.values, this.count * 2);
      this.tree = grow(this.tree, this.count * 2 + 1);
    }
    this.values[this.count] = height;
    this.count += 1;
    let sum = height;
    const last = this.count;
    for (let at = last - 1; at > last - (last & -last); at -= at & -at) sum += this.tree[at];
    this.tree[last] = sum;
  }

  set(index, height) {
    const more = height - this.values[index];
    if (!more) return;
    this.values[index] = height;
    for (let at = index + 1; at <= this.count; at += at & -at) this.tree[at] += more;
  }

  // The total height of the first `count` rows.
  sum(count) {
    let sum = 0;
    for (let at = count; at > 0; at -= at & -at) sum += this.tree[at];
    return sum;
  }

  // The row at this distance from the top.
  find(offset) {
    let at = 0;
    let left = offset;
    for (let step = 1 << (31 - Math.clz32(this.count || 1)); step; step >>= 1) {
      if (at + step <= this.count && this.tree[at + step] <= left) {
        at += step;
        left -= this.tree[at];
      }
    }
    return Math.min(at, Math.max(0, this.count - 1));
  }
}

export class VirtualList {
  // `estimate(index)` returns a height in pixels and `build(index)` an element. `drawn()` is called after rows were added or removed.
  constructor({ scroller, list, estimate, build, drawn = () => {} }) {
    this.scroller = scroller;
    this.list = list;
    this.estimate = estimate;
    this.build = build;
    this.drawn = drawn;
    this.heights = new Heights();
    this.rows = new Map(); // index -> element
    this.indexes = new WeakMap(); // element -> index
    this.before = h("div", { class: "spacer", "aria-hidden": "true" });
    this.after = h("div", { class: "spacer", "aria-hidden": "true" });
    list.append(this.before, this.after);
    this.measurer = new ResizeObserver((entries) => {
      for (const { target, borderBoxSize } of entries) {
        const index = this.indexes.get(target);
        if (target.isConnected && index != null) this.heights.set(index, borderBoxSize[0].blockSize);
      }
    });
    scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
    new ResizeObserver(() => this.schedule()).observe(scroller);
  }

  get count() {
    return this.heights.count;
  }

  // Sets the number of rows to `count`.
  extend(count) {
    while (this.heights.count < count) this.heights.push(this.estimate(this.heights.count));
    this.render();
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.render();
    });
  }

  render() {
    if (this.count <= FEW) return this.place(0, this.count);
    const height = this.scroller.clientHeight;
    const top = this.scroller.scrollTop - this.list.offsetTop;
    this.place(this.heights.find(Math.max(0, top - height * OVERSCAN)), Math.min(this.count, this.heights.find(top + height * (1 + OVERSCAN)) + 1));
  }

  place(from, to) {
    let changed = false;
    for (const [index, row] of this.rows) {
      if (index >= from && index < to) continue;
      this.measurer.unobserve(row);
      row.remove();
      this.rows.delete(index);
      changed = true;
    }
    let next = this.before.nextSibling;
    for (let index = from; index < to; index += 1) {
      const known = this.rows.get(index);
      if (known) {
        next = known.nextSibling;
        continue;
      }
      const row = this.build(index);
      this.rows.set(index, row);
      this.indexes.set(row, index);
      this.measurer.observe(row);
      this.list.insertBefore(row, next);
      changed = true;
    }
    this.before.style.height = `${this.heights.sum(from)}px`;
    this.after.style.height = `${Math.max(0, this.heights.sum(this.count) - this.heights.sum(to))}px`;
    if (changed) this.drawn();
  }

  // Returns the row at `index`, after putting it into the document and measuring its neighbours.
  show(index) {
    if (index >= this.count) return null;
    if (this.count > FEW && !this.rows.has(index)) {
      const height = this.scroller.clientHeight || 600;
      const reach = (step, room) => {
        let at = index;
        for (let left = room; at + step >= 0 && at + step < this.count && left > 0; left -= this.heights.values[at]) at += step;
        return at;
      };
      this.place(reach(-1, height), reach(1, height * 2) + 1);
    }
    for (const [at, row] of this.rows) this.heights.set(at, row.getBoundingClientRect().height);
    return this.rows.get(index);
  }

  // Scrolls `element` to the fraction `share` of the view's height.
  scrollTo(element, share = 0) {
    const box = this.scroller.getBoundingClientRect();
    const at = element.getBoundingClientRect();
    this.scroller.scrollTop += at.top - box.top - Math.max(8, share * (box.height - Math.min(box.height, at.height)));
  }
}
