"""The diff in a real browser: sides, layouts, folds, keys, positions, copying, and each hunk's measured effect with a canned verifier."""

from __future__ import annotations

import re

import pytest
import sample_run
from playwright.sync_api import Page, expect

from tests.unit.webapp.diffs.programs import NEW, OLD, measured_run
from tests.unit.webapp.diffs.test_measured import Canned, answer
from webapp.diffs import measuring
from webapp.diffs.models import MeasuredHunk
from webapp.runs.models import Run

LONG = "\n".join(f"def step_{n}(x):\n    return x * {n}\n" for n in range(600))


@pytest.fixture
def run(people) -> Run:
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    return run


def test_sides_layouts_folds_and_keys(page: Page, server, sign_in, people, run):
    sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/candidates/3/")
    expect(page.get_by_label("Expected and measured")).to_contain_text("expected 1.30×")
    page.locator("select[name=against]").select_option("1")
    expect(page).to_have_url(re.compile("against=1"))
    page.goto(f"{server}/runs/{run.pk}/diff/2...4/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("candidate 4")
    page.get_by_label("Older side").select_option("task")
    expect(page).to_have_url(re.compile(r"/diff/task\.\.\.4/"))
    page.get_by_label("Older side").select_option("3")
    expect(page).to_have_url(re.compile(r"/diff/3\.\.\.4/"))
    # A fold names the function in which it ends. The key opens one fold, and the button opens all of them.
    fold = page.locator("tr.fold").first
    expect(fold).to_contain_text("softmax_rows")
    count = page.locator("tr.fold").count()
    page.keyboard.press("x")
    expect(page.locator("tr.fold")).to_have_count(count - 1)
    page.locator("tr.fold [data-unfold='down']").first.click()
    expect(page.locator("tr.fold").last).to_contain_text("23 unchanged lines")
    page.get_by_role("button", name="Unfold all").click()
    expect(page.locator("tr.fold")).to_have_count(0)
    # Hunks and lines.
    page.keyboard.press("p")
    first = page.evaluate("document.activeElement.dataset.hunk")
    page.keyboard.press("n")
    second = page.evaluate("document.activeElement.dataset.hunk")
    assert (first, second) == ("1", "2")
    page.keyboard.press("p")
    assert page.evaluate("document.activeElement.dataset.hunk") == "1"
    line = page.evaluate("document.activeElement.innerText")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.innerText") != line
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.innerText") == line
    # Side by side, and back again.
    page.keyboard.press("u")
    expect(page.locator("table.diff-table.split")).to_be_visible()
    expect(page).to_have_url(re.compile("view=split"))
    page.keyboard.press("u")
    expect(page.locator("table.diff-table.inline")).to_be_visible()
    page.locator("a[role=switch]").click()
    expect(page.locator("a[role=switch]")).to_have_attribute("aria-checked", "true")


@pytest.mark.slow
def test_long_programs_come_in_parts_and_places_open(page: Page, server, sign_in, people):
    changed = LONG.replace("return x *", "y = x *").replace("step_7(", "other_7(")
    run = measured_run(people.alice, old=OLD + LONG, new=NEW + changed)
    sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/diff/1...2/")
    expect(page.locator("tbody[data-part]").last).to_be_attached()
    assert page.locator("#R1700").count() == 0
    page.goto(f"{server}/runs/{run.pk}/diff/1...2/#R1700")
    expect(page.locator("#R1700")).to_be_in_viewport()
    assert page.evaluate("document.activeElement.querySelector('#R1700') !== null")
    page.keyboard.press("j")
    page.keyboard.press("l")
    expect(page).to_have_url(re.compile(r"#[LR](?!1700$)\d+$"))
    page.evaluate("scrollTo(0, 0)")
    page.locator("[data-hunk-step='1']").click()
    expect(page.locator("tr.cursor")).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_a_copy_has_code_only(page: Page, server, sign_in, people, run):
    sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/diff/3...4/?view=split")
    copied = page.evaluate(
        """() => {
        const cell = (id) => document.getElementById(id).nextElementSibling;
        cell("R14").dispatchEvent(new MouseEvent("mousedown", { bubbles: true }));
        const range = document.createRange();
        range.setStart(cell("R14"), 0);
        range.setEnd(cell("R17"), cell("R17").childNodes.length);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        const data = new DataTransfer();
        const event = new ClipboardEvent("copy", { bubbles: true, clipboardData: data, cancelable: true });
        cell("R14").dispatchEvent(event);
        return data.getData("text/plain");
    }"""
    )
    assert copied.split("\n")[0].strip() == "float largest = in[0];"
    assert copied.split("\n")[3].strip() == "float other = 0.0f;" and len(copied.split("\n")) == 4


@pytest.mark.slow
def test_what_each_hunk_is_worth(page: Page, server, sign_in, people):
    run = measured_run(people.alice)
    sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/diff/1...2/")
    page.get_by_role("button", name="Measure each hunk").click()
    plan = page.locator(".measure-plan")
    expect(plan).to_contain_text("Measure 3 of 5 hunks")
    expect(plan).to_contain_text("nothing sets self.dimension")
    plan.get_by_role("button", name="Start").click()
    measured = page.locator("[data-measured]")
    expect(measured).to_contain_text("2 of 6 done")
    canned = Canned()
    for row in MeasuredHunk.objects.filter(state="queued", number__gt=0):
        job = measuring.begin(row.pk, row.attempt, None)
        if row.number == 3:
            measuring.told(row.pk, row.attempt, "timing")
            expect(page.locator("tr.hunk-head[data-hunk-head='3']")).to_contain_text("is measured: timing")
        found = {3: (1 / 1.12, 1 / 1.15, 1 / 1.09), 4: (0.99, 0.97, 1.02)}.get(row.number)
        measuring.finish(row.pk, row.attempt, answer(job, found, "passed" if found else "wrong_result", "" if found else "out[0] differs"))
    assert canned.jobs == []
    head = page.locator("tr.hunk-head[data-hunk-head='3']")
    expect(head).to_contain_text("+12 % [+9.0, +15] without this hunk")
    expect(page.locator("tr.hunk-head[data-hunk-head='5']")).to_contain_text("cannot be reverted alone: wrong result")
    measured.get_by_role("button", name="Cancel").click()
    expect(measured.get_by_role("button", name="Measure the rest")).to_be_visible()
    measured.get_by_role("link", name="Hunk 4").click()
    expect(page.locator("tr.cursor")).to_have_attribute("data-hunk", "4")
    page.reload()
    expect(head).to_contain_text("+12 %")
