"""Measures 100 websocket viewers of one run that emits 200 events per second: each event must arrive once and in order. Reports the latency.

    python -m bench.stream [--viewers 100] [--rate 200] [--seconds 30] [--out bench/results/stream.json]

Starts the database and the web process as `make run` does. One process appends one event per call through `stitchwork_append` (which the engine
calls). Another process runs all viewers, each with its own websocket; they acknowledge events by the same rule as the page's own script. The latency
of an event is the time from its `at`, which the database records before the commit, until the viewer has received the frame. Both clocks are this
machine's. There are two measurements: with the viewers alone, and with one additional viewer that never acknowledges. Nothing is parsed during the
measurement: frames are kept and parsed afterwards. All four parties share the machine's processors, and `cpu_seconds` shows how much time each of
them used. `viewers` and `writer` are the benchmark's own processes.
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
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.stream_viewers import Viewer

ROOT = Path(__file__).resolve().parents[1]
BAR_MS = 60.0
STILL = 1.15  # with the silent viewer, the p95 may be at most this many times as large as without it, or
STILL_MS = 5.0  # this many milliseconds more; a smaller difference is noise
SETTLE_SECONDS = 1.0
PATIENCE_SECONDS = 30.0


def write(run: str, rate: int, seconds: int, url: str) -> None:
    """Runs the writer process: one event per append, `rate` per second."""
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
        print(json.dumps({"seconds": time.monotonic() - begun, "cpu": time.process_time()}))


async def watched(arguments: argparse.Namespace, base: str, cookie: str, run: str, stack: Stack, silent: bool) -> dict[str, Any]:
    """Makes one measurement on a fresh run."""
    total = arguments.rate * arguments.seconds
    url = f"ws{base[4:]}/ws/runs/{run}/"
    viewers = [Viewer(url, cookie, base, total) for _ in range(arguments.viewers)]
    sleepers = [Viewer(url, cookie, base, total, silent=True)] if silent else []
    parts = urlsplit(base)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(viewer.connect(parts.hostname, parts.port) for viewer in [*viewers, *sleepers]))
    await asyncio.sleep(SETTLE_SECONDS)
    used = stack.cpu_seconds() | {"viewers": time.process_time()}
    command = [sys.executable, "-m", "bench.stream", "--write", run, "--rate", str(arguments.rate), "--seconds", str(arguments.seconds)]
    writer = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    said, _ = await writer.communicate()
    await asyncio.wait([viewer.done for viewer in viewers], timeout=PATIENCE_SECONDS)
    spent = {name: seconds - used[name] for name, seconds in (stack.cpu_seconds() | {"viewers": time.process_time()}).items()}
    for viewer in [*viewers, *sleepers]:
        viewer.transport.close()
    wrote = json.loads(said)
    parties = {name: round(seconds, 1) for name, seconds in (spent | {"writer": wrote["cpu"]}).items()}
    frames = sum(len(viewer.arrived) for viewer in viewers)
    more = {"web_cpu_seconds": parties["web"], "web_cpu_us_a_frame": round(1e6 * spent["web"] / frames) if frames else None, "cpu_seconds": parties}
    if silent:
        more["events_to_the_silent_viewer"] = sleepers[0].last
    return judged(viewers, total, silent) | more | {"writing_seconds": round(wrote["seconds"], 1)}


def judged(viewers: list[Viewer], total: int, silent: bool) -> dict[str, Any]:
    from bench.pages.rows import percentile

    delays: list[float] = []
    whole = 0
    parsed: dict[bytes, list[tuple[int, float]]] = {}
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
    parser.add_argument("--write", metavar="RUN", help=argparse.SUPPRESS)  # the writer process
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write, arguments.rate, arguments.seconds, os.environ["STREAM_DATABASE"])
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ensures that the stack is stopped when this process ends
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
        results = measure(arguments, Stack(stack.pid))
    finally:
        stack.send_signal(signal.SIGINT)
        stack.wait(60)
        shutil.rmtree(data, ignore_errors=True)
    return report(results, arguments, load)


def measure(arguments: argparse.Namespace, stack: Stack) -> list[dict[str, Any]]:
    import django

    django.setup()
    import httpx
    from django.conf import settings

    from tests.browser.sample_run import create_run
    from webapp.accounts.models import SignInLink, User
    from webapp.supervisor.postgres import EmbeddedPostgres

    user = User.objects.order_by("pk").first()
    base = f"http://127.0.0.1:{os.environ['PORT']}"
    os.environ["STREAM_DATABASE"] = EmbeddedPostgres(settings.DATA_DIR).url()
    with httpx.Client(base_url=base, trust_env=False, follow_redirects=True) as client:
        client.get(f"/sign-in/{SignInLink.issue(user)}/")
        cookie = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
    results = []
    for silent in (False, True):
        run = str(create_run(user, "stream").pk)
        results.append(asyncio.run(watched(arguments, base, cookie, run, stack, silent)))
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


class Stack:
    """The processes of the product, under their supervisor."""

    def __init__(self, supervisor: int):
        self.supervisor = supervisor
        self.web = next((pid for pid in self._children(supervisor) if "daphne" in Path(f"/proc/{pid}/cmdline").read_text()), None)
        if self.web is None:
            raise RuntimeError("the web process is not there")

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the user and system time of the web process and of the database, including connection servers that have ended."""
        main = [pid for pid in self._children(self.supervisor) if os.path.basename(os.path.realpath(f"/proc/{pid}/exe")) == "postgres"]
        servers = [pid for parent in main for pid in self._children(parent)]
        ended = sum(cpu_seconds(pid, (13, 14)) for pid in main)
        return {"web": cpu_seconds(self.web), "database": ended + sum(cpu_seconds(pid) for pid in [*main, *servers])}

    @staticmethod
    def _children(parent: int) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(path.name))
            except OSError:
                continue
        return found


def cpu_seconds(pid: int, fields: tuple[int, int] = (11, 12)) -> float:
    """Returns utime and stime of a process, or with (13, 14) those of its reaped children; 0 if it has ended in the meantime."""
    try:
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(values[field]) for field in fields) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
