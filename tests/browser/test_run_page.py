"""A run's live page in a real browser: live, opened late, over an interrupted connection, long, narrow, and with hostile text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from procrastinate.contrib.django.models import ProcrastinateJob

from agents.events import NewEvent
from agents.payloads import VerificationQueued, VerificationStage
from tests.browser import sample_run
from tests.browser.ratios import RATIOS
from webapp.environment import ROOT
from webapp.fleet.models import Device
from webapp.runs import jobs
from webapp.runs.models import Run, Verification
from webapp.runs.trace.append import append

CHECKS = ROOT / "tests/browser/page_checks.js"
AT_REST = """box => new Promise((tell) => {
  let last = NaN, same = 0;
  const look = () => {
    same = box.scrollTop === last ? same + 1 : 0;
    last = box.scrollTop;
    same < 10 ? requestAnimationFrame(look) : tell(last);
  };
  look();
})"""  # the box's position after wheel scrolling has ended
KEEP_SOCKETS = """
window.sockets = [];
window.WebSocket = class extends WebSocket { constructor(...given) { super(...given); window.sockets.push(this); } };
"""


@pytest.fixture
def run(people):
    return sample_run.create_run(people.alice)


def open_run(page: Page, server: str, run, fragment: str = "") -> None:
    page.goto(f"{server}/runs/{run.pk}/{fragment}")


def told_in_pieces(run, size: int = 4) -> Iterator[None]:
    """Appends the scripted events piece by piece, yielding to the test after each piece."""
    waiting: list[NewEvent] = []
    for batch in sample_run.story(run):
        waiting += [event for event in batch if event.payload.get("of") is None]
        if len(waiting) >= size:
            append(run.pk, waiting)
            waiting = []
            yield
    append(run.pk, waiting)
    yield


def shown_events(page: Page) -> list[int]:
    return page.eval_on_selector_all(".entry", "entries => entries.map(entry => Number(entry.dataset.seq))")


def finished(page: Page) -> None:
    expect(page.locator("[data-part=connection]")).to_have_attribute("data-state", "finished", timeout=15000)


def test_a_run_is_told_live_without_a_reload(page: Page, server, sign_in, people, run):
    sign_in(people.alice)
    open_run(page, server, run)
    expect(page.locator("[data-part=connection]")).to_have_attribute("data-state", re.compile("live|"))
    expect(page.locator("#pane-body")).to_contain_text("appear here")
    page.evaluate("window.sameDocument = true")
    seen = set()
    for _ in told_in_pieces(run, size=6):
        kinds = set(run.events.values_list("kind", flat=True))
        if "candidate.proposed" in kinds and "diff" not in seen:
            seen.add("diff")
            expect(page.locator("#pane-body table.diff-table")).to_be_visible()
            page.get_by_role("tab", name="Report").click()
        if run.events.filter(kind="verification.finished", payload__icontains='"status"').exists() and "report" not in seen:
            seen.add("report")
            expect(page.locator("#pane-body .report")).to_contain_text("Where and how")
        if run.candidates.exclude(timeline=None).exists() and "timeline" not in seen:
            seen.add("timeline")
            number = run.candidates.exclude(timeline=None).first().number
            page.get_by_role("tab", name="Timeline").click()
            expect(page.locator("[data-part=pane-title]")).to_have_text(f"Candidate {number}")
            expect(page.locator("#pane-body .timeline-summary")).to_contain_text("device idle")
    finished(page)
    assert seen == {"diff", "report", "timeline"}
    expect(page.locator("[data-part=status]")).to_have_text(re.compile("finished"))
    expect(page.locator("[data-part=best]")).to_have_text(re.compile(r"^1\.31× \[\S+ \S+\] over torch\.compile 2\.39× \[\S+ \S+\] over eager$"))
    expect(page.locator("[data-part=outcome]")).to_have_text("▲Faster (confirmed)")
    expect(page.locator("[data-part=best-facts]")).to_be_hidden()
    page.locator(".evidence summary").click()
    expect(page.locator("[data-part=best-facts]")).to_contain_text("custom 97 %")
    assert "primary" in page.locator("[data-part=download]").get_attribute("class")
    expect(page.locator("[data-part=now]")).to_contain_text("is faster")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("dialog").get_by_role("link", name="Download best.py")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("More actions").click()
    for name in ("Fork", "Change and run again", "Leaderboard"):
        expect(page.locator(".run-menu").get_by_role("link", name=name)).to_be_visible()
    expect(page.locator(".run-menu").get_by_role("button", name="Archive")).to_be_visible()
    page.keyboard.press("Escape")
    assert page.locator(".chart .point").count() == 4 and page.locator(".chart .cross").count() == 1
    points = page.locator(".chart .point")
    assert page.locator('.chart .point[tabindex="0"]').count() == 1
    points.nth(3).focus()
    page.keyboard.press("ArrowLeft")
    expect(points.nth(2)).to_be_focused()
    page.keyboard.press("Home")
    expect(points.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("candidate=1"))
    assert page.evaluate("window.sameDocument") is True


def test_a_line_that_breaks_loses_nothing_and_doubles_nothing(page: Page, server, sign_in, people, run):
    page.add_init_script(KEEP_SOCKETS)
    sign_in(people.alice)
    open_run(page, server, run)
    expect(page.locator("[data-part=connection]")).to_contain_text(re.compile("connecting|live"))
    for turn, _ in enumerate(told_in_pieces(run, size=7)):
        if turn % 4 == 1:
            page.evaluate("window.sockets.at(-1).close()")
        if turn == 8:
            page.context.set_offline(True)
        if turn == 12:
            page.context.set_offline(False)
        page.wait_for_timeout(30)
    finished(page)
    assert page.evaluate("window.sockets.length") > 3
    shown = shown_events(page)
    assert len(shown) == len(set(shown)) and shown == sorted(shown)
    expected = {}
    for event in run.events.order_by("seq"):
        if event.kind == "message.completed":
            expected[event.payload["message"]] = event.payload["text"]
    texts = page.eval_on_selector_all(".entry.message", "all => all.map(one => one.querySelector('.message-text').innerText)")
    assert len(texts) == len(expected)
    late = page.context.new_page()
    open_run(late, server, run)
    finished(late)
    assert shown_events(late) == shown
    assert late.locator("[data-part=entries]").inner_text() == page.locator("[data-part=entries]").inner_text()


@pytest.mark.slow
def test_without_websockets_the_page_polls(page: Page, server, sign_in, people, run):
    page.add_init_script(
        "window.WebSocket = class { static OPEN = 1; readyState = 3; constructor() { setTimeout(() => this.onclose({code: 1006}), 5); } close() {} };"
    )
    sign_in(people.alice)
    open_run(page, server, run)
    sample_run.play(run)
    finished(page)
    assert len(shown_events(page)) > 40


@pytest.mark.slow
def test_a_late_visitor_of_a_long_run_gets_all_of_it(page: Page, server, sign_in, people, run):
    sample_run.play(run, candidates=6, chatter=500)
    sign_in(people.bob)
    open_run(page, server, run)
    finished(page)
    expect(page.locator(".entry.finished")).to_be_in_viewport()
    shown = shown_events(page)
    assert shown == sorted(set(shown)) and len(shown) < 200
    page.get_by_label("Kind of entry").select_option("note")
    expect(page.locator("[data-part=step-count]")).to_have_text("3,000")
    # Items outside the document can be found, jumped to and linked to.
    page.get_by_label("Search the whole trace").fill('"note 250 on candidate 2"')
    expect(page.locator("[data-part=find-count]")).to_have_text("1 found")
    page.keyboard.press("Enter")
    expect(page.locator(".entry.selected")).to_contain_text("note 250 on candidate 2")
    expect(page.locator(".entry.selected")).to_be_in_viewport()
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    expect(page.locator(".entry.selected")).to_contain_text("note 251 on candidate 2")
    page.reload()
    finished(page)
    expect(page.locator(".entry.selected")).to_contain_text("note 251 on candidate 2")
    expect(page.locator(".entry.selected")).to_be_in_viewport()
    page.get_by_role("button", name="Follow", exact=True).click()
    page.wait_for_function("(box => box.scrollHeight - box.scrollTop - box.clientHeight < 24)(document.querySelector('[data-part=scroller]'))")


@pytest.mark.slow
def test_scrolling_up_pauses_the_following_and_counts_what_is_new(page: Page, server, sign_in, people, run):
    sample_run.play(run, stop_after=90)
    sign_in(people.alice)
    open_run(page, server, run)
    expect(page.locator(".entry.candidate")).not_to_have_count(0)
    page.locator("[data-part=scroller]").hover()
    page.mouse.wheel(0, -600)
    expect(page.locator("[data-part=follow]")).to_have_attribute("aria-pressed", "false")
    top = page.locator("[data-part=scroller]").evaluate(AT_REST)
    append(run.pk, [NewEvent(kind="note.added", agent="person", payload={"text": f"note {i}", "by": "bob"}) for i in range(3)])
    expect(page.locator("[data-part=newer]")).to_have_text("3 new ↓")
    assert abs(page.locator("[data-part=scroller]").evaluate("box => box.scrollTop") - top) <= 1
    page.locator("[data-part=newer]").click()
    expect(page.locator("[data-part=follow]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".entry.note").last).to_be_in_viewport()


@pytest.mark.slow
def test_what_is_selected_has_a_url(page: Page, server, sign_in, people, run):
    sample_run.play(run)
    sign_in(people.alice)
    open_run(page, server, run, "#candidate=2&tab=report")
    finished(page)
    expect(page.locator("[data-part=pane-title]")).to_have_text("Candidate 2")
    expect(page.get_by_role("tab", name="Report")).to_have_attribute("aria-selected", "true")
    page.locator(".chart .point").nth(2).click()
    expect(page).to_have_url(re.compile("#candidate=3"))
    expect(page.locator("[data-part=pane-title]")).to_have_text("Candidate 3")
    page.go_back()
    expect(page.locator("[data-part=pane-title]")).to_have_text("Candidate 2")
    open_run(page, server, run, "#event=20")
    page.reload()
    finished(page)
    expect(page.locator(".entry.selected")).to_be_in_viewport()
    page.get_by_role("treeitem", name=re.compile("Confirm the winner")).click()
    expect(page.locator(".entry.selected")).to_contain_text("Confirm the winner")


@pytest.mark.slow
def test_the_diff_can_be_turned_and_unfolded_in_the_pane(page: Page, server, sign_in, people, run):
    sample_run.play(run)
    sign_in(people.alice)
    open_run(page, server, run, "#candidate=3")
    finished(page)
    pane = page.locator("#pane-body")
    expect(pane.locator("table.diff-table")).to_be_visible()
    folds = pane.locator("tr.fold").count()
    pane.get_by_role("button", name=re.compile(r"Show all \d+ lines")).first.click()
    expect(pane.locator("tr.fold")).to_have_count(folds - 1)
    pane.get_by_role("link", name="Side by side").click()
    expect(pane.locator("table.split")).to_be_visible()
    pane.locator("select[name=against]").select_option("task")
    expect(pane.get_by_role("table", name="candidate 3 against the reference")).to_be_visible()
    expect(pane.locator("table.split")).to_be_visible()
    assert "/candidates/" not in page.url


def test_what_a_transcript_says_stays_text(page: Page, server, sign_in, people, run):
    sample_run.play(run)
    sign_in(people.alice)
    open_run(page, server, run)
    finished(page)
    expect(page.locator("[data-part=entries]")).to_contain_text("<script>document.title")
    assert page.locator("[data-part=entries] :is(img, script, iframe)").count() == 0
    expect(page.locator(".table.plan tr.step")).to_have_count(2)
    expect(page.locator("[data-part=entries]")).not_to_contain_text("[object")
    assert page.title() == "✓ softmax_rows · Stitchwork"


@pytest.mark.slow
def test_pausing_asks_the_engine_and_says_so(page: Page, server, sign_in, people, run):
    sample_run.play(run, stop_after=60)
    sign_in(people.bob)
    open_run(page, server, run)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-part=status]")).to_contain_text("pausing")
    append(run.pk, [NewEvent(kind="run.paused", agent="engine", payload={"reason": "paused by a person"})])
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    assert not run.events.filter(kind="control.requested", payload__icontains="cancel").exists()
    page.get_by_role("button", name="Really cancel?").click()
    expect(page.locator("[data-part=status]")).to_contain_text("cancelling")


@pytest.mark.slow
def test_a_narrow_screen_shows_one_pane_at_a_time(page: Page, server, sign_in, people, run):
    sample_run.play(run)
    page.set_viewport_size({"width": 390, "height": 844})
    sign_in(people.alice)
    open_run(page, server, run)
    finished(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(page.locator(".tree-pane")).to_be_hidden()
    page.get_by_role("button", name="Trace").click()
    expect(page.locator(".tree-pane")).to_be_visible()
    page.get_by_role("button", name="Candidate", exact=True).click()
    expect(page.locator("#pane-body .diff-table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@RATIOS
def test_on_a_phone_every_tab_of_a_candidate_can_be_pressed(page: Page, server, sign_in, people, run, ratio):
    sample_run.play(run)
    page.set_viewport_size({"width": 390, "height": 844})
    page.add_init_script(path=CHECKS)
    sign_in(people.alice)
    open_run(page, server, run, "#candidate=2&tab=diff")
    finished(page)
    for name in ("Report", "Timeline", "Kernels", "Diff"):
        page.get_by_role("tab", name=name).click(timeout=5000)  # raises an error if the element is covered
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        assert page.evaluate("pageChecks.light()") == []


@RATIOS
def test_what_a_script_styled_is_swapped_without_breaking_the_policy(page: Page, server, sign_in, people, ratio):
    """`no_errors_in_the_page` checks the console."""
    sign_in(people.alice)
    page.evaluate(
        """() => {
          const made = Object.assign(document.createElement("div"), { id: "probe", textContent: "before" });
          made.style.color = "red";
          document.querySelector("main").append(made);
          htmx.swap(made, '<div id="probe" class="after">after</div>', { swapStyle: "outerHTML", settleDelay: 20 });
        }"""
    )
    expect(page.locator("#probe")).to_have_text("after")
    page.wait_for_timeout(150)
    assert page.locator("#probe").get_attribute("style") is None


def test_a_run_that_waits_for_a_verifier_shows_its_place(page: Page, server, sign_in, people, run):
    def waits(waiting: Run) -> Verification:
        queue = jobs.queue_for("cpu")
        queued = VerificationQueued(key="candidate-1/quick", job="verify", candidate=1, attempt=1, queue=queue, tier="quick")
        append(waiting.pk, [NewEvent.of(queued, "candidate-1", "verifier")])
        found = Verification.objects.get(run=waiting)
        jobs.enqueue_verification(found.pk, queue, 1, 0)
        return found

    other = sample_run.create_run(people.alice, "layer_norm")
    Run.objects.update(state="running", device_kind="cpu")
    first, _ = waits(other), waits(run)
    sign_in(people.alice)
    open_run(page, server, run)
    now = page.locator("[data-part=now]")
    expect(now).to_have_text("Waiting for a CPU verifier: none is online. The run starts when one connects.")
    Device.objects.create(worker="w", kind="cpu", device="cpu", name="A CPU", model="cpu", queue="verify.cpu")
    expect(now).to_have_text("Waiting for a free verifier: 1 job ahead.", timeout=15_000)  # the page asks again by itself
    ProcrastinateJob.objects.filter(args__verification_id=str(first.pk)).update(status="doing")
    expect(now).to_have_text("Waiting for a free verifier: next in line.", timeout=15_000)
    append(run.pk, [NewEvent.of(VerificationStage(key="candidate-1/quick", attempt=1, stage="build", status="started"), "candidate-1", "verifier")])
    expect(now).to_have_text(re.compile("^Verifying"))


@RATIOS
def test_the_tab_says_how_the_run_stands(page: Page, server, sign_in, people, run, ratio):
    sign_in(people.alice)
    open_run(page, server, run)
    expect(page).to_have_title(re.compile("^queued · softmax_rows"))
    expect(page.locator("[data-part=now]")).to_have_text("Waiting for a free orchestrator: starting.")
    sample_run.play(run)
    finished(page)
    expect(page).to_have_title(re.compile("^✓ softmax_rows"))
    expect(page.locator("[data-part=left]")).to_be_empty()
