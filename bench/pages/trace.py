"""Measures the trace explorer: the time until 20,000 events and 50 MB are usable, scrolling at 60 frames per second, search, deep links, and
memory."""

from __future__ import annotations

import re

from bench.pages.rows import PageFigure, percentile
from bench.pages.seed import Seeded

OPENINGS = 5
OPEN_BAR_MS = 2000.0
FRAME_BAR_MS = 17.5  # a frame at 60 per second takes 16.7 ms; the remainder allows for the browser's clock
STEP_PX = 40  # 2,400 px per second, as for a fast reader
PATIENCE_MS = 60_000
FOUND = re.compile(r"^[\d,]+ found$")

# When the page reported that it was ready, and when the next frame was drawn.
WATCH_READY = """
const watch = () => {
  if (document.getElementById("run")?.dataset.ready !== "1") return requestAnimationFrame(watch);
  requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.usable = performance.now(); }));
};
requestAnimationFrame(watch);
"""
# Scrolls from the current position, `step` pixels per frame, and returns the time of each frame in ms.
SCROLL = """
async ({step, frames}) => {
  const box = document.querySelector("[data-part=scroller]");
  const times = [];
  let last = null;
  for (let frame = 0; frame < frames; frame += 1) {
    const now = await new Promise(requestAnimationFrame);
    if (last != null) times.push(now - last);
    last = now;
    box.scrollTop += step;
    if (box.scrollTop <= 0) step = Math.abs(step);
  }
  return times;
}
"""


def measure(page, base_url: str, seeded: Seeded) -> list[PageFigure]:
    rows: list[PageFigure] = []
    for name, run in (("20,000 events", seeded.trace), ("50 MB", seeded.heavy)):
        rows += opened(page, f"{base_url}/runs/{run}/", name)
        rows += scrolled(page, name)
        rows += searched(page, name)
    rows += linked(page, f"{base_url}/runs/{seeded.trace}/", 9_000)
    return rows


def opened(page, url: str, name: str) -> list[PageFigure]:
    """Opens the page, each time in a new context with an empty cache."""
    samples = []
    state = page.context.storage_state()
    for _ in range(OPENINGS):
        context = page.context.browser.new_context(storage_state=state, viewport=page.viewport_size)
        fresh = context.new_page()
        samples.append(until_usable(fresh, url))
        context.close()
    again = until_usable(page, url)
    return [
        PageFigure(f"trace, {name}: usable, slowest of {OPENINGS}", max(samples), "ms", OPEN_BAR_MS, samples),
        PageFigure(f"trace, {name}: opened again", again, "ms"),
    ]


def until_usable(page, url: str) -> float:
    page.add_init_script(WATCH_READY)
    page.goto(url)
    page.wait_for_selector("html[data-usable]", timeout=PATIENCE_MS)
    return page.evaluate("Number(document.documentElement.dataset.usable)")


def scrolled(page, name: str) -> list[PageFigure]:
    page.wait_for_timeout(1000)
    slow = page.evaluate(SCROLL, {"step": -STEP_PX, "frames": 400})
    fast = page.evaluate(SCROLL, {"step": -STEP_PX * 10, "frames": 200})
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    elements = page.evaluate("document.querySelectorAll('*').length")
    return [
        PageFigure(f"trace, {name}: frame while scrolling, p95", percentile(slow, 0.95), "ms", FRAME_BAR_MS, slow),
        PageFigure(f"trace, {name}: frame while scrolling ten times as fast, p95", percentile(fast, 0.95), "ms", None, fast),
        PageFigure(f"trace, {name}: memory of the page", heap, "MB"),
        PageFigure(f"trace, {name}: elements", elements, ""),
    ]


def searched(page, name: str) -> list[PageFigure]:
    """Measures the time from the last keystroke until the hit count for the whole trace appears, including the pause after that keystroke (0.22
    s)."""
    samples = []
    for word in ("occupancy", "registers spill", '"nothing says this"'):
        page.keyboard.press("Escape")
        page.locator("[data-part=find] [name=q]").fill(word)
        begun = page.evaluate("performance.now()")
        page.locator("[data-part=find-count]").filter(has_text=FOUND).wait_for(timeout=PATIENCE_MS)
        samples.append(page.evaluate("performance.now()") - begun)
    page.keyboard.press("Escape")
    return [PageFigure(f"trace, {name}: search, slowest of {len(samples)}", max(samples), "ms", None, samples)]


def linked(page, url: str, event: int) -> list[PageFigure]:
    """Opens a link to an event in the middle and waits until its entry is visible."""
    page.goto("about:blank")
    page.add_init_script(WATCH_READY)
    page.goto(f"{url}#event={event}")
    page.wait_for_selector(".entry.selected", timeout=PATIENCE_MS)
    spent = page.evaluate("performance.now()")
    inside = page.evaluate(
        "(() => { const b = document.querySelector('.entry.selected').getBoundingClientRect(); return b.top < innerHeight && b.bottom > 0; })()"
    )
    if not inside:
        raise RuntimeError("the entry that the link points at is not in view")
    return [PageFigure("trace, 20,000 events: a link to its middle", spent, "ms", OPEN_BAR_MS, [spent])]
