"""Verifies every cheat that the stand-in can apply to a task; none may pass.

    python bench/standin_cheats.py [--device cpu] [--tasks rms_norm ...] [--only REGEX] [--shard 0/1] [--limit-seconds S]
                                   [--out bench/results/standin-cheats-cpu.json]

The stand-in's cheats are those of the integrity corpus that must be refused, transferred to another task. The result is written after each cheat; an
interrupted series resumes where it stopped. The exit status is 1 if a cheat passed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from solve_all import machine_facts  # noqa: E402

from tests.standin.cheats import cheat, fitting  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402

ATTEMPTS = 3  # maximum number of repeats if the verdict only says that the machine was too busy
VERDICT_SECONDS = 300.0


async def verify_all(arguments: argparse.Namespace, rows: list[dict]) -> int:
    """Verifies all cheats. Returns how many were left over for lack of time."""
    from verifier.client import Verifier

    kind = arguments.device.partition(":")[0]
    shard, shards = (int(part) for part in arguments.shard.split("/"))
    known = {(row["task"], row["cheat"]) for row in rows}
    sources = {name: (ROOT / "examples" / f"{name}.py").read_text() for name in arguments.tasks}
    wanted = [(task, name) for task in arguments.tasks for name in fitting(sources[task], kind) if re.search(arguments.only, name)]
    wanted = [pair for at, pair in enumerate(wanted) if at % shards == shard and pair not in known]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="standin-cheats-") as folder:
        client = Verifier(arguments.device, Path(folder))
        try:
            for at, (task, name) in enumerate(wanted):
                if time.monotonic() - began > arguments.limit_seconds:
                    return len(wanted) - at
                job = VerifyJob(task_source=sources[task], program_source=cheat(name, sources[task], kind), tier="quick")
                status, message, begin = "", "", time.monotonic()
                for _ in range(ATTEMPTS):
                    result = await asyncio.wait_for(client.run(job), VERDICT_SECONDS)
                    status, message = (result.report.status, result.report.message) if result.report else ("error", result.error)
                    if status not in ("inconclusive", "infrastructure_error", "error"):
                        break
                row = {"task": task, "cheat": name, "status": status, "message": message[:300], "class": None}
                if result.report is not None:
                    row["class"] = result.report.program_class
                rows.append(row | {"seconds": round(time.monotonic() - begin, 1)})
                save(arguments, rows)
                print(f"{'PASSED' if status == 'passed' else 'ok    '} {task}/{name}: {status} {message[:100]}", flush=True)
        finally:
            await client.close()
    return 0


def save(arguments: argparse.Namespace, rows: list[dict]) -> None:
    content = {
        "what": "cheats of the integrity corpus, applied to other tasks by the stand-in",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": arguments.device,
        "machine": machine_facts(),
        "verdicts": dict(Counter(row["status"] for row in rows)),
        "passed": [f"{row['task']}/{row['cheat']}" for row in rows if row["status"] == "passed"],
        "rows": rows,
    }
    draft = arguments.out.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(arguments.out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", nargs="+", default=["rms_norm"], help="examples, without .py")
    parser.add_argument("--only", default="", help="a regular expression for names of cheats")
    parser.add_argument("--shard", default="0/1", help="i/n: the ith of n parts, counted from 0")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="no further cheat is begun after this")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "standin-cheats-cpu.json")
    arguments = parser.parse_args()
    rows = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
    left = asyncio.run(verify_all(arguments, rows))
    passed = [row for row in rows if row["status"] == "passed"]
    print(f"{len(rows) - len(passed)} of {len(rows)} refused, {left} not begun")
    return 1 if passed or left else 0


if __name__ == "__main__":
    sys.exit(main())
