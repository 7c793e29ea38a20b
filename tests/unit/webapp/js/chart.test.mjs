// The scale of speedup over attempts: intervals fill it, eager is always on it.
import assert from "node:assert/strict";
import test from "node:test";

import { scaleOf } from "../../../../static/js/run/chart.js";

for (const intervals of [[], [[1.17, 1.33], [1.34, 1.46]], [[0.4, 0.5]], [[7.88, 9.96], [0.9, 1.0]], [[80, 95]], [[600, 700]], [[0.98, 1.02]]]) {
  test(`intervals ${JSON.stringify(intervals)}`, () => {
    const { base, top, ticks } = scaleOf(intervals);
    const ends = intervals.flat();
    assert.ok(base >= 0 && base < 1 && top > 1);
    assert.ok(ends.every((end) => end > base && end < top));
    assert.ok(ticks.includes(1) && ticks.length >= 2 && ticks.length <= 7, ticks.join());
    assert.ok(ticks.every((tick) => tick >= base && tick <= top));
    assert.equal(new Set(ticks).size, ticks.length);
    if (ends.length) assert.ok(Math.max(1, ...ends) - Math.min(1, ...ends) > 0.5 * (top - base) || Math.max(...ends) < 1.25);
  });
}
