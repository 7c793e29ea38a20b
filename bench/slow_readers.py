"""Measures the web process's memory while 50 clients follow the server-sent events of one 240 MB run; ten of them never read.

    python -m bench.slow_readers [--readers 50] [--silent 10] [--megabytes 240] [--out bench/results/slow_readers.json]

Starts the database and the web process as `make run` does. Each reader has a separate connection and requests the whole run; silent readers send
their request and then read nothing. The figure is the resident memory of the web process, sampled every 0.2 s until the last reader has received
everything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.stream import ROOT, Stack

BAR_MB = 64
EVENT_CHARACTERS = 15_000
PIECE = 64  # number of events per append
PATIENCE_SECONDS = 360.0


def resident(pid: int) -> float:
    """Returns the resident memory of a process in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def fill(run: str, megabytes: int) -> int:
    """Appends 15 KB events until the run reaches this size. Returns their number."""
    from django.db import connection

    count = megabytes * 1_000_000 // EVENT_CHARACTERS
    note = {
        "span": "",
        "parent": "",
        "agent": "engine",
        "kind": "note.added",
        "payload": {"to": "all", "by": "bench", "text": "x" * EVENT_CHARACTERS},
    }
    with connection.cursor() as cursor:
        for begun in range(0, count, PIECE):
            events = json.dumps([note] * min(PIECE, count - begun))
            cursor.execute("SELECT seq FROM stitchwork_append(%s, NULL, %s::json)", [run, events])
    return count


async def read(base: str, cookie: str, run: str, last: int, silent: bool) -> int:
    """Returns the number of bytes received up to the event `last`; a silent reader waits for the others."""
    parts = urlsplit(base)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 17)
    head = f"GET /api/v1/runs/{run}/events/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {cookie}\r\n\r\n"
    writer.write(head.encode())
    if silent:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(PATIENCE_SECONDS)
    size, tail, sought = 0, b"", f"id: {last}\n".encode()
    try:
        while piece := await reader.read(1 << 16):
            size += len(piece)
            if sought in tail + piece:
                return size
            tail = piece[-40:]
        raise RuntimeError("the stream ended before its last event")
    finally:
        writer.close()


async def watched(arguments: argparse.Namespace, base: str, cookie: str, run: str, last: int, web: int) -> dict[str, Any]:
    before = resident(web)
    seen, begun = [before], time.monotonic()
    silent = [asyncio.create_task(read(base, cookie, run, last, True)) for _ in range(arguments.silent)]
    readers = [asyncio.create_task(read(base, cookie, run, last, False)) for _ in range(arguments.readers - arguments.silent)]
    while not all(task.done() for task in readers) and time.monotonic() - begun < PATIENCE_SECONDS:
        await asyncio.sleep(0.2)
        seen.append(resident(web))
    whole = sum(task.done() and not task.exception() for task in readers)
    for task in [*silent, *readers]:
        task.cancel()
    await asyncio.gather(*silent, *readers, return_exceptions=True)
    return {
        "before_mb": round(before, 1), "most_mb": round(max(seen), 1), "more_mb": round(max(seen) - before, 1),
        "seconds": round(time.monotonic() - begun, 1),
        "readers_with_everything": whole, "events": last, "samples": len(seen), "different_samples": len(set(seen)),
    }  # fmt: skip


def measure(arguments: argparse.Namespace, stack: Stack) -> dict[str, Any]:
    import django

    django.setup()
    import httpx

    from tests.browser.sample_run import create_run
    from webapp.accounts.models import SignInLink, User

    user = User.objects.order_by("pk").first()
    base = f"http://127.0.0.1:{os.environ['PORT']}"
    with httpx.Client(base_url=base, trust_env=False, follow_redirects=True) as client:
        client.get(f"/sign-in/{SignInLink.issue(user)}/")
        cookie = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
    run = str(create_run(user, "slow readers").pk)
    last = fill(run, arguments.megabytes)
    assert stack.web is not None
    return asyncio.run(watched(arguments, base, cookie, run, last, stack.web))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--silent", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=240)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/slow_readers.json")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ensures that the stack is stopped when this process ends
    data = Path(tempfile.mkdtemp(prefix="bench-slow-"))
    from bench.pages.run import free_port

    os.environ |= {"DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "webapp.settings", "PORT": str(free_port()), "DJANGO_ALLOW_ASYNC_UNSAFE": "1"}
    os.environ.pop("DATABASE_URL", None)
    stack = subprocess.Popen(
        [sys.executable, "-m", "webapp.supervisor", "--only", "web"], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        if not stack.stdout.readline().startswith("ready: "):
            print("the stack did not start", file=sys.stderr)
            return 2
        found = measure(arguments, Stack(stack.pid))
    finally:
        stack.send_signal(signal.SIGINT)
        stack.wait(60)
        shutil.rmtree(data, ignore_errors=True)
    met = {
        f"at most {BAR_MB} MB more": found["more_mb"] <= BAR_MB,
        "everybody who reads has everything": found["readers_with_everything"] == arguments.readers - arguments.silent,
    }
    machine = {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version(), "load_after": round(os.getloadavg()[0], 2)}
    asked = {"readers": arguments.readers, "silent": arguments.silent, "megabytes": arguments.megabytes}
    result = {"what": "readers of server-sent events that do not read", "machine": machine, **asked, "result": found, "met": met}
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
