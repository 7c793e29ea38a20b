"""Tests the steps before a run: turning a plain module into a task, starting several tasks as one suite run, keeping a draft, and uploading a
checkout as a zip."""

from __future__ import annotations

import io
import re
import zipfile

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_submit import advanced, write
from tests.unit.webapp.cast import SOURCE
from webapp.arena.models import Arena
from webapp.fleet.models import Device
from webapp.runs.models import Run
from webapp.tasks.models import Suite, Task, TryOut

PLAIN = '''import torch
from torch import nn


class Gate(nn.Module):
    """One gate."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, attention_mask=None):
        return torch.sigmoid(self.linear(x))


class Net(nn.Module):
    """Two gates."""

    def __init__(self, width: int, *, scale: float = 0.5):
        super().__init__()
        self.first, self.second, self.scale = Gate(width), Gate(width), scale

    def forward(self, x, ids):
        return self.first(x) * self.second(x) * self.scale + ids.unsqueeze(-1)
'''


@pytest.fixture
def page_of_alice(people, sign_in) -> Page:
    return sign_in(people.alice)


def test_a_plain_module_becomes_a_task_by_its_form(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    write(page, PLAIN)
    expect(page.locator(".verdict")).to_contain_text("A plain module: Gate(width), Net(width, scale=0.5)")
    expect(page.get_by_label("Class", exact=True)).to_have_value("Net")
    page.get_by_role("button", name="Missing: width, shape of x, shape of ids").click()
    expect(page.get_by_label("width int")).to_be_focused()
    page.get_by_label("width int").fill("64")
    page.get_by_label("width int").blur()
    expect(page.get_by_label("Shape of x")).to_have_value("16, 64")
    expect(page.get_by_role("button", name="Missing: shape of ids", exact=True)).to_be_in_viewport()
    page.get_by_label("Shape of x").fill("16 x 64")
    page.get_by_label("Shape of ids").fill("16")
    expect(page.get_by_label("Type of ids")).to_have_value("int64")
    page.get_by_label("Shape of ids").press("Enter")
    expect(page.locator(".verdict .sound")).to_contain_text("Model, get_inputs and get_init_inputs found")
    expect(page.locator(".cm-content")).to_contain_text("class Model(Net)")
    page.get_by_label("Shape of x").fill("32, 64")
    page.get_by_role("button", name="Generate task again").click()
    expect(page.locator(".cm-content")).to_contain_text("torch.randn(32, 64)")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    source = Run.objects.get().task.source
    assert source.count("class Model(Net)") == 1 and "torch.randint(0, 100, (16,))" in source and "return [64, 0.5]" in source


def test_a_plain_module_is_submitted_without_seeing_its_task(server, page_of_alice):
    """Submitting takes three clicks: one to open the page, one into the editor, and one on the button that states what is missing."""
    page = page_of_alice
    page.goto(f"{server}/submit/")
    write(page, PLAIN)
    go = page.get_by_role("button", name="Missing: width, shape of x, shape of ids")
    go.click()
    expect(page.get_by_label("width int")).to_be_focused()
    page.keyboard.type("64")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Shape of x")).to_have_value("16, 64")
    page.get_by_label("Shape of ids").fill("16")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    run = Run.objects.get()
    assert (run.title, run.workflow) == ("Net", "descend") and "torch.randint(0, 100, (16,))" in run.task.source


@pytest.mark.slow
def test_a_budget_fills_in_the_limits_and_a_limit_is_ones_own(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    page.get_by_text("Quick", exact=True).click()
    expect(page.locator("[data-limits]")).to_have_text("3 candidates, 4 min on the device, 10 min in all")
    advanced(page)
    page.get_by_text("Budget and target").click()
    expect(page.get_by_label("Candidates at most")).to_have_value("3")
    page.get_by_label("Candidates at most").fill("5")
    expect(page.get_by_role("radio", name="Own limits")).to_be_checked()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    assert Run.objects.get().settings["budget"]["candidates"] == 5


@pytest.mark.slow
def test_what_is_typed_while_the_form_is_on_its_way_stays(server, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    write(page, PLAIN)
    expect(page.get_by_label("Class", exact=True)).to_have_value("Net")
    held = []
    page.route("**/submit/module", lambda route: held.append(route))  # both answered below, the later one first
    page.get_by_label("Class", exact=True).select_option("Gate")
    page.get_by_label("Class", exact=True).select_option("Net")
    page.get_by_label("width int").fill("48")
    page.get_by_label("Shape of x").fill("32, 64")
    while len(held) < 2:
        page.wait_for_timeout(20)
    for route in reversed(held):
        with page.expect_response("**/submit/module"):
            route.continue_()
        page.wait_for_timeout(200)
    expect(page.get_by_label("Class", exact=True)).to_have_value("Net")
    expect(page.get_by_label("width int")).to_have_value("48")
    expect(page.get_by_label("Shape of x")).to_have_value("32, 64")
    expect(page.get_by_label("Shape of x")).to_be_focused()


def test_the_sandboxs_word_stands_under_the_editor_with_its_lines(server, page_of_alice):
    page = page_of_alice
    Device.objects.create(worker="w1", kind="cpu", device="cpu", name="Example CPU", model="cpu-x86_64-2c", queue="verify.cpu")
    page.goto(f"{server}/submit/")
    write(page, SOURCE)
    expect(page.locator(".tryout[data-state=queued]")).to_contain_text("waiting for the device")
    problem = {"line": 7, "column": 9, "message": "forward raised RuntimeError: sizes do not fit", "hint": "look at the shapes"}
    found = {"task": "x", "ok": False, "problems": [problem]}
    TryOut.objects.update(state="finished", admission=found, device_name="Example CPU")
    expect(page.locator(".tryout")).to_contain_text("not admitted")
    page.locator(".tryout").get_by_role("button", name="line 7").click()
    expect(page.locator(".cm-activeLine")).to_contain_text("torch.softmax")
    expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    write(page, SOURCE + "# changed\n")
    expect(page.locator(".tryout[data-state=queued]")).to_be_visible()
    write(page, SOURCE)
    expect(page.locator(".tryout")).to_contain_text("not admitted")
    assert TryOut.objects.filter(state="dropped").count() == 0 or TryOut.objects.count() == 2


@pytest.mark.slow
def test_what_was_typed_comes_back_until_it_is_submitted(server, people, page_of_alice, sign_in):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    write(page, SOURCE + "# half a thought\n")
    advanced(page)
    page.get_by_label("Title").fill("not yet")
    while not page.evaluate("Object.keys(localStorage).some((key) => localStorage[key].includes('not yet'))"):
        page.wait_for_timeout(50)
    page.context.clear_cookies()
    page.get_by_role("button", name="Submit", exact=True).click()
    assert not Run.objects.exists()
    sign_in(people.alice)
    page.goto(f"{server}/submit/")
    expect(page.get_by_text("Draft restored")).to_be_visible()
    expect(page.locator(".cm-content")).to_contain_text("half a thought")
    expect(page.get_by_label("Title")).to_have_value("not yet")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    page.goto(f"{server}/submit/")
    expect(page.locator(".cm-content")).to_contain_text("masked_fill")
    expect(page.get_by_text("Draft restored")).to_be_hidden()


@pytest.mark.slow
def test_a_zip_becomes_suites_and_a_suite_becomes_one_suite_run(server, people, page_of_alice):
    page = page_of_alice
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number in (1, 2, 10):
            archive.writestr(f"KernelBench/level1/{number}_Softmax.py", SOURCE + f"# {number}\n")
    page.goto(f"{server}/tasks/")
    page.get_by_label("A zip of a checkout").set_input_files({"name": "kb.zip", "mimeType": "application/zip", "buffer": packed.getvalue()})
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("status").filter(has_text="KernelBench L1: 3 new tasks")).to_be_visible()
    assert Task.objects.filter(suite=Suite.objects.get()).count() == 3
    page.goto(f"{server}/submit/several/")
    page.get_by_label("Filter tasks by name").fill("10_soft")
    expect(page.get_by_label("10_Softmax")).to_be_visible()
    expect(page.get_by_label("2_Softmax")).to_be_hidden()
    page.get_by_label("Filter tasks by name").fill("")
    page.get_by_label("all of KernelBench L1").check()
    expect(page.get_by_text("3 chosen")).to_be_visible()
    page.get_by_role("button", name="Submit 3 tasks").click()
    page.wait_for_url(re.compile(r"/arena/[0-9a-f-]{36}/"))
    assert Arena.objects.get().name == "KernelBench L1, descend"
    assert [run.title for run in Run.objects.order_by("created_at")] == ["1_Softmax", "2_Softmax", "10_Softmax"]


@pytest.mark.slow
def test_cost_and_queue_are_told_before_submitting(server, people, page_of_alice):
    page = page_of_alice
    page.goto(f"{server}/submit/")
    expect(page.locator(".cost")).to_contain_text("no estimate yet: 0 similar runs finished, 3 needed")
    expect(page.locator(".cost")).to_contain_text("when a CPU verifier is online")
