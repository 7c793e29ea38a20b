"""The whole path of a newcomer, on the real stack: one-time link, softmax, a live run with real compilers, a leaderboard row."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from webapp.environment import ROOT

RUN_MS = 8 * 60 * 1000  # two cores, a full confirmation with torch.compile included


@pytest.fixture(scope="module")
def stack(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """(sign-in link, DATA_DIR) of a Stitchwork of its own, started as `make run` starts it."""
    data = tmp_path_factory.mktemp("journey")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "DJANGO_ALLOW_ASYNC_UNSAFE")}
    process = subprocess.Popen(
        [sys.executable, "-m", "webapp.supervisor", "--port", str(port), "--data-dir", str(data)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready: "), f"the stack did not start: {line!r}"
        yield line.removeprefix("ready: ").strip(), data
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_from_the_link_to_a_leaderboard_row(stack, page: Page):
    link, _ = stack
    page.goto(link)
    page.get_by_role("link", name="Submit").first.click()
    expect(page.locator(".cm-content")).to_contain_text("class Model")  # the editor is there, and with it what the choice does
    page.get_by_label("Start from an example").select_option("softmax")
    expect(page.locator(".cm-content")).to_contain_text("torch.softmax")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))

    # Live: stages, conversation and tree grow in the open page.
    entries = page.locator("[data-part=entries]")
    expect(entries).to_contain_text("Planner", timeout=120_000)
    expect(page.locator("[data-part=tree]")).to_contain_text(re.compile("plan", re.I), timeout=120_000)
    expect(page.locator("[data-part=status]")).to_contain_text(re.compile("finished|improved|matched"), timeout=RUN_MS)

    # The candidate's evidence, without a reload.
    tabs = page.locator("[data-part=pane-tabs]")
    body = page.locator("#pane-body")
    tabs.get_by_role("tab", name="Diff").click()
    expect(body.locator("table")).to_be_visible(timeout=30_000)
    tabs.get_by_role("tab", name="Report").click()
    expect(body).to_contain_text("passed", timeout=30_000)
    expect(body).to_contain_text("eager")
    tabs.get_by_role("tab", name="Timeline").click()
    expect(body.locator("canvas").first).to_be_visible(timeout=30_000)

    page.goto(link.split("/sign-in/")[0] + "/leaderboard/results/")
    row = page.locator("table tbody tr").filter(has_text="softmax").filter(has_text="built-in").first
    expect(row).to_be_visible()
    expect(row).to_contain_text(re.compile(r"\d\.\d+"))
