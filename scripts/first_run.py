"""`make first-run` records three newcomer walkthroughs of an empty installation as docs/screenshots/first-run/*.png, counting clicks and seconds.

The walkthroughs are an example, a custom module with two inputs and an index, and a team of two. Each begins with the sign-in link that `make run`
prints. Only clicks and key presses count as clicks, not typing or pasting. The seconds are measured from the link to the first verified result,
including waiting. `walks.json` records both, with the machine and its load. If the machine is busy with other work, the verifier reports that the
host was too noisy, and the screenshot shows this.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from screenshots import CHROMIUM, ROOT, Failed, installation, store

FOLDER = ROOT / "docs/screenshots/first-run"
PATIENCE_MS = int(os.environ.get("FIRST_RUN_MINUTES", "20")) * 60_000
RESULT = re.compile(r"\d× |Not correct|too noisy|No reliable speedup")
PASSWORD = "correct horse staple"  # for an installation that exists only for one walkthrough
OWN = '''import torch
from torch import nn


class Recommender(nn.Module):
    """Scores items for a user's features."""

    def __init__(self, items: int, width: int):
        super().__init__()
        self.table = nn.Embedding(items, width)
        self.mix = nn.Linear(width, width)

    def forward(self, features, ids):
        chosen = self.table(ids)
        return torch.sigmoid(self.mix(features) * chosen).sum(dim=-1)
'''


@dataclass
class Walk:
    """One walkthrough: its clicks, its duration and its screenshots."""

    name: str
    page: Page = field(repr=False)
    clicks: int = 0
    seconds: float | None = None  # until the first verified result
    outcome: str = ""
    pictures: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic, repr=False)

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1

    def picture(self, what: str) -> None:
        name = f"{self.name}-{len(self.pictures) + 1}-{what}.png"
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(400)
        store(self.page.screenshot(caret="initial"), FOLDER / name)
        self.pictures.append(name)

    def wait_for_result(self) -> None:
        """Waits on a run's page until one of its programs has been verified."""
        self.page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}/"))
        self.picture("running")
        try:
            expect(self.page.locator(".run-summary .figures")).to_contain_text(RESULT, timeout=PATIENCE_MS)
            self.seconds = time.monotonic() - self.begun
            self.picture("first-result")
            expect(self.page.locator("[data-part=status]")).to_contain_text(re.compile("finished|budget"), timeout=PATIENCE_MS)
            self.outcome = self.page.locator("[data-part=outcome]").inner_text().split("\n")[-1]
        except AssertionError:
            self.outcome = f"nothing final within {PATIENCE_MS // 60_000} minutes"
        self.picture("end")


def an_example(walk: Walk, link: str, browser: Browser) -> None:
    page = walk.page
    page.goto(link)
    walk.picture("signed-in")
    walk.click(page.get_by_role("link", name="Submit", exact=True).first)
    page.locator(".cm-content").wait_for()
    walk.click(page.get_by_text("Quick", exact=True))
    walk.picture("submit")
    walk.click(page.get_by_role("button", name="Submit", exact=True))
    walk.wait_for_result()


def an_own_module(walk: Walk, link: str, browser: Browser) -> None:
    page = walk.page
    page.goto(link)
    walk.click(page.get_by_role("link", name="Submit", exact=True).first)
    page.locator(".cm-content").wait_for()
    walk.click(page.get_by_role("button", name="Clear"))
    page.keyboard.insert_text(OWN)
    page.locator(".module").wait_for()
    walk.picture("pasted")
    walk.click(page.get_by_role("button", name=re.compile("^Missing: ")))  # leads to the first empty field
    for value in ("50000", "256"):
        page.keyboard.type(value)
        page.keyboard.press("Tab")
    page.wait_for_timeout(1000)
    for label, shape in (("Shape of features", "512, 256"), ("Shape of ids", "512")):
        page.get_by_label(label).fill(shape)
    walk.picture("filled-in")
    walk.click(page.get_by_role("button", name="Submit", exact=True))
    walk.wait_for_result()


def a_team_of_two(walk: Walk, link: str, browser: Browser) -> None:
    """The owner creates a team and an invitation link. A second person joins through it and submits a model. The owner finds the run in the list."""
    owner = walk.page
    owner.goto(link)
    walk.click(owner.get_by_role("button", name=re.compile("^Team ")))
    walk.click(owner.get_by_role("link", name="New team"))
    owner.get_by_label("New team").fill("Kernels")
    walk.click(owner.get_by_role("button", name="Make a team"))
    walk.click(owner.get_by_role("button", name="Make a link"))
    walk.picture("invitation")
    address = owner.locator("#invitation-link").inner_text().strip()
    theirs = browser.new_context(viewport=owner.viewport_size, reduced_motion="reduce").new_page()
    walk.page = theirs
    theirs.goto(address)
    walk.click(theirs.get_by_role("link", name="Make an account"))
    theirs.get_by_label("Name").fill("dana")
    for label in ("Password", "The same again"):
        theirs.get_by_label(label).fill(PASSWORD)
    walk.click(theirs.get_by_role("button", name="Make an account"))
    walk.picture("joined")
    walk.click(theirs.get_by_role("link", name="Submit", exact=True).first)
    theirs.locator(".cm-content").wait_for()
    walk.click(theirs.get_by_text("Quick", exact=True))
    walk.click(theirs.get_by_role("button", name="Submit", exact=True))
    walk.wait_for_result()
    theirs.context.close()
    walk.page = owner
    walk.click(owner.get_by_role("link", name="Runs", exact=True).first)
    walk.picture("owner-sees-it")


WALKS: dict[str, Callable[[Walk, str, Browser], None]] = {"example": an_example, "own-module": an_own_module, "team": a_team_of_two}


def fresh_link(data: Path, base: str) -> str:
    environment = os.environ | {"DATA_DIR": str(data), "PORT": base.rpartition(":")[2]}
    done = subprocess.run([sys.executable, "manage.py", "signin_link"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def film(only: set[str]) -> list[Walk]:
    walks = []
    with tempfile.TemporaryDirectory(prefix="stitchwork-first-run-") as folder, sync_playwright() as playwright:
        data = Path(folder) / "data"
        data.mkdir(mode=0o700)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with installation(data) as base:
            for name, walked in WALKS.items():
                if only and name not in only:
                    continue
                link = fresh_link(data, base)
                page = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
                walk = Walk(name, page)
                walked(walk, link, browser)
                walks.append(walk)
                print(f"  {name}: {walk.clicks} clicks, {walk.seconds or 0:.0f} s, {walk.outcome!r}", flush=True)
                page.context.close()
        browser.close()
    return walks


def main() -> int:
    if CHROMIUM is None:
        print("first-run: no Chromium on this machine: apt install chromium, or set CHROMIUM to its path", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        walks = film(set(sys.argv[1:]))
    except Failed as failure:
        print(f"first-run: {failure}", file=sys.stderr)
        return 1
    path = FOLDER / "walks.json"
    known = json.loads(path.read_text()) if path.exists() else {"before": {"clicks": None, "seconds": 107, "outcome": "matched"}}
    machine = {"processors": os.cpu_count(), "load": os.getloadavg()[0], "system": platform.platform(), "at": time.strftime("%Y-%m-%d %H:%M")}
    for walk in walks:
        said = {name: getattr(walk, name) for name in ("clicks", "seconds", "outcome", "pictures")}
        known[walk.name] = said | {"machine": machine}
    path.write_text(json.dumps(known, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
