"""Reviewing in real browsers: two people at the same time, moved code, a range in a timeline, verdicts, and a guest with a link."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import sample_run
from webapp.accounts.models import SignInLink, User
from webapp.review.models import Share, Thread
from webapp.runs import artefacts


@pytest.fixture
def run(people):
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    run.refresh_from_db()
    return run


@pytest.fixture
def enter(browser: Browser, server):
    """Opens a separate browser for a user or, without one, for a guest. Failing scripts fail the test."""
    contexts, said = [], []

    def open_as(user: User | None, path: str) -> Page:
        context = browser.new_context()
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        if user is not None:
            page.goto(f"{server}/sign-in/{SignInLink.issue(user)}/")
        page.goto(server + path)
        return page

    yield open_as
    for context in contexts:
        context.close()
    assert not said


def panel(page: Page):
    return page.get_by_role("complementary", name="Review")


FIELDS = {"Comment": "Comment on", "Reply": "Answer", "Save": "Your comment"}


def write(page: Page, text: str, button: str = "Comment") -> None:
    panel(page).get_by_role("combobox", name=re.compile(FIELDS[button])).fill(text)
    panel(page).get_by_role("button", name=button, exact=True).click()


def test_two_people_discuss_an_event_without_reloading(people, run, enter):
    alice = enter(people.alice, f"/runs/{run.pk}/")
    bob = enter(people.bob, f"/runs/{run.pk}/")
    expect(bob.get_by_role("button", name=re.compile("Review"))).to_contain_text("alice is viewing")
    alice.evaluate("window.sameDocument = true")

    diagnosis = run.events.filter(kind="diagnosis.made").last().seq
    bob.evaluate(f"location.hash = '#event={diagnosis}'")
    row = bob.locator(f"[data-seq='{diagnosis}']")
    row.hover()
    bob.get_by_role("button", name="Comment here").click()
    area = panel(bob).get_by_role("combobox", name=f"Comment on event {diagnosis}")
    area.type("What does @al")
    expect(panel(bob).get_by_role("option", name="@alice")).to_be_visible()
    area.press("Enter")
    area.type("say to **this**?")
    area.press("Control+Enter")
    expect(panel(bob).locator(".mention")).to_have_text("@alice")
    expect(row.locator(".review-mark")).to_have_text("1")

    expect(alice.locator("[data-unread]")).to_have_text("1")
    alice.keyboard.press("v")
    panel(alice).get_by_role("button", name=re.compile("bob")).click()
    expect(alice.locator(f"[data-seq='{diagnosis}'] > .review-mark")).to_be_visible()
    expect(panel(alice).locator(".said strong")).to_have_text("this")
    expect(alice.locator("[data-unread]")).to_be_hidden()
    write(alice, "It is **right**.", "Reply")

    expect(panel(bob).locator(".comment")).to_have_count(2)
    expect(panel(bob).locator(".comment").nth(1)).to_contain_text("It is right.")
    write(bob, "Not yet read.", "Reply")
    for page in (alice, bob):
        expect(panel(page).locator(".comment")).to_have_count(3)

    panel(bob).locator(".comment.own").last.get_by_role("button", name="Edit").click()
    write(bob, "Now read.", "Save")
    expect(panel(alice).locator(".comment").nth(2)).to_contain_text("edited")
    panel(alice).get_by_role("button", name="Resolve").click()
    expect(panel(bob)).to_contain_text("Resolved by alice")
    expect(row.locator(".review-mark")).to_have_class(re.compile("resolved"))
    assert alice.evaluate("window.sameDocument")


@pytest.mark.slow
def test_a_comment_on_a_line_stays_with_it_when_code_moves(people, run, enter):
    third = sample_run.program(2).splitlines()
    line = next(number for number, text in enumerate(third, 1) if "const float scale" in text)
    gone = next(number for number, text in enumerate(third, 1) if "One row a thread" in text)
    bob = enter(people.bob, f"/runs/{run.pk}/candidates/3/?tab=source")
    for number, text in ((line, "Divide once."), (gone, "Which rows?")):
        bob.locator(f"tr[data-line='{number}'] td.src").hover()
        bob.get_by_role("button", name="Comment here").click()
        write(bob, text)
        expect(bob.locator(f"#L{number} .review-mark")).to_have_text("1")
    moved, outdated = Thread.objects.order_by("pk")

    fourth = artefacts.read(run.candidates.get(number=4).program).decode().splitlines()
    there = next(number for number, text in enumerate(fourth, 1) if "const float scale" in text)
    assert there > line
    bob.goto(bob.url.partition("/candidates/")[0] + "/candidates/4/?tab=source")
    expect(bob.locator(f"#L{there} .review-mark")).to_have_text("1")
    bob.locator(f"#L{there} .review-mark").click()
    expect(panel(bob)).to_contain_text(f"It is on line {there} here.")
    assert outdated.anchor["text"].startswith("# One row a thread")

    # The diff shows the thread in both layouts, folded or not, and the comment's link opens its position.
    bob.goto(bob.url.partition("/candidates/")[0] + "/diff/3...4/?view=split")
    expect(bob.locator(f"#R{there} .review-mark")).to_be_visible()
    bob.goto(bob.url.partition("/runs/")[0] + f"/review/threads/{moved.pk}/")
    expect(bob.locator(f"#L{line}")).to_be_in_viewport()
    expect(panel(bob)).to_contain_text("Divide once.")


@pytest.mark.slow
def test_a_diff_is_commented_on_by_keyboard(people, run, enter):
    bob = enter(people.bob, f"/runs/{run.pk}/diff/3...4/")
    expect(bob.locator("tr[data-hunk]").first).to_be_visible()
    bob.keyboard.press("n")
    bob.keyboard.press("c")
    area = panel(bob).get_by_role("combobox", name=re.compile(r"Comment on line \d+ of candidate"))
    expect(area).to_be_focused()
    area.fill("Why?")
    area.press("Control+Enter")
    expect(bob.locator(".diff-table .review-mark")).to_have_text("1")
    anchor = Thread.objects.get().anchor
    assert (anchor["view"], anchor["against"]) == ("diff", "3")


@pytest.mark.slow
def test_a_range_of_a_timeline_is_commented_on_and_opened_again(people, run, enter):
    sha = run.candidates.exclude(timeline=None).last().timeline.sha
    bob = enter(people.bob, f"/runs/{run.pk}/timeline/{sha}/")
    canvas = bob.locator(".timeline-canvas").first
    expect(bob.locator(".timeline-summary").first).to_contain_text("idle")
    box = canvas.bounding_box()
    bob.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    bob.mouse.down()
    bob.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
    bob.mouse.up()
    bob.get_by_role("button", name="Comment on it").click()
    write(bob, "What happens here?")
    expect(panel(bob)).to_contain_text("What happens here?")
    thread = Thread.objects.get()
    assert thread.anchor["end_ns"] > thread.anchor["start_ns"] and thread.anchor["sha"] == sha

    alice = enter(people.alice, f"/review/threads/{thread.pk}/")
    expect(panel(alice)).to_contain_text("What happens here?")
    alice.wait_for_function("document.querySelector('.timeline-box').marks?.length === 1")
    middle = (thread.anchor["start_ns"] + thread.anchor["end_ns"]) / 2
    wide = thread.anchor["end_ns"] - thread.anchor["start_ns"]
    alice.wait_for_function(
        "([middle, wide]) => { const { range } = document.querySelector('.timeline-box').timeline;"
        " return range.to - range.from < wide * 2 && range.from < middle && middle < range.to; }",
        arg=[middle, wide],
    )


@pytest.mark.slow
def test_a_verdict_is_seen_by_others_and_can_be_changed(people, run, enter):
    alice = enter(people.alice, f"/runs/{run.pk}/candidates/4/")
    bob = enter(people.bob, f"/runs/{run.pk}/candidates/4/")
    bob.get_by_text("Give a verdict").click()
    bob.get_by_role("radio", name=re.compile("questioned")).check()
    bob.get_by_role("button", name="Give the verdict").click()
    expect(bob.locator("#verdict")).to_contain_text("Say why it is questioned")
    bob.get_by_label("Reason").fill("Only full rows are tried.")
    bob.get_by_role("radio", name=re.compile("questioned")).check()
    bob.get_by_role("button", name="Give the verdict").click()
    expect(bob.locator("#verdict")).to_contain_text("It isn't ranked.")
    expect(alice.locator("#verdict")).to_contain_text("Only full rows are tried.")

    alice.goto(alice.url.partition("/candidates/")[0] + "/")
    expect(alice.get_by_role("note")).to_contain_text("questioned by bob")
    bob.get_by_text("Change", exact=True).click()
    bob.get_by_role("radio", name=re.compile("accepted")).check()
    bob.get_by_role("button", name="Give the verdict").click()
    expect(alice.get_by_role("note")).to_have_count(0)
    bob.get_by_text("History (2)").click()
    expect(bob.locator(".verdict-history li")).to_have_count(2)


def test_a_link_shows_one_run_to_a_guest_until_it_ends(people, run, enter, server):
    alice = enter(people.alice, f"/runs/{run.pk}/#candidate=4&tab=report")
    expect(alice.locator("#pane-body .report")).to_be_visible()
    alice.get_by_role("link", name="Share").click()
    expect(alice.get_by_label("Opens at")).to_have_value(f"/runs/{run.pk}/#candidate=4&tab=report")
    alice.get_by_role("button", name="Make the link").click()
    address = alice.get_by_label("Address of the link").input_value()

    guest = enter(None, address.removeprefix(server))
    expect(guest).to_have_url(re.compile(r"/runs/[^/]+/#candidate=4&tab=report$"))
    expect(guest.locator("#pane-body .report")).to_be_visible()
    expect(guest.locator("[data-part=connection]")).to_have_attribute("data-state", "finished")
    expect(guest.locator(".banner")).to_contain_text("Shared by alice")
    expect(guest.locator("form[method=post]")).to_have_count(0)
    guest.goto(f"{server}/runs/{run.pk}/diff/3...4/")
    expect(guest.locator("tr[data-hunk]").first).to_be_visible()
    assert "sign-in" in guest.goto(f"{server}/review/").url

    other = enter(None, address.removeprefix(server))
    alice.reload()
    expect(alice.locator("td[data-label=Opened]")).to_contain_text("2")
    alice.get_by_role("button", name="Revoke").click()
    expect(alice.locator(".share-table")).to_contain_text("revoked")
    other.reload()
    expect(other.get_by_role("heading")).to_have_text("This link no longer works")

    share = Share.objects.get()
    Share.objects.update(revoked_at=None, expires_at=share.expires_at - timedelta(days=8))
    guest.goto(address)
    expect(guest.locator("main")).to_contain_text("It worked until")
