"""Tests that everything is drawn in the right position on every canvas, at 1, 1.5 and 2 device pixels per CSS pixel. Uses only the timeline's
modules, without a server."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route

from webapp.environment import ROOT

BASE = "http://pages.test"
SHEETS = ("tokens", "elements", "layout", "controls", "timeline-acts", "timeline", "timeline-figures", "timeline-difference")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Canvases</title>{sheets}<body>
<main class="wide"><div class="timeline-box large"></div></main>
<script type="module">
import {{ TimelineView }} from "/static/js/timeline/view.js";
window.view = new TimelineView(document.querySelector(".timeline-box"), {{ lanes: {lanes} }});
view.ready.then(() => view.draw());
view.element.addEventListener("timeline:rest", () => (window.rested = true));
</script></body></html>"""
RATIOS = pytest.mark.parametrize("ratio", [1, 1.5, 2])

# Finds where a colour starts and ends, in CSS pixels, on the line of a canvas `y` CSS pixels below its top; null if the colour does not occur.
EXTENT = """([canvas, y, colour]) => {
  const ratio = canvas.width / canvas.getBoundingClientRect().width;
  const wanted = colour.match(/\\d+/g).map(Number);
  const { data } = canvas.getContext("2d").getImageData(0, Math.floor(y * ratio), canvas.width, 1);
  const hits = [];
  for (let x = 0; x < canvas.width; x += 1) if (wanted.every((value, i) => Math.abs(data[4 * x + i] - value) <= 2)) hits.push(x);
  return hits.length ? [hits[0] / ratio, (hits.at(-1) + 1) / ratio] : null;
}"""
SCENE = """() => {  // a measured range, a mark, and a selected launch with the arrow to its kernel
  const [lane] = view.lanes, { model } = lane;
  const kernel = model.offsets[model.firstTrack[lane.devices[0].rows[0].index]] + 3;
  view.select(lane, model.launch[kernel] - 1);
  view.measure(lane, lane.span * 0.25, lane.span * 0.75);
  view.element.marks = [{ start_ns: lane.span * 0.8, end_ns: lane.span * 0.9, label: "here", id: 1 }];
  view.paint();
  const { painter } = lane, at = (time) => painter.x(time, lane.view), { start, duration } = model.columns;
  return {
    kernel, axis: painter.marks.map((mark) => mark.x), ratio: devicePixelRatio, width: painter.width, colours: painter.palette.text,
    measured: [at(lane.span * 0.25), at(lane.span * 0.75)], marked: [at(lane.span * 0.8), at(lane.span * 0.9)],
    event: [at(start[lane.selected]), at(start[lane.selected] + duration[lane.selected])], eventTop: painter.placeOf(lane.selected),
    tip: at(start[kernel]), tipAt: painter.placeOf(kernel) + (painter.placeOf(kernel) > painter.placeOf(lane.selected) ? 0 : painter.track - 2),
  };
}"""


@pytest.fixture(autouse=True)
def no_errors_in_the_page() -> None:
    """Replaces the fixture that uses a database. `opened` itself checks the console."""


