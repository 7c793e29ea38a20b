"""Solve tasks on several GPUs at once, one run a GPU, and write the table of `solve_all.py`.

    python bench/solve_gpus.py --devices cuda:0,cuda:1 --keep RUNS [--kernelbench CHECKOUT] [TASK ...]

RUNS keeps a folder a task (an interrupted series continues). With a KernelBench checkout, every finished program also goes through
KernelBench's own evaluation, one at a time after the runs, into `kernelbench-eval.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from solve_all import machine_facts, result, run_folders, table  # noqa: E402


def work(device: str, tasks: Queue[Path], arguments: argparse.Namespace) -> None:
    data = arguments.keep / ".data" / device.replace(":", "-")
    while True:
        try:
            task = tasks.get_nowait()
        except Empty:
            return
        command = [sys.executable, "-m", "agents", "solve", str(task), "--device", device, "--out", str(arguments.keep / task.stem), "--resume"]
        command += ["--data-dir", str(data), "--budget-candidates", arguments.budget_candidates, "--precision", arguments.precision]
        log = arguments.keep / f"{task.stem}.log"
        with log.open("w") as out:
            code = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode
        print(f"{task.stem} on {device}: exit {code}; {log.read_text().strip().splitlines()[-1:]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", type=Path, default=sorted((ROOT / "examples").glob("*.py")))
    parser.add_argument("--devices", default="cuda:0", help="comma-separated")
    parser.add_argument("--keep", type=Path, required=True, metavar="RUNS")
    parser.add_argument("--kernelbench", type=Path, metavar="CHECKOUT")
    parser.add_argument("--budget-candidates", default="5")
    parser.add_argument("--precision", default="fp32-strict")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    arguments = parser.parse_args()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    load = round(os.getloadavg()[0], 2)
    tasks: Queue[Path] = Queue()
    for task in arguments.tasks:
        tasks.put(task)
    workers = [threading.Thread(target=work, args=(device, tasks, arguments)) for device in arguments.devices.split(",")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    results = [result(folder) for folder in run_folders(arguments.keep)]
    content = {
        "command": f"python bench/solve_gpus.py --devices {arguments.devices}",
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {**machine_facts(), "load_before": load, "load_after": round(os.getloadavg()[0], 2)},
        "passed": sum(r["status"] == "passed" for r in results),
        "faster_custom_or_mixed": sum(bool(r["faster"]) and r["class"] in ("custom", "mixed") for r in results),
        "results": results,
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "solve-cuda.json").write_text(json.dumps(content, indent=1) + "\n")
    (arguments.results / "solve-cuda.md").write_text(table(content))
    print(table(content))
    if arguments.kernelbench:
        pairs = [f"{task}={arguments.keep / task.stem / 'best.py'}" for task in arguments.tasks if (arguments.keep / task.stem / "best.py").exists()]
        command = [sys.executable, str(ROOT / "bench/kernelbench_eval.py"), "--kernelbench", str(arguments.kernelbench)]
        subprocess.run([*command, "--out", str(arguments.results / "kernelbench-eval.json"), *pairs], cwd=ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
