"""The trace explorer: the tree, searching all of a long trace, steps, deep links, copying, and exchanges with models."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from agents.events import NewEvent
from bench.pages.long_trace import long_trace
from tests.browser import sample_run
from webapp.runs.models import Run
from webapp.runs.trace.append import append

FEW = 2000  # events


@pytest.fixture
def long_run(people):
    return long_trace(people.alice, FEW, delta_characters=60)


def open_trace(page: Page, server: str, run, fragment: str = "") -> None:
    page.goto(f"{server}/runs/{run}/{fragment}")
    expect(page.locator("#run")).to_have_attribute("data-ready", "1", timeout=15000)


def count(page: Page, name: str):
    return page.locator(f"[data-part={name}]")


def test_a_long_trace_is_searched_stepped_through_and_linked_into(page: Page, server, sign_in, long_run):
    run = Run.objects.get(pk=long_run)
    sign_in(run.created_by)
    open_trace(page, server, long_run)
    expect(page.locator(".entry.finished")).to_be_in_viewport()
    total = int(page.locator(".entry.finished").get_attribute("aria-posinset"))
    assert total > 50

    # Searching: the server's own count, and jumps in both directions to rows that were not in the document.
    page.keyboard.press("/")
    page.keyboard.type("variant 7")
    expect(count(page, "find-count")).to_have_text(re.compile(r"^\d+ found$"))
    expect(page.locator(".hits .hit")).not_to_have_count(0)
    assert count(page, "scroller").evaluate("box => box.clientHeight") >= 180, "the hits leave room for what they lead to, at 1280x720"
    page.keyboard.press("Enter")
    expect(page.locator(".entry.selected")).to_be_in_viewport()
    expect(page.locator(".entry.selected")).to_contain_text("variant 7")
    expect(count(page, "find-count")).to_have_text(re.compile(r"^1 of "))
    assert page.evaluate("CSS.highlights.get('found').size") > 0
    page.keyboard.press("Escape")
    expect(page.locator(".hits")).to_be_hidden()

    # Stepping by key, and to the best result.
    page.keyboard.press("X")
    expect(page.locator(".entry.selected.verification")).to_contain_text("wrong result")
    first = page.evaluate("location.href")
    page.keyboard.press("x")
    expect(page).not_to_have_url(first)
    page.keyboard.press("X")
    expect(page).to_have_url(first)
    # Keys that arrive faster than the browser reports a new URL still step forwards, and then back through the same entries.
    pressed = "keys => keys.forEach(key => document.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })))"
    for key, place in (("x", 4), ("X", 1)):
        page.evaluate(pressed, [key] * 3)
        expect(count(page, "step-count")).to_have_text(re.compile(f"^{place} of"))
    expect(page).to_have_url(first)
    page.keyboard.press("b")
    expect(page.locator(".entry.selected.verification")).to_contain_text(f"Verification of candidate {run.best_candidate}")

    # A link to an event in the middle opens it in another tab, at any depth.
    event = run.events.filter(kind="verification.finished").order_by("seq")[4]
    other = page.context.new_page()
    open_trace(other, server, long_run, f"#event={event.seq}")
    expect(other.locator(".entry.selected")).to_contain_text(f"Verification of candidate {event.payload['candidate']}")
    expect(other.locator(".entry.selected")).to_be_in_viewport()
    open_trace(other, server, long_run, "#span=step-1/attempt-4")
    other.reload()
    expect(other.locator(".entry.selected")).to_contain_text("Attempt 4")
    expect(other.locator('[role=treeitem][aria-selected="true"]')).to_contain_text("Attempt 4")


@pytest.mark.slow
def test_a_model_s_long_reply_opens_whole_and_its_exchange_shows_the_prompt(page: Page, server, sign_in, people, long_run):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    sign_in(people.alice)
    open_trace(page, server, long_run, "#event=5")
    message = page.locator(".entry.message.selected")
    button = message.get_by_role("button", name=re.compile(r"Show the whole reply \(\d+ lines, [\d,]+ characters\)"))
    told = int(re.search(r"([\d,]+) characters", button.inner_text())[1].replace(",", ""))
    button.click()
    expect(message.get_by_role("button", name="Show less")).to_be_visible()
    expect(message.locator(".fence .kt").first).to_be_visible()  # highlighted code
    message.hover()
    message.get_by_role("button", name=re.compile("Copy the entry")).click()
    page.get_by_role("menuitem", name="Copy text").click()
    expect(page.locator("#live-region")).to_have_text("Copied")
    assert len(page.evaluate("navigator.clipboard.readText()")) == told
    expect(message.locator("[data-copy-label]")).to_have_text("Copy")
    message.get_by_role("button", name=re.compile("Copy the entry")).click()
    page.get_by_role("menuitem", name="Copy as JSON").click()
    expect(message.locator("[data-copy-label]")).to_have_text("Copied")
    assert json.loads(page.evaluate("navigator.clipboard.readText()"))["kind"] == "message"
    call = page.locator(".entry.llm").first
    call.get_by_role("button", name="details and prompts").click()
    expect(call.locator(".call-facts")).to_contain_text("many-1")
    expect(call.locator(".call-facts")).to_contain_text("tokens in")
    expect(call.locator(".call-text").first).to_contain_text("Write candidate 1.")


def test_the_tree_adds_up_folds_and_is_walked_by_keys(page: Page, server, sign_in, people, long_run):
    sign_in(people.alice)
    open_trace(page, server, long_run)
    tree = page.get_by_role("tree")
    step = page.get_by_role("treeitem", name=re.compile("Step 1"))
    expect(step).to_have_attribute("title", re.compile(r"tokens in \d+ calls, \$0\.\d+"))
    tree.focus()
    page.keyboard.press("ArrowLeft")
    expect(step).to_have_attribute("aria-expanded", "false")
    expect(step.locator(".inside")).to_have_text(re.compile(r"✕ \d+"))  # failures are visible even when collapsed
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.type("attempt 3")
    active = page.locator(f'[id="{tree.get_attribute("aria-activedescendant")}"]')
    expect(active).to_contain_text("Attempt 3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("span=step-1/attempt-3"))
    tree.focus()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    expect(page.locator(".tree .line.active")).to_contain_text("Step 1")


@pytest.mark.slow
def test_search_works_while_the_run_goes_on_and_all_entries_collapse(page: Page, server, sign_in, people):
    run = sample_run.create_run(people.alice)
    sample_run.play(run, stop_after=60)
    sign_in(people.alice)
    open_trace(page, server, run.pk)
    page.get_by_label("Search the whole trace").fill("a very late remark")
    expect(count(page, "find-count")).to_have_text("0 found")
    append(run.pk, [NewEvent(kind="note.added", agent="person", payload={"text": "a very late remark", "by": "bob", "to": "all"})])
    expect(count(page, "find-count")).to_have_text("1 found", timeout=15000)
    page.locator("[data-part=find-next]").click()
    expect(page.locator(".entry.note.selected")).to_be_in_viewport()
    page.get_by_role("button", name="Collapse all").click()
    expect(page.locator(".entry.note .entry-body")).to_be_hidden()
    expect(page.locator(".entry.note .summary")).to_have_text("a very late remark")
    page.get_by_role("button", name="Expand all").click()
    expect(page.locator(".entry.note .entry-body")).to_be_visible()