@pytest.fixture
def opened(browser: Browser) -> Iterator:
    """Opens a page with one or two timelines at a device pixel ratio. Console messages fail the test."""
    contexts, said = [], []

    def enter(ratio: float, *names: str) -> Page:
        context = browser.new_context(device_scale_factor=ratio, viewport={"width": 1280, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        lanes = [{"url": f"/recorded/{name}", "name": name} for name in names]
        html = PAGE.format(sheets="".join(f'<link rel="stylesheet" href="/static/css/{name}.css">' for name in SHEETS), lanes=json.dumps(lanes))
        page.route(f"{BASE}/**", lambda route: answer(route, html))
        page.goto(f"{BASE}/")
        page.wait_for_function("window.rested")
        assert page.evaluate("devicePixelRatio") == ratio
        return page

    yield enter
    for context in contexts:
        context.close()
    assert not said


def answer(route: Route, html: str) -> None:
    path = route.request.url.removeprefix(BASE)
    if path == "/":
        return route.fulfill(body=html, content_type="text/html")
    file = ROOT / path.lstrip("/") if path.startswith("/static/") else ROOT / "tests/data" / f"{path.rpartition('/')[2]}.timeline"
    if not file.is_file():
        return route.fulfill(status=204 if path == "/favicon.ico" else 404)
    return route.fulfill(body=file.read_bytes(), content_type=mimetypes.guess_type(file.name)[0] or "application/octet-stream")


def extent(page: Page, canvas: str, y: float, colour: str) -> list[float] | None:
    return page.evaluate(EXTENT, [page.query_selector(canvas), y, colour])


@RATIOS
def test_axis_ranges_marks_and_arrows_stand_where_they_belong(opened, ratio: float):
    page = opened(ratio, "linear-norm-h200-nsys")
    scene = page.evaluate(SCENE)
    colours, canvas = scene["colours"], ".timeline-canvas"
    near = {"abs": 1.6}
    assert scene["ratio"] == ratio
    # The axis is as wide as the canvas, with a line at every tick, including the last one.
    line = extent(page, canvas, 23.5, colours["line"])
    assert line == pytest.approx([0, scene["width"]], abs=1.1)
    ticks = extent(page, canvas, 18.5, colours["line-strong"])
    assert ticks == pytest.approx([scene["axis"][0] - 0.5, scene["axis"][-1] + 0.5], **near)
    # The measured range, and the mark on the axis.
    assert extent(page, canvas, 21, colours["accent"]) == pytest.approx(scene["measured"], **near)
    assert extent(page, canvas, 20, colours["warn"]) == pytest.approx(scene["marked"], **near)
    # The outline of the selection, and the tip of the arrow to the kernel launched by the selected call.
    around = extent(page, canvas, scene["eventTop"], colours["text"])
    assert around == pytest.approx(
        [scene["event"][0] - 1, max(scene["event"][1], scene["event"][0] + 2) + 1], abs=2.6
    )  # its edges may lie between two pixels
    page.evaluate("view.measure(null), view.paint()")
    below = scene["tipAt"] - 4 if scene["tipAt"] > scene["eventTop"] else scene["tipAt"] + 4
    tip = extent(page, canvas, below, colours["accent"])
    assert tip is not None and tip[0] - 2 <= scene["tip"] <= tip[1] + 2


@RATIOS
def test_the_overview_shows_what_is_on_the_screen(opened, ratio: float):
    page = opened(ratio, "linear-norm-h200-nsys")
    window = page.evaluate(
        """() => {
          const [lane] = view.lanes;
          view.set(lane.span * 0.25, lane.span * 0.5);
          view.paint();
          return { from: lane.minimap.x(lane.view.from), to: lane.minimap.x(lane.view.to), width: lane.minimap.width };
        }"""
    )
    # A stroke of one CSS pixel that falls between device pixels is blended with its background, so its edges are counted from the neighbouring
    # column.
    edge = page.evaluate(
        """([canvas, y]) => {
          const ratio = canvas.width / canvas.getBoundingClientRect().width;
          const { data } = canvas.getContext("2d").getImageData(0, Math.round(y * ratio), canvas.width, 1);
          const far = (x) => Math.abs(data[4 * x] - data[0]) + Math.abs(data[4 * x + 1] - data[1]) + Math.abs(data[4 * x + 2] - data[2]) > 30;
          const hits = [...Array(canvas.width).keys()].filter(far);
          return [hits[0] / ratio, (hits.at(-1) + 1) / ratio];
        }""",
        [page.query_selector(".timeline-minimap"), 0],
    )
    assert edge == pytest.approx([window["from"], window["to"]], abs=1.6)
    assert window["from"] == pytest.approx(window["width"] * 0.25, abs=1)


@pytest.mark.parametrize("canvas", [".timeline-minimap", ".timeline-canvas"])
@RATIOS
def test_nothing_of_an_earlier_frame_shows_through(opened, ratio: float, canvas: str):
    """Compares a view with the same view drawn after a frame that reached the last column, which may be a fraction of a CSS pixel wide."""
    page = opened(ratio, "linear-norm-h200-nsys")
    pictures = page.evaluate(
        """([selector]) => {
          const [lane] = view.lanes, canvas = document.querySelector(selector);
          const shown = (from, to) => {
            view.set(lane.span * from, lane.span * to);
            view.paint();
            return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          };
          for (let frame = 0; frame < 20; frame += 1) shown(0.25, 0.5);
          const clean = shown(0.25, 0.5);
          shown(0, 1);
          const after = shown(0.25, 0.5);
          const through = clean.filter((value, i) => i % 4 === 3 && value < 255);
          return { differ: after.filter((value, i) => value !== clean[i]).length, through: through.length };
        }""",
        [canvas],
    )
    assert pictures == {"differ": 0, "through": 0}


@RATIOS
def test_two_overviews_are_on_one_scale(opened, ratio: float):
    page = opened(ratio, "linear-norm-h200-nsys", "softmax-h200-nsys")
    scales = page.evaluate(
        """() => view.lanes.map((lane) => {
          const { minimap, offset, span } = lane, { from, to } = view.bounds();
          return {
            from: minimap.x(from + offset), to: minimap.x(to + offset), middle: minimap.x((from + to) / 2 + offset),
            recorded: [minimap.x(0), minimap.x(span)], sunken: lane.painter.palette.text.sunken, width: minimap.width, span, whole: to - from,
          };
        })"""
    )
    for scale in scales:
        assert [scale["from"], scale["to"], scale["middle"]] == pytest.approx([0, scale["width"], scale["width"] / 2], abs=0.01)
        assert scale["recorded"][1] - scale["recorded"][0] == pytest.approx(scale["width"] * scale["span"] / scale["whole"], abs=0.01)
    shorter = min((0, 1), key=lambda at: scales[at]["span"])
    page.evaluate("view.set(view.bounds().from + 1, view.bounds().from + 100), view.paint()")
    canvas = f":nth-match(.timeline-lane .timeline-minimap, {shorter + 1})"
    assert page.locator(canvas).count() == 1
    drawn = extent(page, canvas, 34, scales[shorter]["sunken"])
    assert drawn is not None and drawn[1] == pytest.approx(scales[shorter]["recorded"][1], abs=1.6)


@RATIOS
def test_a_range_beside_the_recording_has_a_sentence_instead_of_figures(opened, ratio: float):
    page = opened(ratio, "linear-norm-h200-nsys", "softmax-h200-nsys")
    page.evaluate("window.rested = false, view.set(view.bounds().to - 60, view.bounds().to - 20)")
    page.wait_for_function("window.rested")
    page.wait_for_timeout(300)
    said = page.locator(".timeline-summary").all_inner_texts()
    assert "NaN" not in " ".join([*said, page.locator(".timeline-below").inner_text()])
    assert any("Nothing was recorded in this range" in text for text in said)


@RATIOS
def test_one_kernel_is_said_in_the_singular(opened, ratio: float):
    page = opened(ratio, "linear-norm-h200-nsys")
    page.evaluate(
        """() => {
          const [lane] = view.lanes, { model } = lane, { start, duration } = model.columns;
          const kernel = model.offsets[model.firstTrack[lane.devices[0].rows[0].index]] + 3;
          view.measure(lane, start[kernel], start[kernel] + duration[kernel]);
          view.paint();
        }"""
    )
    page.wait_for_function("document.querySelector('.timeline-summary').textContent.startsWith('Measured')")
    assert " · 1 kernel · " in page.locator(".timeline-summary").inner_text()
