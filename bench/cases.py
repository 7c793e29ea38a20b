"""Verifies a folder of programs with known verdicts: `python bench/cases.py FOLDER --device cuda:0 --out FILE.json`.

FOLDER contains `cheats/` and `honest/`, each with `tasks/` (and `tasks-gpu/`), and `cheats.md`, whose table names the task of each program. A
program's header states the expected verdict. The result is written after every program, so an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

_ROW = re.compile(r"^\| (\w+\.py) \| (\w+\.py) \|$", re.MULTILINE)
_SAID = re.compile(r"^# expected: (.+)$", re.MULTILINE)


def programs(folder: Path, device: str) -> list[tuple[Path, Path]]:
    """Returns the task and program of every case for this kind of device. The names begin with c or h on a CPU, and with g on a GPU."""
    found = []
    for name, task in _ROW.findall((folder / "cheats.md").read_text()):
        kind = "honest" if name.startswith("h") else "cheats"
        if name[0] in ("ch" if device == "cpu" else "g"):
            where = "tasks" if device == "cpu" or kind == "honest" else "tasks-gpu"
            found.append((folder / kind / where / task, folder / kind / name))
    return found


def row(task: Path, program: Path, device: str, precision: str) -> dict[str, Any]:
    from verifier import check

    begin = time.monotonic()
    report = check(task, program, device=device, precision=precision)  # type: ignore[arg-type]
    said = _SAID.search(program.read_text())
    return {
        "deserves": said[1] if said else "passed" if program.parent.name == "honest" else "",
        "status": report.status,
        "class": report.program_class,
        "message": report.message,
        "speedup": report.speedup.model_dump() if report.speedup else None,
        "charged_ms": report.timing.charged_ms if report.timing else None,
        "preempted": report.timing.preempted if report.timing else None,
        "own_share": report.own_share,
        "flags": report.flags,
        "findings": [f"{finding.severity} {finding.rule}: {finding.message}" for finding in report.findings],
        "stages": {stage.name: stage.seconds for stage in report.stages},
        "seconds": round(time.monotonic() - begin, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32-strict")
    parser.add_argument("--only", default="", help="a regular expression that the program's name matches")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: dict[str, Any] = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else {}
    for task, program in programs(arguments.folder, arguments.device):
        if program.stem in rows or not re.search(arguments.only, program.stem):
            continue
        if not task.exists():
            print(f"{program.stem:45} skipped: its task {task.name} is not in the folder", flush=True)
            continue
        rows[program.stem] = found = row(task, program, arguments.device, arguments.precision)
        speedup = found["speedup"]["ratio"] if found["speedup"] else 0.0
        print(
            f"{program.stem:45} {found['status']:13} {found['class'] or '':14} {speedup:6.2f} {found['seconds']:5.0f} s {found['message'][:150]}",
            flush=True,
        )
        name = arguments.device
        if name != "cpu":
            import torch

            name = torch.cuda.get_device_name()
        arguments.out.write_text(json.dumps({"device": name, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
