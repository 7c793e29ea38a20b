"""The glossary in a real browser: a term opens the help at its explanation, and leads to its page in another tab or without an account."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser import sample_run
from tests.unit.webapp.people import make_result


def test_a_term_opens_the_help_at_its_explanation(server, people, sign_in):
    make_result(people.alice)
    page = sign_in(people.alice)
    help_ = page.get_by_role("dialog", name="Help")
    term = page.get_by_role("columnheader", name="Class").get_by_role("link")
    term.press("Enter")
    expect(page.locator("#help-class")).to_be_focused()
    expect(page.locator("#help-class")).to_be_in_viewport()
    expect(help_).to_contain_text("at least half (custom)")
    expect(page).to_have_url(f"{server}/")
    page.keyboard.press("Escape")
    expect(help_).to_be_hidden()
    expect(term).to_be_focused()
    with page.context.expect_page() as opened:
        term.click(modifiers=["ControlOrMeta"])
    expect(opened.value).to_have_url(re.compile(r"/glossary/#term-class$"))
    expect(opened.value.locator("#term-class")).to_have_text("Class")


def test_terms_that_a_script_writes_are_links_too(server, people, sign_in):
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    page = sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/")
    page.locator("details.evidence > summary").click()
    page.locator("[data-part=best-facts]").get_by_role("link", name=re.compile("measurement$")).click()
    expect(page.locator("#help-confirmed")).to_be_focused()


def test_the_glossary_needs_no_account(server, page):
    page.goto(f"{server}/glossary/#term-fast_p")
    expect(page.get_by_role("heading", name="Glossary")).to_be_visible()
    expect(page.locator("main dt")).to_have_count(12)
