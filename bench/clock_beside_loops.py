"""Compares the verifier's clock with plain loops: `python bench/clock_beside_loops.py FOLDER --device cuda:0 --out FILE.json`.

FOLDER contains pairs of files, NAME.task.py and NAME.program.py. In one run on one device, each pair is timed by plain loops in fresh processes
(synchronised after each call; the same, but with the L2 flushed before each call; back to back) and verified once in the quick tier. Times are in
microseconds; `off` is the verifier's time divided by the cold loop's, minus one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOPS, PROCESSES, FLUSH_BYTES = 60, 3, 256 << 20


def loaded(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def loops(task: Path, program: Path, device: str) -> dict[str, dict[str, float]]:
    """Times the program and eager in this process with simple loops, as a user would write them."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module, other = loaded(task, "task"), loaded(program, "program")
    torch.manual_seed(7)
    model = module.Model(*module.get_init_inputs()).to(device)
    torch.manual_seed(7)
    new = other.ModelNew(*module.get_init_inputs()).to(device)
    new.load_state_dict(model.state_dict())
    inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in module.get_inputs()]
    scratch = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)

    def sync() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    def middle(call: Callable[[], Any], cold: bool) -> float:
        found = []
        for _ in range(LOOPS):
            if cold:
                scratch.zero_()
            sync()
            begin = time.perf_counter_ns()
            call()
            sync()
            found.append(time.perf_counter_ns() - begin)
        return statistics.median(found[LOOPS // 6 :]) / 1000

    def steady(call: Callable[[], Any]) -> float:
        sync()
        begin = time.perf_counter_ns()
        for _ in range(3 * LOOPS):
            call()
        sync()
        return (time.perf_counter_ns() - begin) / 1000 / (3 * LOOPS)

    with torch.no_grad():
        return {
            name: {"loop": middle(call, False), "cold": middle(call, True), "back to back": steady(call)}
            for name, call in (("program", lambda: new(*inputs)), ("eager", lambda: model(*inputs)))
        }


def verified(task: Path, program: Path, device: str) -> dict[str, Any]:
    from verifier import check

    report = check(task, program, device=device, tier="quick")
    timing = report.timing
    if timing is None:
        return {"status": report.status, "message": report.message}
    against = timing.comparisons[0]
    return {
        "status": report.status,
        "class": report.program_class,
        "program": timing.program_ms * 1000,
        "eager": against.baseline_ms * 1000,
        "speedup": against.speedup.model_dump(),
        "charged": timing.charged_ms * 1000,
        "charged_for": timing.charged_for,
        "empty": timing.round_trip_ms * 1000,
        "series": [timing.lead_in, timing.counted],
        "stages": {stage.name: stage.seconds for stage in report.stages},
        "findings": [finding.message for finding in report.findings if finding.source == "runtime"],
    }


def row(task: Path, program: Path, device: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--loops", str(task), str(program), "--device", device]
    plain = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]) for _ in range(PROCESSES)]
    found = verified(task, program, device)
    cold = {name: statistics.median(one[name]["cold"] for one in plain) for name in ("program", "eager")}
    off = {name: found[name] / cold[name] - 1 for name in cold if name in found}
    return {"plain": plain, "verifier": found, "off": off}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="*")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--loops", action="store_true", help="plain loops alone, of TASK and PROGRAM, in this process")
    arguments = parser.parse_args()
    if arguments.loops:
        print(json.dumps(loops(*arguments.folder, arguments.device)))
        return
    rows: dict[str, Any] = {}
    for task in sorted(arguments.folder[0].glob("*.task.py")):
        name = task.name.removesuffix(".task.py")
        try:
            rows[name] = row(task, task.with_name(f"{name}.program.py"), arguments.device)
        except subprocess.CalledProcessError as error:
            rows[name] = {"failed": error.stderr.strip().splitlines()[-1:]}
        found = rows[name].get("verifier", {})
        print(
            name,
            {key: round(value, 3) for key, value in rows[name].get("off", {}).items()},
            found.get("program"),
            found.get("message", ""),
            flush=True,
        )
        if arguments.out is not None:
            import torch

            card = torch.cuda.get_device_name() if arguments.device != "cpu" else "cpu"
            arguments.out.write_text(json.dumps({"device": card, "unit": "us", "rows": rows}, indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
