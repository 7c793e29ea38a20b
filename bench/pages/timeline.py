"""Measures a million-event timeline: the time from the bytes to the first picture, and the frames of scripted zooms and pans.

A frame is the work of the page's main thread from the start of the animation frame, in which the timeline is drawn, until the thread is free again
after layout and painting. Performance marks in the page record the times.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

from bench.pages.big_timeline import big_timeline
from bench.pages.rows import PageFigure, percentile

EVENTS = 1_000_000
FIRST_PICTURE_MS = 1500
FRAME_MS = 16
LOADS = 3
PATIENCE_MS = 240_000  # timeout after which the page counts as broken, not just slow

# Makes 60 moves of each of these kinds, with one performance measure per frame, grouped by kind of move.
MOVES = """async (box) => {
  const view = box.timeline, channel = new MessageChannel();
  let free = null;
  channel.port1.onmessage = () => free();
  const frame = (name, move) => new Promise((resolve) => {
    move();
    requestAnimationFrame(() => {  // runs after the timeline's own, which the move asked for
      performance.mark("frame:end-of-script");
      free = () => { performance.measure(name, { start: began }); resolve(); };
      channel.port2.postMessage(0);
    });
  });
  let began = 0;
  const draw = view.paint.bind(view);
  view.paint = () => { began = performance.now(); draw(); };
  const gaps = [];
  const run = async (name, times, move) => {
    let before = performance.now();
    for (let i = 0; i < times; i += 1) {
      await frame(name, () => move(i));
      const now = performance.now();
      if (i) gaps.push(now - before);
      before = now;
    }
  };
  const span = view.bounds().to;
  await run("pan whole", 60, (i) => view.set(span * 0.02 * (i % 2), span * (0.98 + 0.02 * (i % 2))));
  await run("zoom in", 60, () => view.zoom(1 / 1.2, span * 0.4));
  await run("zoom out", 60, () => view.zoom(1.2, span * 0.4));
  for (const [name, part] of [["pan tenth", 0.1], ["pan hundredth", 0.01], ["pan thousandth", 0.001], ["pan ten-thousandth", 0.0001]]) {
    view.set(span * 0.5, span * (0.5 + part));
    await run(name, 60, () => view.pan(0.04));
  }
  view.fit();
  view.toolbar.search.value = "elementwise";
  view.search("elementwise", false);
  await run("zoom in, searching", 60, () => view.zoom(1 / 1.2, span * 0.6));
  view.search("", false);
  view.fit();
  view.paint = draw;
  const names = [...new Set(performance.getEntriesByType("measure").map((entry) => entry.name))].filter((name) => /^(pan|zoom)/.test(name));
  return { frames: Object.fromEntries(names.map((name) => [name, performance.getEntriesByName(name).map((entry) => entry.duration)])), gaps };
}"""


def prepare(seeded: Any) -> None:
    """Makes a run whose candidate has a million-event timeline."""
    from tests.browser import sample_run
    from webapp.accounts.models import User

    run = sample_run.create_run(User.objects.get(pk=seeded.user), "a million events")
    data = given() or big_timeline(EVENTS).to_bytes()
    sample_run.play(run, timeline_bytes=data)
    seeded.places["timeline"] = f"/runs/{run.pk}/timeline/{run.candidates.get(number=2).timeline.sha}/"


def given() -> bytes | None:
    """Returns a recorded timeline: STITCHWORK_TIMELINE names its file, as written by bench/nsys_large.py."""
    path = os.environ.get("STITCHWORK_TIMELINE")
    return gzip.decompress(Path(path).read_bytes()) if path else None


def measure(page: Any, base_url: str, seeded: Any) -> list[PageFigure]:
    first: list[float] = []
    for _ in range(LOADS):
        page.goto(base_url + seeded.places["timeline"])
        page.wait_for_selector(".timeline-summary b, .timeline-problem", timeout=PATIENCE_MS)  # the figures appear after the picture has been drawn
        if page.locator(".timeline-problem").count():
            raise RuntimeError(page.locator(".timeline-problem").inner_text())
        first.append(
            page.evaluate(
                "performance.getEntriesByName('timeline:picture')[0].startTime - performance.getEntriesByName('timeline:bytes')[0].startTime"
            )
        )
    events = page.evaluate("document.querySelector('.timeline-box').timeline.lanes[0].model.count")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _processor_seconds(session)
    found = page.locator(".timeline-box").evaluate(MOVES)
    spent = _processor_seconds(session) - before
    rows = [PageFigure(f"timeline of {events:,} events: first picture after the bytes", max(first), "ms", FIRST_PICTURE_MS, first)]
    every = [sample for samples in found["frames"].values() for sample in samples]
    rows.append(PageFigure("timeline: a frame of pan or zoom, p95", percentile(every, 0.95), "ms", FRAME_MS, every))
    rows += [
        PageFigure(f"timeline: a frame, {name}, p95", percentile(samples, 0.95), "ms", FRAME_MS, samples) for name, samples in found["frames"].items()
    ]
    # A figure that does not depend on the machine's load: processor time of the main thread, including everything between the frames.
    rows.append(PageFigure("timeline: processor time of a frame, mean", spent * 1e3 / len(every), "ms"))
    rows.append(PageFigure("timeline: from one frame to the next, p95", percentile(found["gaps"], 0.95), "ms"))
    rows.append(PageFigure("timeline: memory of the page's scripts", _memory(page) / 1e6, "MB"))
    return rows


def _processor_seconds(session: Any) -> float:
    """Returns the processor seconds that the page's main thread has spent on tasks."""
    return next(metric["value"] for metric in session.send("Performance.getMetrics")["metrics"] if metric["name"] == "TaskDuration")


def _memory(page: Any) -> float:
    """Returns the bytes that scripts hold after a garbage collection, including typed arrays."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    return usage["usedSize"] + usage.get("backingStorageSize", 0) + usage.get("embedderHeapUsedSize", 0)
