"""Runs the everyday suite with the built-in compiler.

On GPUs, the tasks are solved in the full tier; on a CPU, their programs are only generated, or emulated at small sizes.

    python -m bench.everyday run --devices cuda:0,cuda:1 [--keep KEPT] [--only PART] [--limit-seconds 1500] [options of bench.sweep run]
    python -m bench.everyday run --capture-only [--only PART] [--seconds 240] [--out FILE] [--resume]
    python -m bench.everyday run --emulated [--precision bf16] [--only PART] [--seconds 240] [--out FILE] [--resume]
    python -m bench.everyday accept CHECKOUT --devices cuda:0,cuda:1 --out RESULT.json [--only PART] [--limit-seconds 540] [--resume]
    python -m bench.everyday tables [KEPT]               (writes bench/results/everyday-<device>.json, everyday.md)

`run` resumes where it stopped: it is a sweep over the sets everyday (48 tasks, fp32-strict) and everyday-bf16 (the 16 serving tasks).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.everyday import accepting, capturing, emulating, tables
from bench.sweep.__main__ import main as sweep
from bench.sweep.store import ROWS
from bench.sweep.tasks import KINDS, ROOT

KEPT = ROOT / ".data" / "everyday"


def main() -> int:
    arguments, rest = parser().parse_known_args()
    if arguments.act == "tables":
        return published(arguments.kept, arguments.results)
    if arguments.act == "accept":
        return accepting.run(arguments)
    if arguments.capture_only:
        return capturing.run(arguments.only, arguments.seconds, arguments.out or capturing.RESULTS, arguments.resume)
    if arguments.emulated:
        return emulating.run(arguments.only, arguments.precision, arguments.seconds, arguments.out or emulating.RESULTS, arguments.resume)
    only = [word for part in arguments.only for word in ("--only", part)]
    where = ["--devices", arguments.devices, "--keep", str(arguments.keep), "--data-dir", str(arguments.keep / "data")]
    return sweep(["run", "--sets", ",".join(KINDS), *where, *only, "--winner", "fastest", *rest])


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m bench.everyday", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="act", required=True)
    run = commands.add_parser("run", help="a sitting; the same command again continues", epilog="Further options go to `python -m bench.sweep run`.")
    run.add_argument("--devices", default="cuda:0", help="comma-separated")
    run.add_argument("--keep", type=Path, default=KEPT, metavar="KEPT", help="what is written: rows, programs, unfinished runs")
    run.add_argument("--only", action="append", default=[], metavar="PART", help="only tasks with this in their name")
    run.add_argument("--capture-only", action="store_true", help="no GPU: capture, plan and print for CUDA, one task after the other")
    run.add_argument("--emulated", action="store_true", help="no GPU: are the programs right, at small sizes, in the tests' emulator of CUDA")
    run.add_argument("--precision", choices=["fp32-strict", "bf16"], default="fp32-strict", help="with --emulated")
    run.add_argument("--seconds", type=float, default=240, help="of a task with --capture-only or --emulated")
    run.add_argument("--out", type=Path, help="of --capture-only or --emulated (default: a file of bench/results)")
    run.add_argument("--resume", action="store_true", help="with --capture-only or --emulated: leave out what the results hold already")
    accepting.parser(commands)
    shown = commands.add_parser("tables", help="the results' file and page")
    shown.add_argument("kept", type=Path, nargs="?", default=KEPT, metavar="KEPT")
    shown.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    return top


def published(kept: Path, results: Path) -> int:
    path = kept / ROWS if kept.is_dir() else kept
    if not path.exists():
        print(f"bench.everyday: {path} is not there", file=sys.stderr)
        return 2
    content = json.loads(path.read_text())
    device = (content.get("device") or {}).get("device_model") or "unknown"
    results.mkdir(parents=True, exist_ok=True)
    (results / f"everyday-{device}.json").write_text(path.read_text())
    text = tables.page(content)
    (results / "everyday.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
