"""`make screenshots` starts a temporary installation with the real H200 runs of examples/traces and saves every page as docs/screenshots/*.png.

Each page is captured in the light and dark themes at 1440 px, and some pages also at 390 px. The images are reduced to a palette (Pillow) and take up
at most 6 MB in total. The command stops with an explanation if the installation does not start, a page responds with an error, or the console is not
empty.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/screenshots"
MOST_BYTES = 6 * 1024 * 1024
START_SECONDS = 300
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PLAIN_MODULE = '''import torch
from torch import nn


class GatedMLP(nn.Module):
    """SwiGLU feed-forward block."""

    def __init__(self, dim: int, hidden: int, bias: bool = False):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=bias)
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x, attention_mask=None):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))
'''


@dataclass(frozen=True)
class Shot:
    name: str
    path: str  # a URL, or the name of one that the seed script returned
    act: Callable[[Page], None] = lambda page: None  # performed before the picture is taken
    phone: bool = False  # also at 390 px
    signed_in: bool = True
    whole: bool = False  # the full page instead of only the visible part


def followed(page: Page) -> None:
    """Waits until a run's trace has arrived."""
    page.wait_for_selector(".entry", state="attached", timeout=30_000)
    page.wait_for_timeout(1500)


def plain_module(page: Page) -> None:
    page.locator(".cm-content").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")  # if text is typed over a selection, Chromium tries to keep the style in an attribute
    page.keyboard.insert_text(PLAIN_MODULE)
    page.locator(".module").wait_for()
    page.get_by_label("dim int").fill("1024")
    page.get_by_label("hidden int").fill("4096")
    page.get_by_label("Shape of x").fill("8, 512, 1024")
    page.get_by_label("Shape of x").blur()
    page.locator(".module").evaluate("(form) => form.scrollIntoView({ block: 'end' })")
    page.wait_for_timeout(800)


def drawn(page: Page) -> None:
    """Waits for canvases and charts, which are drawn only after their data has arrived."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1200)


def kernels(page: Page) -> None:
    """Scrolls to the comparison's settings, followed by plans and kernels, strategies and diffs."""
    drawn(page)
    page.locator("#kernels-title").evaluate("(title) => title.closest('section').scrollIntoView({ block: 'start' })")
    page.wait_for_timeout(800)


SHOTS = [
    Shot("runs", "/", phone=True),
    Shot("submit", "/submit/", act=drawn, phone=True),
    Shot("submit-plain-module", "/submit/", act=plain_module),
    Shot("submit-several", "/submit/several/"),
    Shot("verify", "/verify/"),
    Shot("run", "run", act=followed, phone=True),
    Shot("candidate", "candidate", act=drawn),
    Shot("candidate-report", "candidate?tab=report", act=drawn),
    Shot("candidate-kernels", "candidate?tab=kernels", act=drawn),
    Shot("diff", "diff", act=drawn),
    Shot("timeline", "timeline", act=drawn, phone=True),
    Shot("compare", "compare", act=drawn, phone=True),
    Shot("compare-kernels", "compare", act=kernels),
    Shot("compare-runs", "compare_runs", act=drawn),
    Shot("compare-choose", "compare_choose", act=drawn),
    Shot("leaderboard", "/leaderboard/", act=drawn, phone=True),
    Shot("leaderboard-results", "/leaderboard/results/"),
    Shot("arena", "/arena/"),
    Shot("review", "/review/", act=drawn),
    Shot("share", "share", act=followed, signed_in=False),
    Shot("notifications", "/notifications/"),
    Shot("tasks", "/tasks/"),
    Shot("task", "task"),
    Shot("strategies", "/strategies/"),
    Shot("documents", "/documents/"),
    Shot("models", "/models/"),
    Shot("devices", "/devices/"),
    Shot("team", "team"),
    Shot("audit", "audit"),
    Shot("account", "/account/"),
    Shot("sign-in", "/sign-in/", signed_in=False, phone=True),
    Shot("styleguide", "/styleguide/", whole=True),
    Shot("api", "/api/v1/docs"),
]


class Failed(RuntimeError):
    """Raised if the screenshots could not be taken. The message says why."""


