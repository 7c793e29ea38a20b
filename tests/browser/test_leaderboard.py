"""The leaderboard in a browser: filtering and drilling down, pinning with p, the heat map by keyboard, export, a retracted result, light and dark."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.unit.webapp.ranked import make_ranked, make_suite
from webapp.review import verdicts
from webapp.runs.models import Run

TASKS = {"1_a": 4.0, "2_b": 2.0, "3_c": 1.2, "4_d": None}


@pytest.fixture
def ranked(people) -> Run:
    """Creates two entries on a suite of four tasks, and returns the run of the fastest result."""
    make_suite(people.alice, list(TASKS))
    runs = [make_ranked(people.alice, task, ratio, dollars=0.2, llm="gpt-x") for task, ratio in TASKS.items()]
    make_ranked(people.alice, "2_b", 1.5)
    make_ranked(people.alice, "2_b", 1.3, precision="bf16")
    return runs[0]


def board(page: Page, server: str, query: str = "suite=kernelbench-level3&against=eager") -> Page:
    page.goto(f"{server}/leaderboard/?{query}")
    return page


def row(page: Page, entry: str):
    return page.locator("table.board tbody tr", has=page.get_by_role("link", name=entry, exact=True))


def test_filter_and_drill_down_to_the_evidence(server, ranked, people, sign_in):
    page = board(sign_in(people.alice), server)
    expect(row(page, "stitch · gpt-x")).to_contain_text("3/4")
    page.get_by_label("LLM").focus()
    page.get_by_label("LLM").select_option("built-in")
    page.wait_for_url("**/leaderboard/?suite=kernelbench-level3&*llm=built-in*")
    expect(row(page, "stitch · gpt-x")).to_have_count(0)
    expect(row(page, "stitch · built-in")).to_contain_text("1/4")
    assert page.evaluate("document.activeElement.name") == "llm", "the focus stays where the choice was made"
    page.go_back()
    expect(row(page, "stitch · gpt-x")).to_contain_text("3/4")
    expect(page.get_by_label("LLM")).to_have_value("")
    page.get_by_role("link", name="Cost per run").click()
    page.wait_for_url("**sort=dollars*")
    expect(page.locator("table.board tbody tr").first).to_contain_text("stitch · built-in")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="stitch · gpt-x")).to_be_visible()
    lines = page.locator("table.board tbody tr")
    expect(lines).to_have_count(4)
    expect(lines.first).to_contain_text("1_a")
    expect(lines.last).to_contain_text("4_d")
    page.get_by_role("link", name="Evidence of 1_a").click()
    page.wait_for_url(f"**/runs/{ranked.pk}/candidates/1/?verification=*")


@pytest.mark.slow
def test_p_is_pinned_by_pointer_keyboard_and_address(server, ranked, people, sign_in):
    page = board(sign_in(people.alice), server)
    chart = page.get_by_role("slider")
    expect(chart).to_have_attribute("aria-valuenow", "1", timeout=30_000)
    legend = page.locator("[data-legend] li", has_text="stitch · gpt-x")
    expect(legend).to_contain_text("4/4")
    expect(legend).to_contain_text("75 %")
    chart.focus()
    page.keyboard.press("PageUp")
    page.wait_for_url("**p=1.5*")
    expect(legend).to_contain_text("50 %")
    expect(row(page, "stitch · gpt-x").locator("[data-fast]")).to_have_text("50 %")
    place = chart.bounding_box()
    chart.click(position={"x": place["width"] * 0.9, "y": 100})
    expect(legend).to_contain_text("25 %")
    pinned = page.get_by_label("p", exact=True).input_value()
    assert float(pinned) > 2
    page.wait_for_url(f"**p={pinned}*")
    page.reload()
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuenow", pinned, timeout=30_000)
    expect(page.locator("[data-fast-name]")).to_have_text(f"fast_{pinned}")
    page.locator(".plot-table summary").first.click()
    expect(page.get_by_role("region", name="fast_p of each entry, as a table")).to_contain_text("stitch · gpt-x")


@pytest.mark.slow
def test_the_grid_of_tasks_by_keyboard(server, ranked, people, sign_in):
    page = board(sign_in(people.alice), server)
    page.locator("[data-heat]").scroll_into_view_if_needed()
    grid = page.get_by_role("grid")
    expect(grid.get_by_role("link", name="1_a, stitch · gpt-x: 4.00×, faster")).to_be_visible(timeout=30_000)
    grid.get_by_role("link", name="1_a, stitch · gpt-x").focus()
    for key, told in [
        ("ArrowRight", "2_b, stitch · gpt-x: 2.00×, faster"),
        ("End", "4_d, stitch · gpt-x: tried without a result"),
        ("ArrowDown", "4_d, stitch · built-in: not tried"),
    ]:
        page.keyboard.press(key)
        expect(page.locator("[data-heat-told]")).to_have_text(told)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{ranked.pk}/candidates/1/**")


@pytest.mark.slow
def test_cost_against_speedup_is_read_by_keyboard(server, ranked, people, sign_in):
    page = board(sign_in(people.alice), server)
    chart = page.get_by_label("Geometric mean of each entry against what a run costs", exact=True)
    chart.scroll_into_view_if_needed()
    expect(chart).to_have_attribute("data-drawn", "", timeout=30_000)
    expect(chart).to_have_attribute("tabindex", "0")
    chart.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#live-region")).to_contain_text("1. stitch · gpt-x: 1.76 times")
    page.get_by_role("button", name="time").click()
    expect(page.get_by_role("button", name="time")).to_have_attribute("aria-pressed", "true")
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="stitch · gpt-x")).to_be_visible()


@pytest.mark.slow
def test_the_export_is_the_selection(server, ranked, people, sign_in):
    page = board(sign_in(people.alice), server, "suite=kernelbench-level3&llm=gpt-x")
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON").click()
    found = json.loads(download.value.path().read_text())
    assert [entry["entry"] for entry in found["entries"] if not entry["baseline"]] == ["stitch · gpt-x"]
    assert found["selection"]["suite"] == "KernelBench L3"


def test_a_retracted_result_disappears_and_says_why(server, ranked, people, sign_in):
    page = board(sign_in(people.alice), server)
    expect(row(page, "stitch · gpt-x")).to_contain_text("3/4")
    verdicts.give(people.alice, ranked, 1, "retracted", "it read the answer from a cache")
    page.reload()
    expect(row(page, "stitch · gpt-x")).to_contain_text("2/4")
    page.get_by_role("link", name="1 result left out").click()
    expect(page.get_by_text("it read the answer from a cache")).to_be_visible()
    expect(page.locator("table.board tbody tr")).to_have_count(1)


@pytest.mark.slow
def test_publish_from_the_list_of_results(server, ranked, people, sign_in):
    page = sign_in(people.alice)
    page.goto(f"{server}/leaderboard/results/?task={ranked.task_id}&run={ranked.pk}")
    expect(page.locator("tr[aria-selected=true]")).to_contain_text("4.00×")
    expect(page.locator("svg.whisker").first).to_be_visible()
    page.get_by_label("Who sees the result of 1_a").select_option("everyone")
    expect(page.get_by_text("to everyone who can sign in")).to_be_visible()
    assert Run.objects.get(pk=ranked.pk).published


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_charts_follow_the_theme_and_nothing_moves(server, ranked, people, sign_in, scheme, width):
    page = sign_in(people.alice)
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.add_init_script(
        "window.shifts = 0; new PerformanceObserver(list => list.getEntries().forEach(e => { if (!e.hadRecentInput) window.shifts += e.value }))"
        ".observe({type: 'layout-shift', buffered: true})"
    )
    board(page, server)
    chart = page.get_by_role("slider")
    page.locator("[data-plot=fast]").scroll_into_view_if_needed()
    expect(chart).to_be_visible(timeout=30_000)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.evaluate("window.shifts") < 0.05
    tick = "document.querySelector('[data-plot=fast] .xtick text').style.fill"
    before = page.evaluate(tick)
    page.keyboard.press("t")
    page.wait_for_function(f"{tick} !== {json.dumps(before)}")
