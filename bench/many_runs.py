"""Measures 40 concurrent runs on one orchestrator, against a model that takes 5 s per reply: it records memory, lost events and the slowest run.

    python bench/many_runs.py [--runs 40] [--seconds 5] [--candidates 4] [--out bench/results/many-runs.json]

Starts the web process and the orchestrator as `make run` does, a model server that streams its replies over the given number of seconds (valid plans,
diagnoses and programs, each program different), and a verifier with canned verdicts, which takes jobs from the queue as a real one does. This
measures the orchestrator together with the real engine, clients, roles, journal and database. Each run is `stitch` with the model in all three roles.
Afterwards, every trace is checked: it must be finished and have no gaps, and the streamed pieces of each reply must add up to the reply.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
PIECES = 50  # number of pieces per reply
PATIENCE = 1800.0
MEMORY_MB, SLOWEST = 600, 2.0  # the required limits


class Model:
    """A model server with OpenAI's streaming chat completions API; its reply depends on the situation that the prompt describes."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.asked = self.flying = self.most = 0

    async def start(self) -> str:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=1 << 22)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])
            body = json.loads(await reader.readexactly(length))
            self.asked += 1
            self.flying += 1
            self.most = max(self.most, self.flying)
            try:
                await self._answer(writer, self._text(body))
            finally:
                self.flying -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, text: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        size = max(1, len(text) // PIECES + 1)
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        for piece in pieces:
            self._send(writer, {"choices": [{"index": 0, "delta": {"content": piece}}]})
            await writer.drain()
            await asyncio.sleep(self.seconds / len(pieces))
        self._send(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._send(writer, {"choices": [], "usage": {"prompt_tokens": 3000, "completion_tokens": len(text) // 4}})
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()

    @staticmethod
    def _send(writer: asyncio.StreamWriter, chunk: dict[str, Any]) -> None:
        writer.write(b"data: " + json.dumps({"model": "many-1", **chunk}).encode() + b"\n\n")

    def _text(self, body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        situation = re.search(r"Situation: (\w+/\w+)", prompt)
        name = situation[1] if situation else ""
        if name.startswith("planner/"):
            step = {"id": "s1", "title": "softmax in one pass", "operators": ["softmax"], "space": "own kernel", "contract": "as the reference"}
            return json.dumps({"summary": "One kernel for the whole model. " * 20, "steps": [step]})
        if name == "verifier/diagnose":
            methods = re.findall(r"`([a-z0-9-]+)`", prompt.partition("## Methods")[2].partition("\n## ")[0])
            reply = {"bottleneck": "It is bound by memory.", "route": "optimise" if methods else "stop", "method": methods[0] if methods else None}
            return json.dumps({**reply, "change": "Wider loads. " * 30, "expected": 1.2, "documents": []})
        if name.startswith("verifier/"):
            return json.dumps({"defect": "The tail is left out.", "why": "", "fix": "Mind the tail.", "route": "repair", "documents": []})
        digest = hashlib.sha256(f"{self.asked} {prompt}".encode()).digest()
        status = "wrong_result" if digest[0] % 4 == 0 else "passed"
        comments = "\n".join(f"# {digest.hex()} {line}" for line in range(60))
        source = f"# speed {1 + digest[1] / 128:.3f}\n# status {status}\n{comments}\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        return f"TITLE: A program\nCHANGES: something\nSTRATEGY: none\n\n```python\n{source}    def forward(self, x):\n        return x\n```\n"


class CannedVerifier:
    """Takes jobs from the queue in place of `webapp.runs.workers.verifier_worker.VerifierWorker`, and returns verdicts that the programs themselves
    state."""

    def __init__(self) -> None:
        from tests.unit.agents.agent_fakes import FakeClient
        from webapp.fleet.models import Device

        self.client = FakeClient()
        self.device = Device.objects.create(worker="many-runs", kind="cpu", device="cpu", name="Canned verdicts", model="canned", queue="verify.cpu")

    async def execute(self, verification, attempt: int, epoch: int) -> None:
        from webapp.database import in_thread
        from webapp.runs.workers import handover
        from webapp.runs.workers.handover import Claim, ClaimLost

        claim = Claim(verification, attempt, epoch)
        try:
            job = await in_thread(handover.start)(claim, self.device)
            source = getattr(job, "program_source", None)
            if job.kind == "verify":  # the fake verifier reads its verdict from plain lines at the top
                job = job.model_copy(update={"program_source": "\n".join(line for line in source.splitlines()[:2])})
            await in_thread(handover.finish)(claim, await self.client.run(job))
        except ClaimLost:
            pass

    async def main(self) -> None:
        from django.conf import settings
        from procrastinate import PsycopgConnector
        from procrastinate.contrib.django import app

        from webapp.database import connection_parameters

        with_queue = app.with_connector(PsycopgConnector(kwargs=connection_parameters(), min_size=1, max_size=4))
        async with with_queue.open_async():
            await with_queue.run_worker_async(
                queues=["verify.cpu"], concurrency=4, additional_context={"verifier": self}, install_signal_handlers=False,
                delete_jobs="successful", fetch_job_polling_interval=0.5, update_heartbeat_interval=settings.HEARTBEAT_SECONDS,
                stalled_worker_timeout=settings.STALLED_AFTER_SECONDS,
            )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=5.0, help="that the model takes for an answer")
    parser.add_argument("--candidates", type=int, default=4, help="programs of a run")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/many-runs.json")
    arguments = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="many-runs-"))
    model = Model(arguments.seconds)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    url = asyncio.run_coroutine_threadsafe(model.start(), loop).result()
    profile = f'kind = "openai"\nbase_url = "{url}"\nmodel = "many-1"\nlimits = {{ concurrency = {2 * arguments.runs} }}\n'
    (data / "llm.toml").write_text(f"[profiles.many]\n{profile}")
    os.environ |= {"DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "webapp.settings", "PORT": str(free_port())}
    os.environ.pop("DATABASE_URL", None)
    stack = subprocess.Popen(
        [sys.executable, "-m", "webapp.supervisor", "--only", "web", "orchestrator"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        line = stack.stdout.readline()
        if not line.startswith("ready: "):
            print("the stack did not start", file=sys.stderr)
            return 1
        result = measure(arguments, model, orchestrator_of(stack.pid), loop)
    finally:
        stack.send_signal(signal.SIGINT)
        stack.wait(60)
        shutil.rmtree(data, ignore_errors=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "each"}, indent=1))
    return 0 if all(result["met"].values()) else 1


def measure(arguments: argparse.Namespace, model: Model, orchestrator: int, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    import django

    django.setup()
    from agents.settings import Budget, Settings
    from webapp.accounts.models import User
    from webapp.runs.models import Run
    from webapp.runs.services import create_run

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    verifier = asyncio.run_coroutine_threadsafe(CannedVerifier().main(), loop)
    user = User.objects.order_by("pk").first()
    budget = Budget(candidates=arguments.candidates, verifier_seconds=None, seconds=None)
    settings = Settings(planner="many", coder="many", judge="many", budget=budget)
    idle = memory_mb(orchestrator, "VmRSS")
    source = (ROOT / "examples/softmax.py").read_text()
    runs = []
    begun = time.monotonic()
    for number in range(arguments.runs):
        task = f"{source}\n# task {number}\n"
        runs.append(create_run(team=user.personal_team, user=user, task_source=task, title=f"run {number}", settings=settings))
    samples: list[float] = []
    while Run.objects.exclude(state="finished").exists():
        samples.append(memory_mb(orchestrator, "VmRSS"))
        if verifier.done():
            verifier.result()
        if time.monotonic() - begun > PATIENCE:
            break
        time.sleep(0.5)
    wall = time.monotonic() - begun
    verifier.cancel()
    each = [look(run.pk) for run in runs]
    seconds = sorted(row["seconds"] for row in each if row["seconds"] is not None)
    median = seconds[len(seconds) // 2] if seconds else None
    peak = memory_mb(orchestrator, "VmHWM")
    return {
        "what": "runs at once on one orchestrator",
        "machine": {"processor": processor(), "cpus": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "runs": arguments.runs, "model_seconds": arguments.seconds, "candidates": arguments.candidates, "wall_seconds": round(wall, 1),
        "model_calls": model.asked, "most_calls_at_once": model.most, "events": sum(row["events"] for row in each),
        "memory_mb": {"idle": idle, "most": max(samples, default=idle), "peak": peak},
        "seconds": {"median": median, "slowest": seconds[-1] if seconds else None, "fastest": seconds[0] if seconds else None},
        "met": {
            "all runs finished": all(row["state"] == "finished" for row in each),
            "no event lost": all(row["gapless"] and row["streams_whole"] for row in each),
            f"memory below {MEMORY_MB} MB": peak < MEMORY_MB,
            f"slowest at most {SLOWEST:g}x the median": bool(seconds) and len(seconds) == len(each) and seconds[-1] <= SLOWEST * median,
        },
        "each": each,
    }  # fmt: skip


def look(run_id: Any) -> dict[str, Any]:
    """Checks a run's trace: it must be complete and have the stated length."""
    from webapp.runs import artefacts
    from webapp.runs.forks import events_of
    from webapp.runs.models import Run

    run = Run.objects.get(pk=run_id)
    events = events_of(run)
    texts: dict[str, str] = {}
    whole = True
    for event in events:
        p = event.payload
        if event.kind == "message.delta":
            whole = whole and p["offset"] <= len(texts.get(p["message"], ""))
            texts[p["message"]] = texts.get(p["message"], "")[: p["offset"]] + p["text"]
        elif event.kind == "llm.completed":
            reply = json.loads(artefacts.get(run.team_id, p["reply"]["sha"]))
            whole = whole and reply["text"] == texts.get(p["key"])
    return {
        "state": run.state, "outcome": run.outcome, "events": len(events),
        "gapless": [event.seq for event in events] == list(range(1, run.last_seq + 1)),
        "streams_whole": whole,
        "calls": sum(event.kind == "llm.completed" for event in events),
        "seconds": round((run.finished_at - run.created_at).total_seconds(), 2) if run.finished_at else None,
    }  # fmt: skip


def orchestrator_of(supervisor: int) -> int:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == supervisor and "orchestrator" in (path / "cmdline").read_text().split("\0"):
                return int(path.name)
        except OSError:
            continue
    raise RuntimeError("the orchestrator is not there")


def memory_mb(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return round(int(found[1]) / 1000, 1)


def processor() -> str:
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