@contextmanager
def installation(data: Path) -> Iterator[str]:
    """Yields the base URL of a complete installation with one verifier for this machine's processor."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"PORT": str(port), "DATA_DIR": str(data), "STITCHWORK_DIE_WITH_PARENT": "1"}
    environment.pop("DATABASE_URL", None)
    log = (data.parent / "log").open("w+")
    process = subprocess.Popen([sys.executable, "-m", "webapp.supervisor"], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while "ready: " not in Path(log.name).read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the installation did not come up:\n{Path(log.name).read_text()[-2000:]}")
            time.sleep(0.3)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        log.close()


def seeded(data: Path, base: str, password: str) -> dict:
    script = (ROOT / "scripts/screenshots_seed.py").read_text()
    environment = os.environ | {"DATA_DIR": str(data), "PORT": base.rpartition(":")[2], "SCREENSHOT_PASSWORD": password}
    environment.pop("DATABASE_URL", None)
    done = subprocess.run([sys.executable, "manage.py", "shell"], input=script, cwd=ROOT, env=environment, capture_output=True, text=True)
    line = next((line for line in done.stdout.splitlines() if line.startswith("SEEDED ")), None)
    if line is None:
        raise Failed(f"the runs could not be imported:\n{done.stderr[-2000:]}")
    return json.loads(line.removeprefix("SEEDED "))


def take(browser: Browser, base: str, places: dict, only: set[str]) -> list[str]:
    """Writes the screenshots and returns the problems found."""
    wrong: list[str] = []
    signed_in = browser.new_context(reduced_motion="reduce", device_scale_factor=1)
    entry = signed_in.new_page()
    entry.goto(base + places["sign_in"])
    entry.close()
    nobody = browser.new_context(reduced_motion="reduce", device_scale_factor=1)
    for shot in SHOTS:
        if only and shot.name not in only:
            continue
        context = signed_in if shot.signed_in else nobody
        page = context.new_page()
        page.on("pageerror", lambda error, name=shot.name: wrong.append(f"{name}: {error}"))
        page.on("console", lambda said, name=shot.name: wrong.append(f"{name}: {said.text}") if said.type == "error" else None)
        named, _, query = shot.path.partition("?")
        if not named.startswith("/") and named not in places:
            print(f"  {shot.name}: this installation has no such page", flush=True)
            continue
        url = base + places.get(named, named) + (f"?{query}" if query else "")
        for width, schemes in ((1440, ("light", "dark")), (390, ("light",) if shot.phone else ())):
            page.set_viewport_size({"width": width, "height": 900 if width == 1440 else 844})
            for number, scheme in enumerate(schemes):
                page.emulate_media(color_scheme=scheme)
                if number == 0 or "canvas" in shot.name or shot.act in (drawn, kernels):
                    answer = page.goto(url)
                    if answer is not None and answer.status >= 400:
                        wrong.append(f"{shot.name}: {url.removeprefix(base)} answered {answer.status}")
                    page.wait_for_load_state("networkidle")
                    shot.act(page)
                page.wait_for_timeout(250)
                name = f"{shot.name}-{'phone' if width == 390 else scheme}.png"
                if shot.whole:  # a taller window, because sticky elements would appear in the middle of a stitched image
                    page.set_viewport_size({"width": width, "height": page.evaluate("document.documentElement.scrollHeight")})
                    page.evaluate("scrollTo(0, 0)")
                    page.wait_for_timeout(250)
                store(page.screenshot(caret="initial"), FOLDER / name)  # hiding the caret would require an inline style
        page.close()
        print(f"  {shot.name}", flush=True)
    return wrong


def store(png: bytes, path: Path) -> None:
    """Reduces the image to 256 colours without dithering, which keeps text sharp and makes the file four times smaller."""
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


def main() -> int:
    if CHROMIUM is None:
        print("screenshots: no Chromium on this machine: apt install chromium, or set CHROMIUM to its path", file=sys.stderr)
        return 1
    only = set(sys.argv[1:])
    FOLDER.mkdir(parents=True, exist_ok=True)
    password = secrets.token_urlsafe(12)
    try:
        with tempfile.TemporaryDirectory(prefix="stitchwork-shots-") as folder, sync_playwright() as playwright:
            data = Path(folder) / "data"
            data.mkdir(mode=0o700)
            with installation(data) as base:
                places = seeded(data, base, password)
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                wrong = take(browser, base, places, only)
                browser.close()
    except Failed as failure:
        print(f"screenshots: {failure}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in FOLDER.glob("*.png"))
    print(f"screenshots: {len(list(FOLDER.glob('*.png')))} pictures, {size / 1e6:.1f} MB in docs/screenshots")
    if size > MOST_BYTES:
        wrong.append(f"they are larger than {MOST_BYTES / 1e6:.1f} MB together")
    for sentence in wrong:
        print(f"screenshots: {sentence}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
