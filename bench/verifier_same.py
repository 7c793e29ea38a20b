"""Measures the task's own model as the candidate many times, to find out how often the interval contains 1.0, and how wide it is.

    python bench/verifier_same.py [--device cpu] [--repeats 3] [--tier quick] --out RESULT.json TASK.py [TASK.py ...]

An identical program must not be reported as faster; the fraction of intervals that miss 1.0 is the verifier's own error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from verifier.client import Verifier  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402


async def measure(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="same-") as data:
        verifier = Verifier(arguments.device, Path(data))
        try:
            for task in arguments.tasks:
                source = task.read_text()
                program = re.sub(r"\bclass Model\(", "class ModelNew(", source)
                program = re.sub(r"super\(Model, self\)", "super(ModelNew, self)", program)
                for repeat in range(arguments.repeats):
                    report = (await verifier.run(VerifyJob(task_source=source, program_source=program, tier=arguments.tier))).report
                    speedup = report.speedup if report else None
                    row = {
                        "task": task.stem,
                        "repeat": repeat,
                        "status": report.status if report else "infrastructure_error",
                        "message": report.message if report else "",
                        "speedup": speedup.model_dump() if speedup else None,
                        "holds_one": bool(speedup and speedup.low <= 1.0 <= speedup.high),
                        "width": (speedup.high - speedup.low) / speedup.ratio if speedup else None,
                        "seconds": sum(stage.seconds for stage in report.stages) if report else None,
                        "class": report.program_class if report else None,
                    }
                    rows.append(row)
                    shown = f"{speedup.ratio:.3f} [{speedup.low:.3f}, {speedup.high:.3f}]" if speedup else row["message"]
                    print(f"{task.stem:24} {row['status']:14} {shown}  {row['seconds'] or 0:.1f} s", flush=True)
        finally:
            await verifier.close()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tier", choices=["quick", "full"], default="quick")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    rows = asyncio.run(measure(arguments))
    widths = [row["width"] for row in rows if row["width"] is not None]
    summary = {
        "device": arguments.device,
        "cores": os.cpu_count(),
        "load_before": before,
        "intervals": len(widths),
        "hold_one": sum(row["holds_one"] for row in rows),
        "median_width": statistics.median(widths) if widths else None,
        "rows": rows,
    }
    arguments.out.write_text(json.dumps(summary, indent=1) + "\n")
    print({name: value for name, value in summary.items() if name != "rows"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
