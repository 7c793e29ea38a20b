"""Tests the list of runs while runs are in progress: cells change in place, nothing moves, and nothing is lost."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.unit.webapp.cast import make_run
from tests.unit.webapp.people import add_verification, make_result
from webapp.runs.models import Run


def tick(page: Page) -> None:
    """Triggers the next update without waiting for it."""
    with page.expect_response("**/runs/live?*"):
        page.evaluate("document.getElementById('live').dispatchEvent(new CustomEvent('tick'))")


@pytest.mark.slow
def test_a_run_that_ends_changes_its_cells_and_moves_nothing(server, people, sign_in):
    runs = [make_run(people.alice, state="running") for _ in range(3)]
    page = sign_in(people.alice)
    before = page.locator("table.runs tbody tr").evaluate_all("rows => rows.map(row => JSON.stringify(row.getBoundingClientRect()))")
    page.locator(".cell-title").nth(1).focus()
    page.evaluate("window.still_here = document.querySelectorAll('.cell-title')[1]")

    Run.objects.filter(pk=runs[1].pk).update(state="finished", outcome="improved", best_candidate=2, headline="faster", gain=1.6)
    add_verification(runs[1])
    tick(page)

    row = page.locator("table.runs tbody tr").nth(1)
    expect(row).to_contain_text("Faster (confirmed)")
    expect(row).to_contain_text("1.60× [1.52, 1.68] over torch.compile")
    expect(row).to_contain_text("custom 90 %")
    expect(page.get_by_role("link", name="Faster 1")).to_be_visible()
    after = page.locator("table.runs tbody tr").evaluate_all("rows => rows.map(row => JSON.stringify(row.getBoundingClientRect()))")
    assert after == before
    assert page.evaluate("document.activeElement === window.still_here")


def test_new_runs_are_announced_not_pushed_in(server, people, sign_in):
    make_run(people.alice, state="running")
    page = sign_in(people.alice)
    make_run(people.alice)
    tick(page)
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Show 1 new run").click()
    expect(page.locator("table.runs tbody tr")).to_have_count(2)


@pytest.mark.slow
def test_the_list_asks_by_itself(server, people, sign_in):
    make_run(people.alice, state="running")
    page = sign_in(people.alice)
    with page.expect_response("**/runs/live?*", timeout=10_000) as answer:
        pass
    assert answer.value.status == 200


@pytest.mark.slow
def test_archive_and_publish_from_the_menu(server, people, sign_in):
    make_result(people.alice)
    page = sign_in(people.alice)
    page.get_by_label("Actions for softmax").click()
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("status").filter(has_text="is now published")).to_be_visible()
    page.get_by_label("Actions for softmax").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Archive", exact=True)).to_be_hidden()
    page.get_by_label("Actions for softmax").click()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.get_by_text("No run matches")).to_be_visible()


def test_search_and_filters_have_addresses(server, people, sign_in):
    make_result(people.alice)
    page = sign_in(people.alice)
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=softmax")
    page.get_by_role("link", name="Faster 1").click()
    page.wait_for_url("**/?q=softmax&state=improved")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)


def test_rows_are_ticked_tagged_and_compared(server, people, sign_in):
    runs = [make_result(people.alice) for _ in range(4)]
    page = sign_in(people.alice)
    boxes = page.locator('.runs input[name="with"]')
    expect(page.locator("#ticked")).to_be_hidden()
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    expect(page.locator("[data-ticked-count]")).to_have_text("3 ticked")
    page.get_by_label("Tag", exact=True).fill("paper")
    page.get_by_label("Tag", exact=True).press("Enter")
    expect(page.locator(".runs .tag", has_text="paper")).to_have_count(3)
    page.get_by_label("Tick all runs of this page").check()
    expect(page.locator("[data-ticked-count]")).to_have_text(f"{len(runs)} ticked")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 4 runs")
