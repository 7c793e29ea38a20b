"""100 websocket viewers of one run that emits 200 events a second: every event once and in order, and how soon it arrives.

    python -m bench.stream [--viewers 100] [--rate 200] [--seconds 30] [--out bench/results/stream.json]

Starts database and web process as `make run` does. One process appends, one event an append, through `stitchwork_append` (what the engine calls); one
process holds all viewers, which acknowledge as the page's own script does. The time of an event is from its `at`, taken by the database before it is
committed, until the frame with it is in the viewer's hands; both clocks are this machine's. Measured twice: with the viewers alone, and with one more
that never acknowledges. Nothing is parsed while it is measured: frames are kept, and read afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BAR_MS = 60.0
STILL = 1.15  # with the silent viewer at most so many times the p95 without, or
STILL_MS = 5.0  # so many milliseconds more: less is noise
SETTLE_SECONDS = 1.0
PATIENCE_SECONDS = 30.0


@dataclass
class Viewer:
    """One page's end of the socket: keeps what arrived, and when."""

    arrived: list[tuple[float, str]] = field(default_factory=list)
    last: int = 0

    async def watch(self, url: str, cookie: str, origin: str, opened: asyncio.Event, until: int) -> None:
        from websockets.asyncio.client import connect

        async with connect(url, additional_headers={"Cookie": cookie}, origin=origin, max_size=None, compression=None, proxy=None) as socket:
            await socket.send(json.dumps({"type": "open", "since": 0}))
            opened.set()
            while self.last < until:
                text = await socket.recv()
                self.arrived.append((time.time(), text))
                self.last = int(LAST.search(text[-80:])[1])
                await socket.send(f'{{"type":"ack","seq":{self.last}}}')


LAST = re.compile(r'"last":(\d+)')


async def never_acknowledges(url: str, cookie: str, origin: str, opened: asyncio.Event) -> None:
    """Opens the run and goes to sleep."""
    from websockets.asyncio.client import connect

    async with connect(url, additional_headers={"Cookie": cookie}, origin=origin, max_size=None, compression=None, proxy=None) as socket:
        await socket.send(json.dumps({"type": "open", "since": 0}))
        opened.set()
        await asyncio.Event().wait()


def write(run: str, rate: int, seconds: int, url: str) -> None:
    """The writer's process: one event an append, `rate` a second."""
    import psycopg

    statement = "SELECT seq FROM stitchwork_append(%s, NULL, %s::json)"
    with psycopg.connect(url, autocommit=True) as connection:
        begun = time.monotonic()
        offset = 0
        for number in range(rate * seconds):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            text = f"token {number} of a text that a model streams "
            payload = {"message": "step-1/attempt-1#1", "offset": offset, "text": text}
            offset += len(text)
            event = {"span": "step-1/attempt-1", "parent": "", "agent": "coder", "kind": "message.delta", "payload": payload}
            connection.execute(statement, [run, json.dumps([event])])
        print(json.dumps({"seconds": time.monotonic() - begun}))


async def watched(arguments: argparse.Namespace, base: str, cookie: str, run: str, web: int, silent: bool) -> dict[str, Any]:
    """One measurement on a fresh run."""
    total = arguments.rate * arguments.seconds
    url = f"ws{base[4:]}/ws/runs/{run}/"
    viewers = [Viewer() for _ in range(arguments.viewers)]
    opened = [asyncio.Event() for _ in range(arguments.viewers + silent)]
    tasks = [asyncio.create_task(viewer.watch(url, cookie, base, event, total)) for viewer, event in zip(viewers, opened, strict=False)]
    sleeper = asyncio.create_task(never_acknowledges(url, cookie, base, opened[-1])) if silent else None
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in opened)), PATIENCE_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    used = cpu_seconds(web)
    command = [sys.executable, "-m", "bench.stream", "--write", run, "--rate", str(arguments.rate), "--seconds", str(arguments.seconds)]
    writer = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    said, _ = await writer.communicate()
    await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)
    used = cpu_seconds(web) - used
    for task in [*tasks, sleeper]:
        if task is not None:
            task.cancel()
    return judged(viewers, total, silent) | {"web_cpu_seconds": round(used, 1), "writing_seconds": round(json.loads(said)["seconds"], 1)}


