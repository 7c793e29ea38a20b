"""Submitting a model in a real browser: editor, examples, checks while typing, upload, and use without a mouse."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.unit.webapp.cast import PROGRAM, SOURCE
from webapp.runs.models import Run


@pytest.fixture
def page_of_alice(people, sign_in) -> Page:
    return sign_in(people.alice)


def write(page: Page, text: str, editor: int = 0) -> None:
    """Replaces the text in an editor, as pasting does."""
    content = page.locator(".cm-content").nth(editor)
    content.click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def advanced(page: Page) -> None:
    page.locator("details.advanced > summary").click()


def test_from_the_link_to_a_run(server, page_of_alice, people):
    page = page_of_alice
    page.get_by_role("link", name="Start with an example").click()
    expect(page.locator(".cm-content")).to_contain_text("masked_fill")
    expect(page.locator(".verdict")).to_contain_text("Model, get_inputs and get_init_inputs found")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    run = Run.objects.get()
    assert page.url == f"{server}/runs/{run.pk}/"
    assert (run.title, run.created_by, run.device_kind, run.workflow) == ("masked pool", people.alice, "cpu", "descend")
    page.goto(server)
    expect(page.locator("table.runs")).to_contain_text("masked pool")


def test_what_is_wrong_appears_while_typing_and_leads_to_its_line(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    write(page, "import torch\nimport requests\n")
    expect(page.locator(".problems")).to_contain_text("import of 'requests' is not allowed")
    expect(page.locator(".problems")).to_contain_text("there is no class `Model`")
    expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    page.get_by_role("button", name="line 2").click()
    expect(page.locator(".cm-activeLine")).to_have_text("import requests")
    write(page, SOURCE)
    expect(page.locator(".verdict .sound")).to_be_visible()
    expect(page.locator(".cm-lint-marker-error")).to_have_count(0)


def test_a_refused_form_keeps_what_was_typed(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    write(page, "def nothing():\n    return 41\n")
    advanced(page)
    page.get_by_label("Title").fill("my model")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("Not submitted. Your input is kept.")
    expect(page.locator(".cm-content")).to_contain_text("return 41")
    expect(page.get_by_label("Title")).to_have_value("my model")
    assert not Run.objects.exists()


@pytest.mark.slow
def test_an_example_and_undo(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    page.get_by_label("Start from an example").select_option("layer_norm_gelu")
    expect(page.locator(".cm-content")).not_to_contain_text("masked_fill")
    page.keyboard.press("Control+z")
    expect(page.locator(".cm-content")).to_contain_text("masked_fill")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".cm-content")).to_have_text("")
    expect(page.locator(".cm-content")).to_be_focused()


@pytest.mark.slow
def test_a_file_is_read_into_the_editor_or_refused_with_the_reason(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    upload = page.locator("input[type=file]")
    upload.set_input_files({"name": "mine.py", "mimeType": "text/x-python", "buffer": SOURCE.replace("\n", "\r\n").encode()})
    expect(page.locator(".cm-content")).to_contain_text("torch.softmax(x, dim=1)")
    expect(page.get_by_label("Title")).to_have_value("mine")
    for content, reason in ((b"#" * 600_000, "at most 512 KiB"), (b"\xff\xfe\x00", "is not UTF-8 text")):
        upload.set_input_files({"name": "other.py", "mimeType": "text/x-python", "buffer": content})
        expect(page.locator(".problems")).to_contain_text(reason)
    expect(page.locator(".cm-content")).to_contain_text("torch.softmax(x, dim=1)")


@pytest.mark.slow
def test_why_a_file_was_refused_is_not_overwritten_by_a_check_that_was_under_way(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    expect(page.locator(".verdict")).not_to_contain_text("Checked as you type")
    held = []
    page.route("**/submit/check", lambda route: held.append(route))
    with page.expect_request(lambda request: request.url.endswith("/submit/check") and "softmax" in (request.post_data or "")):
        write(page, SOURCE)
    upload = page.locator("input[type=file]")
    upload.set_input_files({"name": "other.py", "mimeType": "text/x-python", "buffer": b"\xff\xfe\x00"})
    expect(page.locator(".problems")).to_contain_text("is not UTF-8 text")
    held.pop().continue_()
    expect(page.locator(".verdict")).to_contain_text("get_inputs and get_init_inputs found")
    expect(page.locator(".problems")).to_contain_text("is not UTF-8 text")
    page.unroute("**/submit/check")
    upload.set_input_files({"name": "mine.py", "mimeType": "text/x-python", "buffer": SOURCE.encode()})
    expect(page.locator(".problems")).to_have_count(0)
    expect(page.locator(".verdict")).to_contain_text("get_inputs and get_init_inputs found")


@pytest.mark.slow
def test_a_slow_or_missing_server_does_not_lose_the_source(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    page.route("**/submit/check", lambda route: route.abort())
    write(page, SOURCE)
    expect(page.locator(".problems")).to_contain_text("the server does not answer")
    expect(page.locator(".cm-content")).to_contain_text("torch.softmax(x, dim=1)")


def test_a_source_that_is_too_large_is_not_even_sent(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    write(page, "#" * 600_000)
    expect(page.locator(".problems")).to_contain_text("larger than 512 KiB")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()
    assert page.url == f"{server}/submit/" and not Run.objects.exists()


def test_tab_indents_and_escape_lets_one_leave_the_editor(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    page.locator(".cm-content").click()
    page.keyboard.press("Tab")
    expect(page.locator(".cm-content")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.locator(".cm-content")).not_to_be_focused()


def test_the_keyboard_is_enough(server, page_of_alice):
    page = page_of_alice
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("go to Submit")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url(f"{server}/submit/")
    write(page, SOURCE)
    page.keyboard.type("# g d ? are only letters here")
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))


@pytest.mark.slow
def test_ones_own_program(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/verify/")
    write(page, SOURCE)
    write(page, PROGRAM.replace("ModelNew", "Other"), editor=1)
    expect(page.locator(".problems")).to_contain_text("there is no class `ModelNew`")
    write(page, PROGRAM, editor=1)
    expect(page.locator(".verdict .sound")).to_have_count(2)
    page.get_by_role("button", name="Verify", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    assert Run.objects.get().workflow == "verify"


@pytest.mark.slow
def test_the_widest_screen_and_the_menu_of_a_phone(server, page_of_alice):
    page = page_of_alice
    page.set_viewport_size({"width": 2560, "height": 1300})
    for path in ("/", "/submit/", "/tasks/", "/leaderboard/"):
        page.goto(server + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.get_by_role("link", name="Leaderboard", exact=True).first).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    for name in ("Leaderboard", "Devices", "All pages"):
        expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible()


@pytest.mark.slow
def test_groups_of_the_bar_open_one_at_a_time_and_by_keyboard(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    bar = page.get_by_role("navigation", name="Main")
    expect(bar.locator(":scope > a:visible")).to_have_text(["Runs", "Submit", "Leaderboard", "Review"])
    page.get_by_role("button", name="Advanced").click()
    expect(page.get_by_role("link", name="All pages")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="All pages")).to_be_hidden()
    page.get_by_role("button", name="Advanced").focus()
    page.keyboard.press("ArrowDown")
    expect(bar.get_by_role("link", name="Devices")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Advanced")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url(f"{server}/devices/")


@pytest.mark.slow
def test_a_theme_is_remembered(server, page_of_alice):
    page = page_of_alice
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Light or dark").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_typing_over_a_selection_keeps_to_the_policy(server, page_of_alice):
    """`no_errors_in_the_page` checks the console."""
    page = page_of_alice
    page.goto(f"{server}/submit/")
    editor = page.locator(".cm-content").first
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.type("x = 1")
    expect(editor).to_have_text("x = 1")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("import torch\ny = 2")
    expect(editor).to_contain_text("y = 2")
    page.keyboard.press("Control+a")
    page.keyboard.type("(")
    expect(editor).to_contain_text("(import torch")
    page.keyboard.press("Control+z")
    expect(editor).to_have_text(re.compile(r"^import torch\s*y = 2$"))
