"""The timeline's own page: keys, measuring, search, arrows, two timelines on one scale, export, links, marks, and bytes that are not a timeline."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from agents.events import NewEvent
from tests.browser import sample_run
from tests.browser.ratios import RATIOS
from verifier.profiling.annotating import with_ranges
from verifier.profiling.digest import ANNOTATED, digest
from verifier.profiling.recording import Recording
from verifier.profiling.timeline import Counter, Timeline
from webapp.environment import ROOT
from webapp.runs import artefacts
from webapp.runs.models import Run
from webapp.runs.trace.append import append

MEDIA_TYPE = "application/x-stitchwork-timeline"
PAINTED = "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
KERNEL_AT = """box => {  // where a kernel of the device stands on the canvas, in page coordinates
  const lane = box.timeline.lanes[0], { start, duration } = lane.model.columns;
  const event = lane.model.offsets[lane.model.firstTrack[lane.devices[0].rows[0].index]];
  const frame = lane.canvas.getBoundingClientRect();
  return { event, x: frame.left + lane.painter.x(start[event] + duration[event] / 2, lane.view), y: frame.top + lane.painter.placeOf(event) + 6 };
}"""


AXIS = 24  # height of the axis (static/js/timeline/rows.js)
AXIS_LINE = """(c, axis) => {  // colours of the line below the axis from end to end, and of what lies above and below its right end
  const ratio = c.width / c.clientWidth, context = c.getContext("2d");
  const row = y => Array.from(new Uint32Array(context.getImageData(0, Math.floor(y * ratio), c.width, 1).data.buffer));
  // the last pixel may be covered in part
  return { line: [...new Set(row(axis - 0.5).slice(0, -1))], above: row(axis - 9).at(-2), below: row(axis + 1).at(-2) };
}"""


def attach(run: Run, data: bytes, candidate: int | None = 1, name: str = "timeline.stwtl") -> str:
    """Attaches a timeline to an event of the run and returns its hash."""
    stored = artefacts.put(run.team_id, data, MEDIA_TYPE, name)
    append(run.pk, [NewEvent(kind="profile.attached", payload={"candidate": candidate, "tool": "nsys", "timeline": stored.model_dump()})])
    return stored.sha


@pytest.fixture
def run(people) -> Run:
    return sample_run.create_run(people.alice)


@pytest.fixture
def drawn(page: Page, server, sign_in, people, run):
    """Opens a timeline with the given bytes and waits until it is drawn."""

    def enter(data: bytes, link: str = "", **options) -> str:
        sha = attach(run, data, **options)
        sign_in(people.alice)
        page.goto(f"{server}/runs/{run.pk}/timeline/{sha}/{link}")
        expect(page.locator(".timeline-summary").last).to_contain_text("device idle")
        return sha

    return enter


def real() -> bytes:
    return sample_run.real_timeline(ROOT / "tests/data/nsys-convnet-h200.sqlite")


def recorded(name: str) -> bytes:
    return (Path(ROOT) / f"tests/data/{name}.timeline").read_bytes()


def shown(page: Page) -> dict:
    return page.locator(".timeline-box").evaluate(
        "box => ({...box.timeline.range, selected: box.timeline.active.selected, name: box.timeline.selectedName})"
    )


def drag(page: Page, canvas, begin: tuple[float, float], end: tuple[float, float]) -> None:
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + begin[0], box["y"] + begin[1])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0], box["y"] + end[1], steps=4)
    page.mouse.up()


@pytest.mark.slow
@RATIOS
def test_the_axis_spans_the_canvas_whatever_the_pixels(page: Page, drawn, ratio):
    drawn(real())
    assert page.evaluate("devicePixelRatio") == ratio
    seen = page.locator(".timeline-canvas").evaluate(AXIS_LINE, AXIS)
    assert len(seen["line"]) == 1 and seen["line"][0] not in (seen["above"], seen["below"]) and seen["above"] != seen["below"]


def test_keys_search_selection_and_arrows_on_a_real_export(page: Page, drawn):
    drawn(real())
    canvas, selected = page.locator(".timeline-canvas"), page.locator(".timeline-selected")
    assert canvas.evaluate(PAINTED) > 6
    expect(page.locator(".timeline-labels")).to_contain_text("Stream 13")
    whole = shown(page)
    # From anywhere on the page: zooming, panning, and returning to the full view.
    page.keyboard.press("w")
    page.keyboard.press("d")
    closer = shown(page)
    assert closer["to"] - closer["from"] < whole["to"] - whole["from"]
    page.keyboard.press("0")
    assert shown(page)["to"] == pytest.approx(whole["to"])
    # Search by text and by expression. An invalid expression keeps the typed text.
    page.keyboard.press("/")
    search = page.get_by_label("Find events by name")
    search.fill("elementwise")
    expect(page.locator(".found")).to_contain_text("events")
    search.press("Enter")
    expect(selected.locator("h3")).to_contain_text("elementwise")
    expect(selected).to_contain_text("grid")
    expect(selected).to_contain_text("launch latency")
    expect(page.locator(".found")).to_contain_text(re.compile(r"\d+ of \d+ events"))
    page.get_by_role("button", name="Regular expression").click()
    search.fill("^cudaLaunch.*(")
    expect(page.locator(".found")).to_contain_text("no regular expression")
    assert search.input_value() == "^cudaLaunch.*("
    search.fill("^cudaLaunch")
    search.press("Enter")
    expect(page.locator(".found")).to_contain_text(re.compile(r"\d+ of 91 events"))
    expect(selected.locator("h3")).to_contain_text("cudaLaunchKernel")
    # A launch leads to its kernel; keys then move along the row, focus on the kernel, and clear the selection.
    selected.get_by_role("button", name=re.compile("launches ")).first.click()
    kernel = shown(page)
    canvas.focus()
    page.keyboard.press(".")
    assert shown(page)["selected"] == kernel["selected"] + 1
    page.keyboard.press(",")
    assert shown(page)["selected"] == kernel["selected"]
    assert page.locator(".timeline-box").evaluate("box => box.timeline.active.partners.length") == 1
    page.keyboard.press("f")
    focused = shown(page)
    assert focused["to"] - focused["from"] < whole["to"] / 100
    page.keyboard.press("Escape")
    assert shown(page)["selected"] == -1
    # Rows can be folded by keyboard.
    group = page.get_by_role("button", name="NVIDIA H200", exact=True)
    group.press("Enter")
    expect(group).to_have_attribute("aria-expanded", "false")
    expect(page.locator(".timeline-labels")).not_to_contain_text("Stream 13")


@pytest.mark.slow
def test_a_drag_measures_and_its_figures_are_those_of_the_range(page: Page, drawn):
    sha = drawn(recorded("linear-norm-h200-nsys"))
    canvas, summary = page.locator(".timeline-canvas"), page.locator(".timeline-summary")
    expect(summary).to_contain_text("Whole span")
    page.evaluate("document.addEventListener('timeline:range', (event) => (window.measured = event.detail))")
    box = canvas.bounding_box()
    drag(page, canvas, (box["width"] * 0.25, 30), (box["width"] * 0.75, 60))
    expect(summary).to_contain_text("Measured 1.2")
    expect(page.locator(".table.names caption").last).to_contain_text("In the measured range, on Stream 7")
    expect(page.locator(".timeline-idle")).to_contain_text("waiting for the host")
    expect(page.locator(".timeline-where")).to_contain_text("idle")
    detail = page.evaluate("window.measured")
    assert detail["sha"] == sha and detail["rows"] == ["NVIDIA H200 / Stream 7"]
    assert 1.1e6 < detail["end_ns"] - detail["start_ns"] < 1.4e6
    # The view is in the URL and can be reopened.
    expect(page).to_have_url(re.compile(r"#m=\d+-\d+&rows="))
    page.reload()
    expect(summary).to_contain_text("Measured 1.2")
    page.keyboard.press("Escape")
    expect(summary).not_to_contain_text("Measured")
    # Shift-drag pans, ctrl-wheel zooms at the pointer, and a double click focuses.
    page.keyboard.press("w")
    before = shown(page)
    page.keyboard.down("Shift")
    drag(page, canvas, (600, 60), (500, 60))
    page.keyboard.up("Shift")
    after = shown(page)
    assert after["from"] > before["from"] and after["to"] - after["from"] == pytest.approx(before["to"] - before["from"])
    page.wait_for_timeout(300)
    said = summary.inner_text()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    expect(summary).not_to_have_text(said)
    assert shown(page)["to"] - shown(page)["from"] < after["to"] - after["from"]
    page.keyboard.press("0")
    at = page.locator(".timeline-box").evaluate(KERNEL_AT)
    page.mouse.dblclick(at["x"], at["y"])
    focused = shown(page)
    assert focused["selected"] == at["event"] and focused["to"] - focused["from"] < 300_000
    page.keyboard.press("r")
    expect(summary).to_contain_text("device idle 0 %")


def test_reference_and_candidate_on_one_scale(page: Page, server, sign_in, people, run):
    reference = attach(run, recorded("linear-norm-h200-nsys"), candidate=None)
    candidate = attach(run, recorded("softmax-h200-nsys"), candidate=1)
    sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/timeline/{reference}/?against={candidate}")
    expect(page.locator(".timeline-lane")).to_have_count(2)
    table = page.locator(".differences")
    expect(table.locator("caption")).to_contain_text("For one call of the model, from 5 and 5 recorded")
    expect(table).to_contain_text("row_softmax")
    expect(table.locator(".sum")).to_contain_text(["One call, idle time included", "All work on the device"])
    widths = page.locator(".timeline-box").evaluate("box => box.timeline.lanes.map((lane) => lane.view.to - lane.view.from)")
    assert widths[0] == widths[1]
    anchor = page.get_by_label("Align both by")
    expect(anchor.locator("option:checked")).to_have_text("the start of iter 1")
    anchor.select_option(label="the start of iter 3")
    offsets = page.locator(".timeline-box").evaluate(
        """box => box.timeline.lanes.map((lane) => {
          const { name, start } = lane.model.columns, iter = lane.model.header.names.indexOf("iter");
          return [lane.offset, [...start].filter((_, i) => name[i] === iter).sort((a, b) => a - b)[2]];
        })"""
    )
    assert all(offset == begin for offset, begin in offsets)
    expect(page).to_have_url(re.compile("anchor=3"))
    # Measuring in one timeline measures the same range in the other.
    canvas = page.locator(".timeline-canvas").first
    canvas.scroll_into_view_if_needed()
    drag(page, canvas, (500, 12), (700, 12))
    expect(page.locator(".timeline-summary").nth(0)).to_contain_text("Measured")
    expect(page.locator(".timeline-summary").nth(1)).to_contain_text("Measured")
    expect(table.locator("caption")).to_contain_text("In the measured range")
    # The difference comes first and takes up no more space than was reserved for it.
    assert page.locator(".timeline-first").bounding_box()["y"] < page.locator(".timeline-lane").first.bounding_box()["y"]
    page.get_by_label("Group the table by").select_option("stream")
    expect(table).to_contain_text("NVIDIA H200, Stream 7")
    if os.environ.get("SHOTS"):
        page.screenshot(path=f"{os.environ['SHOTS']}/two.png", full_page=True)
    page.get_by_role("link", name="Alone").click()
    expect(page.locator(".timeline-lane")).to_have_count(1)


@pytest.mark.slow
def test_marks_of_others_are_drawn_listed_and_clicked(page: Page, drawn):
    drawn(recorded("softmax-h200-nsys"))
    box = page.locator(".timeline-box")
    page.evaluate("document.addEventListener('timeline:mark', (event) => (window.opened = event.detail.id))")
    box.evaluate("box => { box.marks = [{ start_ns: 100000, end_ns: 200000, label: 'why so long?', id: 7 }] }")
    page.locator(".timeline-marks").get_by_role("button", name=re.compile("why so long")).click()
    assert page.evaluate("window.opened") == 7
    range_shown = shown(page)
    assert range_shown["from"] < 100000 and range_shown["to"] > 200000 and range_shown["to"] - range_shown["from"] < 200000
    box.evaluate("box => { box.marks = [] }")
    expect(page.locator(".timeline-marks")).to_be_hidden()


PERFETTO = """<!doctype html><title>Perfetto</title><script>
addEventListener("message", (event) => {
  if (event.data === "PING") event.source.postMessage("PONG", event.origin);
  else if (event.data.perfetto) document.title = new TextDecoder().decode(event.data.perfetto.buffer.slice(0, 20)) + event.data.perfetto.title;
});
</script>"""


@pytest.mark.slow
def test_export_and_open_in_perfetto(page: Page, drawn):
    drawn(recorded("linear-norm-h200-nsys"), candidate=None)
    page.locator("summary", has_text="Download").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Chrome trace").click()
    trace = json.loads(Path(download.value.path()).read_text())
    assert download.value.suggested_filename.endswith("reference.trace.json")
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == 125
    page.context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html"))
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open in Perfetto").click()
    expect(page.locator("#perfetto-status")).to_contain_text("Perfetto has the trace")
    expect(opened.value).to_have_title(re.compile('"displayTimeUnit".*softmax_rows: the reference'))
    page.context.set_offline(True)
    page.get_by_role("button", name="Open in Perfetto").click()
    expect(page.locator("#perfetto-status")).to_contain_text("This browser is offline")
    page.context.set_offline(False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PK\x03\x04 something else", "these bytes are not a Stitchwork timeline"),
        (recorded("softmax-h200-nsys")[:-300], "the timeline is cut short"),
    ],
    ids=["other", "short"],
)
def test_bytes_that_are_no_timeline_are_told_and_can_be_fetched(page: Page, server, sign_in, people, run, data, said):
    sha = attach(run, data)
    sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/timeline/{sha}/")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text(said)
    expect(problem.get_by_role("link", name="Download the file")).to_have_attribute("href", re.compile(sha))
    problem.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_contain_text(said)


@pytest.mark.slow
def test_touch_pans_and_a_narrow_page_fits(page: Page, drawn):
    page.set_viewport_size({"width": 390, "height": 844})
    drawn(recorded("linear-norm-h200-nsys"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    canvas = page.locator(".timeline-canvas")
    page.locator(".timeline-box").evaluate("box => box.timeline.zoom(0.25)")
    before = shown(page)
    touch = (
        "([canvas, name, x]) => { const frame = canvas.getBoundingClientRect(); canvas.dispatchEvent(new PointerEvent(name, "
        "{pointerType: 'touch', pointerId: 5, button: 0, bubbles: true, clientX: frame.left + x, clientY: frame.top + 60})) }"
    )
    handle = canvas.element_handle()
    for name, x in (("pointerdown", 200), ("pointermove", 180), ("pointermove", 120), ("pointerup", 120)):
        page.evaluate(touch, [handle, name, x])
    after = shown(page)
    assert after["from"] > before["from"] and after["to"] - after["from"] == pytest.approx(before["to"] - before["from"])


@pytest.mark.slow
def test_a_million_events_are_drawn_and_moved(page: Page, drawn):
    from bench.pages.big_timeline import big_timeline

    drawn(big_timeline(1_000_000).to_bytes())
    canvas, box = page.locator(".timeline-canvas"), page.locator(".timeline-box")
    assert canvas.evaluate(PAINTED) > 20
    for key in "wwwwwwddddaass":
        page.keyboard.press(key)
    assert canvas.evaluate(PAINTED) > 20
    page.get_by_label("Find events by name").fill("nccl")
    expect(page.locator(".found")).to_contain_text("events")
    page.get_by_label("Find events by name").press("Enter")
    expect(page.locator(".timeline-selected h3")).to_contain_text("nccl")
    # A frame that shows the whole span processes thousands of events, not a million.
    page.keyboard.press("Escape")
    looked = box.evaluate(
        """box => {
          box.timeline.fit();
          const lane = box.timeline.lanes[0], frame = lane.painter.frame;
          frame.sweep(lane.model, 0, 0, lane.span);
          return { columns: frame.longest.filter((event) => event >= 0).length, boxes: frame.count, events: lane.model.count };
        }"""
    )
    assert looked["events"] > 900_000 and looked["columns"] > 1000 and looked["boxes"] < 1000


def counted() -> bytes:
    """Returns the real export with sampled counters added, as in newer recordings."""
    timeline = Timeline.from_bytes(real())
    timeline.counters = [
        Counter(name, timeline.device, "%", times := np.linspace(0, 5e8, 400) + timeline.columns["start"].min(), 50 + 40 * np.sin(times / 3e7))
        for name in ("SMs Active", "DRAM Read Bandwidth")
    ]
    return timeline.to_bytes()


def test_tracks_hits_groups_and_counters(page: Page, drawn):
    drawn(counted())
    labels, tables = page.locator(".timeline-labels"), page.locator(".timeline-tables")
    expect(labels).to_contain_text("SMs Active")
    # Pinning, hiding and filtering.
    page.get_by_role("button", name="Pin to the top: Stream 13").press("Enter")
    expect(labels.locator(".line").first).to_contain_text("Pinned")
    expect(labels.locator(".line").nth(1)).to_contain_text("Stream 13")
    page.get_by_role("button", name="Hide: SMs Active").press("Enter")
    expect(labels).not_to_contain_text("SMs Active")
    page.get_by_label("Show only tracks whose name contains").fill("stream 7")
    expect(labels.locator(".line:not(.group)")).to_have_count(2)  # pinned rows stay
    page.get_by_role("button", name=re.compile("tracks hidden: show")).click()
    expect(labels).to_contain_text("SMs Active")
    # Hits are listed, longest first if requested. A hit leads to its event and its launch parameters.
    page.get_by_label("Find events by name").fill("elementwise")
    hits = page.locator(".timeline-hits")
    expect(hits.locator("h3")).to_have_text(re.compile(r"\d+ hits"))
    page.get_by_label("Order of the hits").select_option("longest")
    hits.get_by_role("button").first.click()
    selected = page.locator(".timeline-selected")
    expect(selected).to_contain_text("registers a thread")
    expect(selected).to_contain_text("threads")
    expect(selected).to_contain_text("Counters while it ran")
    # The table changes its grouping and is exported to a file.
    page.keyboard.press("Escape")
    page.get_by_label("Group the table by").select_option("grid")
    expect(tables.locator("tbody tr").first).to_contain_text("grid ")
    with page.expect_download() as download:
        tables.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "timeline-by-grid.csv"
    assert Path(download.value.path()).read_text().startswith("grid and block,calls,total_ns,share,average_ns,least_ns,most_ns\n")
    if os.environ.get("SHOTS"):
        page.screenshot(path=f"{os.environ['SHOTS']}/one.png", full_page=True)
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(400)
        page.screenshot(path=f"{os.environ['SHOTS']}/one-390.png", full_page=True)


def with_modules() -> bytes:
    """Returns a recording of two calls of a model, whose ranges come from a third call as `verifier/profiling/annotating.py` transfers them."""
    recording = Recording("nsys", "NVIDIA H200")
    host, nvtx, stream = ("api", "CUDA API, thread 1", "CUDA"), ("nvtx", "NVTX, thread 1", "NVTX"), ("gpu", "Stream 7", "NVIDIA H200")
    kernels = ("gemm", "relu", "row_softmax")
    for number, begin in enumerate((0, 100_000, 200_000)):
        recording.add(nvtx, "nvtx", "iter" if number < 2 else ANNOTATED, begin, 50_000)
        for at, name in enumerate(kernels):
            pair = (1, 10 * number + at + 1)
            recording.add(host, "api", "cudaLaunchKernel", begin + 10_000 * at + 2000, 1000, pair)
            recording.add(stream, "kernel", name, begin + 10_000 * at + 6000, 3000, pair)
    modules, operators = ("nvtx", "Modules, thread 1", "NVTX"), ("nvtx", "Operators, thread 1", "NVTX")
    recording.add(modules, "module", "model (Sequential)", 200_500, 30_000)
    for at, (module, operator) in enumerate((("0 (Linear)", "aten::linear"), ("1 (ReLU)", "aten::relu"), ("2 (Softmax)", "aten::softmax"))):
        recording.add(modules, "module", module, 201_000 + 10_000 * at, 5000)
        recording.add(operators, "operator", operator, 201_500 + 10_000 * at, 4000)
    timeline = recording.timeline()
    return with_ranges(timeline).crop(*digest(timeline, lambda name: name == "row_softmax", on_device=True).window).to_bytes()


def test_modules_and_operators_have_rows_and_group_the_kernels(page: Page, drawn):
    drawn(with_modules())
    labels, tables = page.locator(".timeline-labels"), page.locator(".timeline-tables")
    for row in ("Stream 7", "Modules, thread 1", "Operators, thread 1"):
        expect(labels).to_contain_text(row)
    # Every measured call has the ranges, and the modules inside the model are a line below it.
    found = page.locator(".timeline-box").evaluate(
        """box => {
          const { model, painter } = box.timeline.lanes[0], { name, kind, depth } = model.columns;
          const of = [...kind.keys()].filter((event) => model.header.kinds[kind[event]] === "module");
          return of.map((event) => [model.header.names[name[event]], depth[event], painter.placeOf(event) !== null]);
        }"""
    )
    inner = [["0 (Linear)", 1, True], ["1 (ReLU)", 1, True], ["2 (Softmax)", 1, True]]
    assert sorted(found) == sorted(2 * [["model (Sequential)", 0, True], *inner])
    page.get_by_label("Find events by name").fill("2 (Softmax)")
    expect(page.locator(".timeline-hits h3")).to_have_text("2 hits")
    page.keyboard.press("Escape")
    page.get_by_label("Group the table by").select_option("module")
    rows = tables.locator("tbody tr")
    expect(rows).to_have_count(3)
    for module in ("0 (Linear)", "1 (ReLU)", "2 (Softmax)"):
        expect(rows.filter(has_text=module)).to_contain_text("33 %")
    # A row of modules can be hidden, and the table keeps its groups.
    page.get_by_role("button", name="Hide: Modules, thread 1").press("Enter")
    expect(labels).not_to_contain_text("Modules, thread 1")
    expect(rows).to_have_count(3)
