"""Faults once seen on laptops, at 1, 1.5 and 2 device pixels per CSS pixel: forms that remember another module, figures and commands that are cut
off, links that lead nowhere, and notices in the trace's own words. test_canvases.py does the same for what is drawn."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import sample_run
from tests.browser.ratios import RATIOS
from tests.browser.test_submit import write
from tests.browser.test_submit_plain import PLAIN
from tests.unit.webapp.people import make_result
from webapp.environment import ROOT

LOOKED_UP = '''import torch
from torch import nn


class Lookup(nn.Module):
    """Rows of a table."""

    def __init__(self, width: int):
        super().__init__()
        self.table = nn.Embedding(321, width)

    def forward(self, ids):
        return self.table(ids)
'''
DESKTOP = {"width": 1440, "height": 900}

pytestmark = [pytest.mark.slow, RATIOS]


@pytest.fixture
def checked(page: Page) -> Page:
    """A page of 1440 px that can check its own layout."""
    page.set_viewport_size(DESKTOP)
    page.add_init_script(path=ROOT / "tests/browser/page_checks.js")
    return page


def layout_of(page: Page, ratio: float) -> list[str]:
    assert page.evaluate("devicePixelRatio") == ratio
    return page.evaluate("pageChecks.layout()")


def test_a_form_belongs_to_its_module_and_indices_stay_in_their_table(checked, server, people, sign_in, ratio: float):
    sign_in(people.alice).goto(f"{server}/submit/")
    write(checked, PLAIN)
    checked.get_by_label("width int").fill("64")
    checked.get_by_label("width int").blur()
    expect(checked.get_by_label("Shape of x")).to_have_value("16, 64")
    write(checked, LOOKED_UP)
    expect(checked.get_by_label("Class", exact=True)).to_have_value("Lookup")
    expect(checked.get_by_label("width int")).to_have_value("")
    expect(checked.get_by_label("Value that ids stays below")).to_have_value("321")
    assert layout_of(checked, ratio) == []


def test_headlines_and_figures_are_whole(checked, server, people, sign_in, ratio: float):
    make_result(people.alice)
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    sign_in(people.alice)
    expect(checked.locator("table.runs")).to_contain_text("over torch.compile")
    assert layout_of(checked, ratio) == []
    checked.goto(f"{server}/runs/{run.pk}/")
    expect(checked.locator("[data-part=connection]")).to_have_attribute("data-state", "finished")
    assert layout_of(checked, ratio) == []
    for part in (".figure.best", ".run-title h1", ".run-now"):
        assert checked.locator(part).evaluate("one => one.scrollWidth <= one.clientWidth + 1"), part


def test_the_command_for_a_link_is_whole(checked, server, ratio: float):
    checked.goto(f"{server}/sign-in/")
    command = checked.locator("#link-command")
    expect(command).to_contain_text(re.compile(r"PORT=\d+ \.venv/bin/python manage\.py signin_link"))  # the server of the tests has its own port
    assert command.evaluate("one => one.scrollWidth <= one.clientWidth + 1")
    assert layout_of(checked, ratio) == []


def test_a_guest_is_offered_no_page_that_asks_for_an_account(checked, server, people, sign_in, ratio: float):
    run = make_result(people.alice)
    sign_in(people.alice).goto(f"{server}/runs/{run.pk}/shares")
    checked.get_by_role("button", name="Make the link").click()
    address = checked.get_by_label("Address of the link").input_value()
    checked.context.clear_cookies()
    checked.goto(address)
    expect(checked.locator(".banner")).to_contain_text("Shared by alice")
    inside = checked.locator("a[href]").evaluate_all("links => links.map((one) => new URL(one.href).pathname)")
    assert not [path for path in inside if not path.startswith((f"/runs/{run.pk}/", "/sign-in/")) and path != "/"]
    expect(checked.get_by_role("link", name="Leaderboard")).to_have_count(0)
    assert layout_of(checked, ratio) == []


def test_a_notice_of_an_event_is_in_words(checked, server, people, sign_in, ratio: float):
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    queued = run.events.filter(kind="verification.queued").first()
    place = json.dumps({"kind": "event", "seq": queued.seq})
    assert people.client("bob").post(f"/runs/{run.pk}/review/threads", {"anchor": place, "text": "Why?"}).status_code == 201
    sign_in(people.alice)
    checked.locator("[data-bell]").click()
    said = checked.locator(".notification-list .what").filter(has_text=f"(event {queued.seq})")
    expect(said).to_have_count(1)
    assert not re.search(r"\w\.\w", said.inner_text())  # such as verification.queued
    assert layout_of(checked, ratio) == []
