"""A whole run without any API, in which a person copies each prompt from the mailbox and pastes a reply, until there is a verified program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

CORPUS = Path(__file__).resolve().parents[1] / "integrity"
TASK = CORPUS / "tasks" / "softmax.py"
PROGRAM = CORPUS / "honest" / "cpu_softmax_openmp.py"
NOTE = "# Softmax on this host\n\n## Memory\n\nRows of a softmax that is bound by memory are read once where they stay in cache."
PATIENCE = 240  # seconds to wait for the next prompt or the end, including a verification on two busy cores
MOST_PROMPTS = 12


@pytest.fixture
def patient(page) -> Iterator[None]:
    """Grants generous time limits: these tests do not measure time, and compilers run alongside the pages."""
    page.set_default_timeout(120_000)
    expect.set_options(timeout=60_000)
    yield
    expect.set_options(timeout=5_000)


def planned(prompt: str) -> str:
    strategies = re.search(r"^## Strategies\n.*?^- `([\w-]+)`", prompt, re.DOTALL | re.MULTILINE)
    step = {
        "id": "s1", "title": "One kernel for the whole softmax", "operators": ["softmax"], "space": "own kernel",
        "strategies": [strategies[1]], "contract": "float32, contiguous, the same shape", "expected": "reads fall to one",
        "risk": "none", "reason": "memory sets the pace",
    }  # fmt: skip
    return "Here is the plan.\n```json\n" + json.dumps({"summary": "Softmax in one own kernel", "steps": [step]}) + "\n```\n"


def program(prompt: str) -> str:
    head = "TITLE: softmax by OpenMP\nCHANGES: one loop over the rows keeps each in cache\nSTRATEGY: fuse-row-reduction\n"
    return f"{head}\n```python\n{PROGRAM.read_text()}```\n"


def diagnosis(prompt: str) -> str:
    cited = re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/\d+", prompt)
    said = {"bottleneck": "The rows are read once: memory is all that is left.", "route": "stop", "method": None, "change": "", "expected": None}
    return json.dumps({**said, "documents": cited[:1]})


def judgement(prompt: str) -> str:
    """Submits the same program again if the machine was too busy for a verdict."""
    return json.dumps(
        {"defect": "the verdict says nothing about the program", "fix": "verify it again", "route": "repair", "why": "", "documents": []}
    )


REPLIES = {"planner": planned, "coder": program, "verifier/diagnose": diagnosis, "verifier/judge": judgement}


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_by_copy_and_paste(installation, page: Page, context, patient):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    link = installation.take_link()
    page.goto(link)
    base = link.partition("/sign-in/")[0]
    add_document(page, base)
    try_profile(page, base)
    run = submit(page, base)

    situations, copied = [], 0
    page.goto(f"{base}/mailbox/")
    while len(situations) < MOST_PROMPTS:
        answer = page.get_by_role("link", name=re.compile("^Answer "))
        if not wait_for_one(page, base, run, answer, done="verifier/diagnose" in situations):
            break
        answer.first.click()
        prompt = page.locator("#prompt").inner_text()
        page.get_by_role("button", name="Copy the prompt").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()").split() == prompt.split(), "the clipboard holds all of it"
        copied += 1
        situation = re.search(r"^Situation: (\S+)", prompt, re.MULTILINE)[1]
        reply = (REPLIES.get(situation) or REPLIES[situation.partition("/")[0]])(prompt)
        if not situations:
            page.get_by_role("button", name="Send the reply").click()
            expect(page.get_by_role("alert")).to_contain_text("The reply is empty")
        page.get_by_label("The model's reply").fill(reply)
        page.get_by_role("button", name="Send the reply").click()
        expect(page.get_by_role("status").filter(has_text="The reply is sent")).to_be_visible()
        situations.append(situation)

    assert situations[:2] == ["planner/plan", "coder/first"] and "verifier/diagnose" in situations and copied == len(situations), situations
    verdicts = {e["payload"]["tier"]: e["payload"]["status"] for e in events(page, run, "verification.finished") if e["payload"]["job"] == "verify"}
    assert verdicts == {"quick": "passed", "full": "passed"}, verdicts
    page.goto(run)
    expect(page.locator("[data-part=status]")).to_contain_text("finished", timeout=60_000)
    entries = page.locator("[data-part=entries]")
    expect(entries).to_contain_text("Softmax in one own kernel")
    expect(entries).to_contain_text("softmax by OpenMP")
    expect(entries).to_contain_text("memory is all that is left")
    page.locator("[data-part=pane-tabs]").get_by_role("tab", name="Report").click()
    expect(page.locator("#pane-body")).to_contain_text("passed", timeout=30_000)

    cited = entries.get_by_role("link", name=re.compile("Softmax on this host"))
    expect(cited.first).to_have_attribute("href", re.compile(r"/documents/[0-9a-f-]{36}/#p0"))
    cited.first.click()
    expect(page.locator(".passage:target")).to_contain_text("read once where they stay in cache")


def wait_for_one(page: Page, base: str, run: str, answer, *, done: bool) -> bool:
    """Waits until there is a prompt (the list refreshes itself) or the run has ended. `done` means that no further prompt is expected."""
    for _ in range(PATIENCE // 5):
        if page.url.rstrip("/") != f"{base}/mailbox":
            page.goto(f"{base}/mailbox/")
        try:
            expect(answer.first).to_be_visible(timeout=5000)
            return True
        except AssertionError:
            if events(page, run, "run.finished"):
                return False
    assert done, "no prompt came, and the run did not end"
    return False


def events(page: Page, run: str, kind: str) -> list[dict]:
    """Returns the run's events of one kind. Retries if the web process is briefly busy."""
    for _ in range(10):
        answer = page.request.get(f"{run}events?since=0&limit=500", timeout=120_000)
        if answer.ok:
            return [event for event in answer.json()["events"] if event["kind"] == kind]
        page.wait_for_timeout(3000)
    raise AssertionError(f"the events cannot be read: {answer.status}")


def add_document(page: Page, base: str) -> None:
    page.goto(f"{base}/documents/new")
    page.get_by_label("Text", exact=True).fill(NOTE)
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", name="Softmax on this host")).to_be_visible()


def try_profile(page: Page, base: str) -> None:
    page.goto(f"{base}/models/")
    button = page.get_by_role("button", name="Try it by-hand")
    expect(button).to_be_enabled(timeout=60_000)
    button.click()
    expect(page.locator("#profiles")).to_contain_text("a person answers", timeout=60_000)


def submit(page: Page, base: str) -> str:
    """Opens the page of a run in which a person plays all roles."""
    page.goto(f"{base}/submit/")
    expect(page.locator(".cm-content")).to_contain_text("class Model")
    page.locator("input[type=file]").set_input_files(TASK)
    expect(page.locator(".cm-content")).to_contain_text("softmax")
    page.locator("summary").filter(has_text="Advanced").click()
    page.get_by_label("Agents").select_option("by-hand")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
    return page.url.partition("#")[0]
