"""Choosing runs and reading them beside each other."""

import re

from playwright.sync_api import expect

from tests.unit.webapp.ranked import make_ranked


def test_two_runs_are_chosen_and_compared(people, sign_in, server):
    for ratio in (1.5, 3.0):
        make_ranked(people.alice, "softmax", ratio)
    page = sign_in(people.alice)
    page.goto(f"{server}/compare/")
    go = page.get_by_role("button", name="Compare", exact=True)
    expect(go).to_be_disabled()
    for box in page.get_by_role("checkbox").all():
        box.check()
    go.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 runs")
    row = page.get_by_role("row", name="Against eager")
    expect(row.locator(".best")).to_contain_text("3.00")
    expect(page.locator("[data-plot=intervals][data-drawn]")).to_be_visible()
    page.get_by_text("As a table").first.click()
    expect(page.locator(".plot-table").first).to_contain_text("1.50× [1.4")
    page.get_by_role("link", name="Diff").click()
    expect(page).to_have_url(re.compile("/diff/"))
    page.go_back()
    page.get_by_role("link", name="Leave out softmax").first.click()
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(1)
