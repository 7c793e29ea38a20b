"""The Ctrl-K palette used with the keyboard alone, and axe's findings."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.unit.webapp.cast import make_run
from webapp.environment import ROOT


def test_a_run_a_command_and_nothing_by_keyboard(server, people, sign_in):
    run = make_run(people.alice)
    page = sign_in(people.alice)
    page.context.add_init_script(path=ROOT / "node_modules/axe-core/axe.min.js")
    page.goto(f"{server}/submit/")
    page.locator(".cm-content").click()  # it also works while the user is typing
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name=re.compile("^Runs, tasks"))
    expect(box).to_be_focused()
    page.keyboard.type("softmax")
    palette = page.locator("#palette")
    expect(palette.get_by_role("option", name=re.compile("^softmax")).first).to_have_attribute("aria-selected", "true")
    found = page.evaluate("axe.run('#palette').then((found) => found.violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`))")
    assert found == []
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server}/runs/{run.pk}/")

    page.keyboard.press("Control+k")
    page.keyboard.type("go to leader")
    expect(palette.get_by_role("option", name=re.compile("^Go to Leaderboard"))).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server}/leaderboard/")

    page.keyboard.press("Control+k")
    page.keyboard.type("zzzz")
    expect(page.locator("#palette [role=status]")).to_have_text("Nothing found")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
