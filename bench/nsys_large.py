"""Makes a large Nsight Systems recording on a GPU and reads it in the same way as a user's recording; `bench.pages` draws it.

    python bench/nsys_large.py record --keep DIR [--steps 400] [--out bench/results/nsys-large.json]   on a GPU; leaves DIR/timeline.stwtl.gz
    STITCHWORK_TIMELINE=DIR/timeline.stwtl.gz python -m bench.pages.run timeline --runs 10 --events 1000 --out FILE      draws it in Chromium

The workload trains a small transformer: thousands of short kernels on the main stream, copies from pinned memory on a second one, a graph replayed on
a third, NVTX ranges nested three deep, and a second thread that launches kernels. The result records how long recording, export and reading took, how
large each file is, and what the export contains compared with the timeline, kind by kind.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

LAYERS, WIDTH, BATCH, LENGTH = 8, 256, 8, 64  # short kernels, because the number of launches is what matters
TABLES = {  # tables of the export, with the kind of their rows in a timeline
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "sync",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "api",
    "NVTX_EVENTS": "nvtx",
}


def work(steps: int) -> None:
    """Runs the workload to be recorded."""
    import torch

    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True), LAYERS).cuda()
    optimiser = torch.optim.SGD(model.parameters(), 1e-3, foreach=False)
    beside, copies = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")
    y = torch.zeros(256, 256, device="cuda")
    for _ in range(3):
        model(x).sum().backward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            y.copy_(torch.tanh(y @ y + 1))
    host = torch.randn(BATCH, LENGTH, WIDTH).pin_memory()
    torch.cuda.synchronize()
    ended = threading.Event()

    def second() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            own = torch.ones(1 << 16, device="cuda")
            while not ended.is_set():
                own.mul_(0.5).add_(1)
                time.sleep(0.0005)

    thread = threading.Thread(target=second, daemon=True)  # a daemon, because nsys waits for the process to end
    thread.start()
    for step in range(steps):
        with torch.cuda.nvtx.range(f"step {step}"):
            with torch.cuda.stream(copies), torch.cuda.nvtx.range("copy"):
                batch = host.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(copies)
            with torch.cuda.nvtx.range("forward"):
                loss = model(batch).square().mean()
            with torch.cuda.nvtx.range("backward"):
                loss.backward()
            with torch.cuda.nvtx.range("optimiser"):
                optimiser.step()
                optimiser.zero_grad()
            with torch.cuda.stream(beside):
                graph.replay()
    torch.cuda.synchronize()
    ended.set()
    thread.join()


def record(arguments: argparse.Namespace) -> int:
    from solve_all import machine_facts

    from verifier.profiling.nsight.nsys import find_nsys
    from verifier.profiling.nsight.nsys_import import import_nsys
    from verifier.profiling.timeline import KINDS

    nsys, problem = find_nsys()
    if nsys is None or problem:
        print(problem, file=sys.stderr)
        return 2
    environment = os.environ | ({"LD_LIBRARY_PATH": nsys.libraries} if nsys.libraries else {})
    result: dict[str, Any] = {"what": __doc__.splitlines()[0], "machine": machine_facts(), "nsys": nsys.version, "steps": arguments.steps}
    arguments.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        raw, export = Path(folder, "raw.nsys-rep"), Path(folder, "export.sqlite")
        profile = [nsys.command, "profile", "-t", "cuda,nvtx", "--sample=none", "--cpuctxsw=none", "-o", str(raw.with_suffix(""))]
        seconds = {}
        for name, command in (
            ("record", [*profile, sys.executable, __file__, "work", "--steps", str(arguments.steps)]),
            ("export", [nsys.command, "export", "--type", "sqlite", "-o", str(export), str(raw)]),
        ):
            began = time.monotonic()
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            seconds[name] = round(time.monotonic() - began, 2)
            if done.returncode:
                print(f"{name} ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-2000:]}", file=sys.stderr)
                return 1
        began = time.monotonic()
        timeline, version = import_nsys(export)
        seconds["read"] = round(time.monotonic() - began, 2)
        data = timeline.to_bytes()
        (arguments.keep / "timeline.stwtl.gz").write_bytes(gzip.compress(data, 6))
        kinds = Counter(timeline.columns["kind"].tolist())
        result |= {
            "seconds": seconds,
            "bytes": {"report": raw.stat().st_size, "export": export.stat().st_size, "timeline": len(data)},
            "memory_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "version": version,
            "export": rows_of(export),
            "timeline": {"events": timeline.events, "by_kind": {KINDS[kind]: count for kind, count in sorted(kinds.items())}},
            "device": timeline.device,
            "rows": [f"{row.group}: {row.name}" if row.group else row.name for row in timeline.rows],
            "warnings": timeline.warnings,
        }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["timeline"]), json.dumps(result["export"]), json.dumps(result["seconds"]), json.dumps(result["bytes"]))
    return 0


def rows_of(export: Path) -> dict[str, int]:
    """Returns how many rows of the export's tables a timeline shows."""
    with sqlite3.connect(export) as database:
        there = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {kind: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table, kind in TABLES.items() if table in there}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, act in (("record", record), ("work", lambda arguments: work(arguments.steps))):
        command = commands.add_parser(name)
        command.add_argument("--steps", type=int, default=400)
        command.set_defaults(act=act)
        if name == "record":
            command.add_argument("--keep", type=Path, required=True, metavar="DIR")
            command.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "nsys-large.json")
    arguments = parser.parse_args()
    if arguments.act is record and not shutil.which("nvidia-smi"):
        print("a recording needs a GPU, and there is none here", file=sys.stderr)
        return 2
    return arguments.act(arguments) or 0


if __name__ == "__main__":
    sys.exit(main())
