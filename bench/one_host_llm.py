"""Tests `stitch` with a model, from the submission page to confirmed results. The whole installation runs on one host, with the stand-in as its
model.

    python bench/one_host_llm.py [--device cuda:0] [--tasks softmax ...] [--at-once 3] [--candidates 2] [--faults 0] [--seed 1]
                                 [--limit-seconds 540] --out RESULT.json

Starts the stand-in and the processes of `make run`, with a profiles file that names the stand-in. It then signs in with the one-time link, submits
the tasks through the page's form with that model in all three roles, and follows their events. A task is done if its run was confirmed in the full
tier with a program from the model, and, on a GPU, if its diagnoses are based on Nsight Compute's counters and its profiles come from Nsight Systems.
The result is written after each task; an interrupted series continues with the missing tasks. No further task is submitted when too little time is
left.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from host_processes import Host  # noqa: E402
from one_host import ONLINE_SECONDS, Pass, stopped_by, verdict  # noqa: E402
from web_client import Client, Unexpected  # noqa: E402

TASKS = ("softmax", "rms_norm", "layer_norm_gelu", "cross_entropy", "embedding_gate", "group_norm_silu", "residual_mlp", "attention")
PROFILE = '[profiles.stand-in]\nkind = "openai"\nbase_url = "{url}"\nmodel = "stand-in"\nlimits = {{ read_seconds = 30 }}\n'
TASK_SECONDS = 100.0  # minimum time for a task; if less is left, none is started
POLL_SECONDS = 0.5
START_SECONDS = 120.0  # seconds allowed for the stand-in


class StandInProcess:
    """`python -m tests.standin` on a free port of this host."""

    def __init__(self, faults: float, seed: int, log: Path):
        command = [sys.executable, "-m", "tests.standin", "--port", "0", "--faults", str(faults), "--seed", str(seed)]
        self._log = log.open("wb")
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log)
        line = self._first_line()
        if not line.startswith("ready: "):
            self.stop()
            raise Unexpected(f"the stand-in did not start; it said: {line or log.read_text()[-1000:]}")
        self.url = line.removeprefix("ready: ").strip()

    def _first_line(self) -> str:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(START_SECONDS):
                return ""
        return self.process.stdout.readline().decode(errors="replace")

    def summary(self) -> dict[str, Any]:
        """Stops the process. Returns the requests that the stand-in received, and how it answered them."""
        requests = [json.loads(line) for line in self.stop().splitlines() if line.startswith("{")]
        return {"requests": len(requests), "faults": dict(Counter(entry["fault"].partition(":")[0] or "none" for entry in requests))}

    def stop(self) -> str:
        self.process.terminate()
        said = self.process.communicate(timeout=30)[0].decode(errors="replace")
        self._log.close()
        return said


class Suite(Pass):
    """Represents a single launch of the installation, with as many tasks as time allows."""

    def __init__(self, arguments: argparse.Namespace):
        arguments.example, arguments.keep = "", None
        super().__init__(arguments)
        del self.result["example"]
        self.result |= {
            "what": "one host: Postgres, web, orchestrator, verifier and a stand-in model; tasks submitted through the page",
            "faults": arguments.faults,
            "seed": arguments.seed,
            "tasks": {},
        }
        if arguments.out.exists():
            kept = json.loads(arguments.out.read_text())["tasks"]
            self.result["tasks"] = {name: row for name, row in kept.items() if row["ok"]}

    def run_all(self, folder: Path) -> None:
        """Runs everything that is missing from the result."""
        try:
            model = StandInProcess(self.arguments.faults, self.arguments.seed, folder / "stand-in.err")
            (folder / "llm.toml").write_text(PROFILE.format(url=model.url))
            os.environ["STITCHWORK_LLM_PROFILES"] = str(folder / "llm.toml")
            self.host = Host(folder / "data", self.arguments.device)
            try:
                self.start()
                self.solve()
            finally:
                self.result["model"] = model.summary()  # stopped first, because any process still running when the host stops counts as left behind
                left = self.host.stop()
            if left:
                raise Unexpected(f"{len(left)} processes were left behind: {', '.join(left)[:300]}")
        except (Unexpected, SystemExit, KeyboardInterrupt) as error:
            self.result["missing"] = str(error) or type(error).__name__
        except Exception as error:
            self.result["missing"] = f"{type(error).__name__}: {error}"[:1000]
        self.seconds["everything"] = self.since(self.began)
        rows = self.result["tasks"]
        self.result["ok"] = not self.result["missing"] and all(rows.get(name, {}).get("ok") for name in self.arguments.tasks)
        self.write()

    def start(self) -> None:
        self.at = "the stack was starting"
        link = self.host.start(min(ONLINE_SECONDS, self.left))
        self.seconds["start_to_ready"] = self.since(self.began)
        self.client = Client(link)
        self.at = "no verifier was online"
        self.await_device()
        self.at = "the model was not on offer"
        while '<option value="stand-in"' not in self.client.get("/submit/").text:
            self.go_on()
            time.sleep(POLL_SECONDS)
        self.write()

    def solve(self) -> None:
        """Runs several tasks concurrently, so that neither the device nor the model waits for the other."""
        waiting = [name for name in self.arguments.tasks if name not in self.result["tasks"]]
        going: dict[str, Following] = {}
        while waiting or going:
            while waiting and len(going) < self.arguments.at_once and self.left > TASK_SECONDS:
                name = waiting.pop(0)
                going[name] = Following(self.client, self.begin(name))
            if not going:
                return  # the remaining tasks are left for the next call
            self.result["unfinished"] = {name: following.at() for name, following in going.items()}
            self.at = f"not finished: {self.result['unfinished']}"
            self.go_on()
            for name, following in list(going.items()):
                if following.look():
                    del going[name]
                    self.result["tasks"][name] = self.row(following)
                    self.write()
                    print(f"{name}: {self.result['tasks'][name]['says']}", flush=True)
            time.sleep(POLL_SECONDS)

    def begin(self, name: str) -> str:
        minutes = f"{max(1.0, self.left / 60):.2f}"
        return self.client.submit(
            "/submit/",
            title=f"{name} with the stand-in",
            task=self.client.get(f"/examples/{name}.py").text,
            device=self.kind,
            precision="fp32-strict",
            mode="train",
            workflow="stitch",
            llm="stand-in",
            candidates=str(self.arguments.candidates),
            calls="12",
            minutes=minutes,
            verifier_minutes=minutes,
        )

    def row(self, following: Following) -> dict[str, Any]:
        """Returns the contents of a finished run, and what it lacks."""
        events = following.events
        finished = events[-1]["payload"]
        best = finished.get("best")
        full = [e["payload"] for e in events if verdict(e) == "passed" and e["payload"].get("tier") == "full" and e["payload"]["candidate"] == best]
        diagnoses = [e["payload"] for e in events if e["kind"] == "diagnosis.made"]
        profiles = Counter(e["payload"]["tool"] for e in events if e["kind"] == "profile.attached")
        asked = Counter(e["payload"].get("purpose", "") for e in events if e["kind"] == "llm.completed")
        missing = []
        if finished.get("outcome") not in ("improved", "matched") or not full:
            missing.append(f"not confirmed: {finished.get('outcome')}, {finished.get('reason')}")
        if not any(purpose.startswith("coder/") for purpose in asked):
            missing.append("no program of the model")
        measured = [d for d in diagnoses if d["bottleneck"] != "defect"]
        if self.kind == "cuda":
            if not profiles.get("nsys"):
                missing.append(f"no profile by Nsight Systems, only {dict(profiles)}")
            if not any(d["grade"] == "counters" and d["evidence"] for d in measured):
                missing.append("no diagnosis that rests on the counters of Nsight Compute")
        said = f"{finished.get('outcome')}, candidate {best}, {ratio(finished.get('speedup'))}"
        return {
            "ok": not missing,
            "missing": "; ".join(missing)[:1000],
            "says": f"{said}; {'; '.join(missing)[:300] or 'everything was there'}",
            "outcome": finished.get("outcome"),
            "reason": finished.get("reason"),
            "best": best,
            "speedup": finished.get("speedup"),
            "class": full[-1].get("program_class") if full else None,
            "seconds": self.since(following.began),
            "verdicts": [{n: e["payload"].get(n) for n in ("candidate", "tier", "status", "message", "seconds")} for e in events if verdict(e)],
            "diagnoses": [
                {n: d.get(n) for n in ("candidate", "bottleneck", "grade", "text", "method", "headroom")} | {"evidence": d["evidence"][:6]}
                for d in diagnoses
            ],
            "profiles": dict(profiles),
            "asked": dict(sorted(asked.items())),
            "events": len(events),
            "errors": [e["payload"]["message"][:300] for e in events if e["kind"] == "error"],
        }


class Following:
    """The events of one run, from the page's fallback without a websocket."""

    def __init__(self, client: Client, run: str):
        self.client, self.run = client, run
        self.began = time.monotonic()
        self.events: list[dict[str, Any]] = []

    def look(self) -> bool:
        """Reads new events. Returns whether the run has finished. A paused run would wait for a person, which is not possible here."""
        while True:
            since = str(self.events[-1]["seq"] if self.events else 0)
            try:
                answer = self.client.get(f"/runs/{self.run}/events", since=since, limit="500").json()
            except httpx.TransportError:  # a host that is too busy to serve a page may still be working on the run
                return False
            self.events += answer["events"]
            if not answer["events"] or answer["last"] >= answer["head"]:
                break
        if not self.events:
            return False
        last = self.events[-1]
        if last["kind"] == "run.paused":
            raise Unexpected(f"a run paused: {last['payload'].get('reason')}")
        return last["kind"] == "run.finished"

    def at(self) -> str:
        last = self.events[-1] if self.events else None
        return f"{len(self.events)} events, the last {last['kind']} in {last['span'] or 'the run'}" if last else "no event"


def ratio(speedup: dict[str, Any] | None) -> str:
    return f"{speedup['ratio']:.2f}x [{speedup['low']:.2f}, {speedup['high']:.2f}]" if speedup else "no speedup"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if shutil.which("nvidia-smi") else "cpu")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="examples, without .py")
    parser.add_argument("--at-once", type=int, default=3, help="runs")
    parser.add_argument("--candidates", type=int, default=2, help="of a run")
    parser.add_argument("--faults", type=float, default=0.0, help="share of faulty replies")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-seconds", type=float, default=540.0, help="for everything, the start and the end included")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, stopped_by)
    suite = Suite(arguments)
    with tempfile.TemporaryDirectory(prefix="one-host-llm-") as folder:
        suite.run_all(Path(folder))
        if suite.result["missing"]:
            print(suite.host.logs() if hasattr(suite, "host") else "", file=sys.stderr)
    done = suite.result["tasks"]
    left = [name for name in arguments.tasks if name not in done]
    print(f"{sum(row['ok'] for row in done.values())} of {len(arguments.tasks)} tasks were confirmed; not done: {', '.join(left) or 'none'}")
    if suite.result["missing"]:
        print(f"MISSING: {suite.result['missing']}")
    return 0 if suite.result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
