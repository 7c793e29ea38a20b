"""Opens the pages of a full installation in Chromium and compares their times with the targets.

    python -m bench.pages.run [trace timeline diffs leaderboard ...] [--runs 10000] [--events 1000000] [--data DIR] [--out FILE]

Starts the database and the web process as `make run` does, fills the database (bench/pages/seed.py; with `--data DIR`, only if DIR is new), and hands
a signed-in page to each measuring module in this folder. A module defines `measure(page, base_url, seeded) -> list[Row]`. If it needs more data than
the seed, it also defines `prepare(seeded)`, which writes the data through Django and records what it has created in `seeded.places`. Results go to
bench/results/pages.json, or to pages-NAME.json if modules are named. The exit status is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODULES = ["answers", "trace", "timeline", "diffs", "leaderboard"]
VIEWPORT = {"width": 1440, "height": 900}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(MODULES)}; all that are there where none is named")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--data", type=Path, help="keep the database here, and use what is there already")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    names = arguments.modules or [name for name in MODULES if (Path(__file__).parent / f"{name}.py").exists()]
    modules = {name: importlib.import_module(f"bench.pages.{name}") for name in names}
    data = (arguments.data or Path(tempfile.mkdtemp(prefix="bench-pages-"))).absolute()
    os.environ |= {"DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "webapp.settings", "PORT": str(free_port()), "DJANGO_ALLOW_ASYNC_UNSAFE": "1"}
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as in the web process
    os.environ.pop("DATABASE_URL", None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ensures that the stack is stopped when this process ends
    load = os.getloadavg()[0]
    stack = subprocess.Popen(
        [sys.executable, "-m", "webapp.supervisor", "--only", "web"], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        line = stack.stdout.readline()
        if not line.startswith("ready: "):
            print("the stack did not start", file=sys.stderr)
            return 2
        found = measure_all(modules, arguments)
    finally:
        stack.send_signal(signal.SIGINT)
        stack.wait(60)
        if arguments.data is None:
            shutil.rmtree(data, ignore_errors=True)
    return report(found, names, arguments, load)


def measure_all(modules: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns rows by module, and the failures."""
    import django

    django.setup()
    from playwright.sync_api import sync_playwright

    from bench.pages.seed import seed
    from webapp.garbage import settle

    settle()  # measurements in this process represent the web process
    seeded = seed(runs=arguments.runs, events=arguments.events)
    found: dict[str, Any] = {"seeded": asdict(seeded), "rows": {}, "broken": {}}
    base = f"http://127.0.0.1:{os.environ['PORT']}"
    with sync_playwright() as playwright:
        for name, module in modules.items():
            print(f"{name} ...", file=sys.stderr, flush=True)
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--enable-precise-memory-info"])
            try:
                if hasattr(module, "prepare"):
                    module.prepare(seeded)
                page = browser.new_page(viewport=VIEWPORT)
                page.goto(f"{base}/sign-in/{sign_in_token(seeded.user)}/")
                found["rows"][name] = module.measure(page, base, seeded)
            except Exception:
                found["broken"][name] = traceback.format_exc(limit=6)
            finally:
                browser.close()
    return found


def sign_in_token(user: int) -> str:
    from webapp.accounts.models import SignInLink, User

    return SignInLink.issue(User.objects.get(pk=user))


def report(found: dict[str, Any], names: list[str], arguments: argparse.Namespace, load: float) -> int:
    from bench.pages.rows import table

    rows = [row for name in names for row in found["rows"].get(name, [])]
    result = {
        "what": "pages in Chromium over a full database",
        "machine": described() | {"load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2)},
        "database": {"runs": arguments.runs, "events": arguments.events},
        "rows": {name: [row.as_json() for row in found["rows"].get(name, [])] for name in names},
        "broken": found["broken"],
    }
    named = f"pages-{'-'.join(names)}.json" if arguments.modules else "pages.json"
    out = arguments.out or ROOT / "bench/results" / named
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(rows))
    machine, database = result["machine"], result["database"]
    print(f"\nload {machine['load_before']:g} before, {machine['load_after']:g} after, on {machine['cpus']} processors")
    print(f"{database['runs']:,} runs, {database['events']:,} events")
    for name, why in found["broken"].items():
        print(f"\n{name} broke:\n{why}", file=sys.stderr)
    return 1 if found["broken"] or any(row.met is False for row in rows) else 0


def described() -> dict[str, Any]:
    import platform
    import re

    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": model[1] if model else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": platform.python_version(),
        "chromium": subprocess.run([chromium(), "--version"], capture_output=True, text=True).stdout.strip(),
    }


def chromium() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("no Chromium on this machine: apt install chromium, or set CHROMIUM to its path")
    return found


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
