"""A newcomer's whole path through the real stack: one-time link, the example, a live run with real compilers, a leaderboard row."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.integration.processes.stack import Stack

RUN_MS = 8 * 60 * 1000  # on two cores, including a full confirmation with torch.compile


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_from_the_link_to_a_leaderboard_row(installation: Stack, page: Page):
    page.goto(installation.take_link())
    page.get_by_role("link", name="Submit").first.click()
    expect(page.locator(".cm-content")).to_contain_text("class Model")  # once the editor appears, the choice has taken effect
    expect(page.locator(".cm-content")).to_contain_text("masked_fill")
    page.get_by_text("Quick", exact=True).click()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))

    # The stages, the conversation and the tree grow live in the open page.
    entries = page.locator("[data-part=entries]")
    expect(entries).to_contain_text("Planner", timeout=120_000)
    expect(page.locator("[data-part=tree]")).to_contain_text(re.compile("plan", re.I), timeout=120_000)
    expect(page.locator("[data-part=status]")).to_contain_text(re.compile("finished|improved|matched"), timeout=RUN_MS)

    # The candidate's evidence appears without a reload.
    tabs = page.locator("[data-part=pane-tabs]")
    body = page.locator("#pane-body")
    tabs.get_by_role("tab", name="Diff").click()
    expect(body.locator("table")).to_be_visible(timeout=30_000)
    tabs.get_by_role("tab", name="Report").click()
    expect(body).to_contain_text("passed", timeout=30_000)
    expect(body).to_contain_text("eager")
    tabs.get_by_role("tab", name="Timeline").click()
    expect(body.locator("canvas").first).to_be_visible(timeout=30_000)

    page.goto(f"{installation.base}/leaderboard/results/")
    row = page.locator("table tbody tr").filter(has_text="masked").filter(has_text="built-in").first
    expect(row).to_be_visible()
    expect(row).to_contain_text(re.compile(r"\d\.\d+"))
