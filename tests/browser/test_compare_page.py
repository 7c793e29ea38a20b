"""Choosing runs and comparing them side by side."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser import sample_run
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
    expect(page.locator("[data-plot=intervals][data-drawn]")).to_be_visible(timeout=30_000)  # Plotly is five megabytes
    page.get_by_text("As a table").first.click()
    expect(page.locator(".plot-table").first).to_contain_text("1.50× [1.4")
    page.get_by_role("link", name="Diff").click()
    expect(page).to_have_url(re.compile("/diff/"))
    page.go_back()
    page.get_by_role("link", name="Leave out softmax").first.click()
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(1)


@pytest.mark.slow
def test_attempts_are_a_plot_for_keys_and_a_table(people, sign_in, server):
    run, other = sample_run.create_run(people.alice), make_ranked(people.alice, "softmax", 3.0)
    sample_run.play(run)
    page = sign_in(people.alice)
    page.goto(f"{server}/compare/?with={run.pk}&with={other.pk}")
    plot = page.locator("[data-plot=attempts]")
    plot.scroll_into_view_if_needed()
    expect(page.locator("[data-plot=attempts][data-drawn]")).to_be_visible(timeout=30_000)
    plot.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#live-region")).to_contain_text("candidate")
    table = page.locator(".panel", has=plot).locator(".plot-table")
    table.locator("summary").click()
    expect(table.get_by_role("row")).to_have_count(5)
    expect(table).to_contain_text("wrong result")