def judged(viewers: list[Viewer], total: int, silent: bool) -> dict[str, Any]:
    from bench.pages.rows import percentile

    delays: list[float] = []
    whole = 0
    parsed: dict[str, list[tuple[int, float]]] = {}
    for viewer in viewers:
        seqs: list[int] = []
        for when, text in viewer.arrived:
            events = parsed.get(text)
            if events is None:
                events = parsed[text] = [(event["seq"], datetime.fromisoformat(event["at"]).timestamp()) for event in json.loads(text)["events"]]
            seqs += [seq for seq, _ in events]
            delays += [(when - at) * 1000 for _, at in events]
        whole += seqs == list(range(1, total + 1))
    frames = sum(len(viewer.arrived) for viewer in viewers) / len(viewers)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}
    return {
        "silent_viewer": silent, "events": total, "viewers": len(viewers), "viewers_with_every_event_once_in_order": whole,
        "frames_a_viewer": round(frames), "ms": {name: round(percentile(delays, share), 1) for name, share in shares.items()} if delays else {},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--rate", type=int, default=200, help="events a second")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/stream.json")
    parser.add_argument("--write", metavar="RUN", help=argparse.SUPPRESS)  # the writer's process
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.rate, arguments.seconds, os.environ["STREAM_DATABASE"])
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the stack ends with us
    data = Path(tempfile.mkdtemp(prefix="bench-stream-"))
    from bench.pages.run import free_port

    os.environ |= {"DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "webapp.settings", "PORT": str(free_port()), "DJANGO_ALLOW_ASYNC_UNSAFE": "1"}
    os.environ.pop("DATABASE_URL", None)
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "webapp.supervisor", "--only", "web"]
    stack = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        line = stack.stdout.readline()
        if not line.startswith("ready: "):
            print("the stack did not start", file=sys.stderr)
            return 2
        results = measure(arguments, web_of(stack.pid))
    finally:
        stack.send_signal(signal.SIGINT)
        stack.wait(60)
        shutil.rmtree(data, ignore_errors=True)
    return report(results, arguments, load)


def measure(arguments: argparse.Namespace, web: int) -> list[dict[str, Any]]:
    import django

    django.setup()
    import httpx
    from django.conf import settings

    from tests.browser.sample_run import create_run
    from webapp.accounts.models import SignInLink, User
    from webapp.environment import socket_dir

    user = User.objects.order_by("pk").first()
    base = f"http://127.0.0.1:{os.environ['PORT']}"
    os.environ["STREAM_DATABASE"] = f"postgresql://stitchwork@/stitchwork?host={socket_dir(settings.DATA_DIR)}"
    with httpx.Client(base_url=base, trust_env=False, follow_redirects=True) as client:
        client.get(f"/sign-in/{SignInLink.issue(user)}/")
        cookie = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
    results = []
    for silent in (False, True):
        run = str(create_run(user, "stream").pk)
        results.append(asyncio.run(watched(arguments, base, cookie, run, web, silent)))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    return results


def report(results: list[dict[str, Any]], arguments: argparse.Namespace, load: float) -> int:
    alone, beside = results
    met = {
        "every viewer has every event once, in order": all(r["viewers_with_every_event_once_in_order"] == r["viewers"] for r in results),
        f"p95 at most {BAR_MS:g} ms": bool(alone["ms"]) and alone["ms"]["p95"] <= BAR_MS,
        "a viewer that never acknowledges changes nothing": bool(beside["ms"])
        and beside["ms"]["p95"] <= max(alone["ms"]["p95"] * STILL, alone["ms"]["p95"] + STILL_MS),
    }
    processor = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    machine = {
        "processor": processor[1] if processor else platform.machine(), "cpus": len(os.sched_getaffinity(0)), "system": platform.system(),
        "python": platform.python_version(), "load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2),
    }  # fmt: skip
    result = {
        "what": "live events to many viewers",
        "machine": machine,
        "rate": arguments.rate,
        "seconds": arguments.seconds,
        "results": results,
        "met": met,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if all(met.values()) else 1


def web_of(supervisor: int) -> int:
    """The pid of the web process."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == supervisor and "daphne" in (path / "cmdline").read_text():
                return int(path.name)
        except OSError:
            continue
    raise RuntimeError("the web process is not there")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
