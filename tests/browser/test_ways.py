"""A run's branches in a real browser: as they appear, side by side and stacked, by keyboard, and without scripts."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from agents.events import NewEvent
from tests.browser import sample_run
from webapp.environment import ROOT
from webapp.runs.trace.append import append

AXE = ROOT / "node_modules/axe-core/axe.min.js"
CHECKS = ROOT / "tests/browser/page_checks.js"


def way(number: int, what: str, **more) -> NewEvent:
    return NewEvent(kind="way.changed", span="round-1", agent="engine", payload={"way": number, "what": what, "round": 1, **more})


def looked_at(browser: Browser, page: Page, url: str) -> list[str]:
    """Returns the accessibility findings for the page in both colour schemes."""
    context = browser.new_context(storage_state=page.context.storage_state(), reduced_motion="reduce")
    for script in (AXE, CHECKS):
        context.add_init_script(path=script)
    other = context.new_page()
    other.goto(url, wait_until="load")
    found = list(other.evaluate("pageChecks.all()"))
    other.emulate_media(color_scheme="dark")
    found += other.evaluate("pageChecks.colours()")
    context.close()
    return found


def test_ways_come_without_a_reload_stand_beside_each_other_and_keep_what_is_folded(page: Page, server, sign_in, people, browser: Browser):
    run = sample_run.create_run(people.alice)
    sign_in(people.alice)
    page.goto(f"{server}/runs/{run.pk}/")
    ways = page.locator("[data-part=ways]")
    expect(ways).to_be_hidden()
    append(run.pk, [way(number, "begun", reason=f"It tries <b>idea {number}</b>.") for number in (1, 2, 3)])
    expect(ways.locator(".way")).to_have_count(3)
    expect(ways).to_contain_text("It tries <b>idea 2</b>.")
    expect(page.locator("[data-part=entries]")).to_contain_text("Branch 3 begins")
    tops = ways.locator(".way").evaluate_all("ways => ways.map(way => way.getBoundingClientRect().top)")
    assert len(set(tops)) == 1, "side by side"
    for width, height in ((1280, 720), (1440, 900), (1920, 1080)):  # the panes take the remaining space without squeezing other elements
        page.set_viewport_size({"width": width, "height": height})
        squeezed = "ways => ways.getBoundingClientRect().bottom > document.querySelector('.run-panes').getBoundingClientRect().top"
        assert not ways.evaluate(squeezed) and ways.evaluate("ways => ways.offsetHeight >= 220 && ways.offsetHeight >= ways.scrollHeight")
        assert page.locator(".run-panes").evaluate("panes => panes.offsetHeight") >= 320
    ways.locator("summary").focus()
    page.keyboard.press("Tab")
    expect(ways.get_by_role("region", name="Branches side by side")).to_be_focused()
    ways.locator("summary").press("Enter")
    append(run.pk, [way(2, "ended", reason="It produced no program.")])
    expect(ways.locator("summary")).to_contain_text("3 so far, 2 running")
    assert ways.locator("details").get_attribute("open") is None, "folded it stays"
    page.set_viewport_size({"width": 380, "height": 800})
    ways.locator("summary").click()
    tops = ways.locator(".way").evaluate_all("ways => ways.map(way => way.getBoundingClientRect().top)")
    assert len(set(tops)) == 3 and page.evaluate("document.documentElement.scrollWidth") <= 380
    assert looked_at(browser, page, f"{server}/runs/{run.pk}/") == []
    context = browser.new_context(java_script_enabled=False, storage_state=page.context.storage_state())
    plain = context.new_page()
    plain.goto(f"{server}/runs/{run.pk}/")
    expect(plain.locator(".way")).to_have_count(3)
    expect(plain.locator(".way").nth(1)).to_contain_text("Ends: It produced no program.")
    context.close()
