"""Compares the verifier's clock with plain loops, for pairs of a task and a program.

    python bench/clock_beside_loops.py FOLDER --devices cuda:0,cuda:1 --out RESULT.json
    python bench/clock_beside_loops.py --kernelbench CHECKOUT --devices cuda:0,cuda:1 --out RESULT.json [--limit-seconds 540] [--resume]

FOLDER contains pairs of files, NAME.task.py and NAME.program.py. With `--kernelbench`, the pairs are stored programs of KernelBench's levels 1 to 3
that passed: the ten with the shortest calls, and twenty drawn with a seed. Each pair is timed by plain loops in fresh processes (synchronised after
each call; the same, but with the L2 flushed before each call; back to back) and then verified once in the quick tier, on the same device, with no
other work there. Times are in microseconds; `off` is the verifier's time divided by the cold loop's, minus one. It should be within 10 %, or
within 30 % for calls below 30 us.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LOOPS, PROCESSES, FLUSH_BYTES = 60, 3, 256 << 20
FEWEST, LOOP_SECONDS = 12, 1.5  # a loop of long calls has fewer calls, so that it takes about that long
BAR, SHORT_BAR, SHORT_US = 0.1, 0.3, 30.0  # how far the clock may be off, and the time of a call below which the second bar holds
BUILD_SECONDS = 120.0


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

    def calls(call: Callable[[], Any]) -> int:
        call()
        sync()
        begin = time.perf_counter()
        call()
        sync()
        return max(FEWEST, min(LOOPS, int(LOOP_SECONDS / (time.perf_counter() - begin))))

    def middle(call: Callable[[], Any], cold: bool) -> float:
        found = []
        for _ in range(calls(call)):
            if cold:
                scratch.zero_()
            sync()
            begin = time.perf_counter_ns()
            call()
            sync()
            found.append(time.perf_counter_ns() - begin)
        return statistics.median(found[len(found) // 6 :]) / 1000

    def steady(call: Callable[[], Any]) -> float:
        count = 3 * calls(call)
        begin = time.perf_counter_ns()
        for _ in range(count):
            call()
        sync()
        return (time.perf_counter_ns() - begin) / 1000 / count

    with torch.no_grad():
        return {
            name: {"loop": middle(call, False), "cold": middle(call, True), "back to back": steady(call)}
            for name, call in (("program", lambda: new(*inputs)), ("eager", lambda: model(*inputs)))
        }


def verified(task: Path, program: Path, device: str, data_dir: Path) -> dict[str, Any]:
    from bench.beside import verdict

    result, environment = asyncio.run(verdict(device, data_dir, task_source=task.read_text(), program_source=program.read_text(), tier="quick"))
    report = result.report
    if report is None:
        return {"status": "infrastructure_error", "message": result.error, "environment": environment}
    timing = report.timing
    if timing is None:
        return {"status": report.status, "message": report.message, "environment": environment}
    against = timing.comparisons[0]
    return {
        "status": report.status,
        "message": report.message,
        "class": report.program_class,
        "program": timing.program_ms * 1000,
        "eager": against.baseline_ms * 1000,
        "speedup": against.speedup.model_dump(),
        "charged": timing.charged_ms * 1000,
        "charged_for": timing.charged_for,
        "empty": timing.round_trip_ms * 1000,
        "clock": timing.clock,
        "series": [timing.lead_in, timing.counted],
        "stages": {stage.name: stage.seconds for stage in report.stages},
        "findings": [finding.message for finding in report.findings if finding.source == "runtime"],
        "environment": environment,
    }


def row(task: Path, program: Path, device: str, processes: int, data_dir: Path) -> dict[str, Any]:
    """Measures one pair, first by plain loops and then by the verifier."""
    command = [sys.executable, __file__, "--loops", str(task), str(program), "--device", "cpu" if device == "cpu" else "cuda:0"]
    alone = {**os.environ, **only(device)}  # programs launch on the current device
    plain = []
    for _ in range(processes):
        done = subprocess.run(command, env=alone, capture_output=True, text=True)
        if done.returncode:
            return {"status": "failed", "message": f"the plain loop failed: {' / '.join(done.stderr.strip().splitlines()[-1:])[:400]}"}
        plain.append(json.loads(done.stdout.splitlines()[-1]))
    found = verified(task, program, device, data_dir)
    cold = {name: statistics.median(one[name]["cold"] for one in plain) for name in ("program", "eager")}
    off = {name: found[name] / cold[name] - 1 for name in cold if name in found}
    return {"status": found["status"], "message": found.get("message", ""), "plain": plain, "cold": cold, "verifier": found, "off": off}


def only(device: str) -> dict[str, str]:
    """Returns the environment in which `device` is the only GPU."""
    if not device.startswith("cuda"):
        return {}
    number = int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[number] if visible else str(number)}


def bar(microseconds: float) -> float:
    return SHORT_BAR if microseconds < SHORT_US else BAR


def summary(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Returns, for the programs and for eager, the number of times within the bar, and the pairs outside it."""
    found: dict[str, Any] = {"pairs": len(rows), "measured": sum(bool(one.get("off")) for one in rows.values())}
    for side in ("program", "eager"):
        off = {name: (one["off"][side], bar(one["cold"][side])) for name, one in rows.items() if side in one.get("off", {})}
        found[side] = {
            "within": sum(abs(value) <= most for value, most in off.values()),
            "of": len(off),
            "below_30_us": sum(most == SHORT_BAR for _, most in off.values()),
            "median_off": round(statistics.median(value for value, _ in off.values()), 4) if off else None,
            "outside": {name: round(value, 3) for name, (value, most) in off.items() if abs(value) > most},
        }
    found["not_measured"] = {name: f"{one['status']}: {one.get('message', '')}"[:200] for name, one in rows.items() if not one.get("off")}
    return found


def line(name: str, one: Mapping[str, Any]) -> str:
    if not one.get("off"):
        return f"{name}: {one['status']}: {one.get('message', '')[:200]}"
    program, cold = one["verifier"]["program"], one["cold"]["program"]
    return f"{name}: {program:.1f} us, cold loop {cold:.1f} us, off {one['off']['program']:+.1%}; eager off {one['off']['eager']:+.1%}"


def chosen(rows: Mapping[str, Any], stored: Collection[str], shortest: int, drawn: int, seed: int) -> list[str]:
    """Returns the keys of the fp32 rows with the shortest calls, then others ordered by digest. Flagged rows are left out."""
    from bench.beside import shuffled

    kept = [key for key, one in rows.items() if key in stored and one["status"] == "passed" and key.endswith(" fp32-strict") and not one["flags"]]
    first = sorted(kept, key=lambda key: rows[key]["program_ms"])[:shortest]
    return first + shuffled(set(kept) - set(first), seed)[:drawn]


def pairs_of(arguments: argparse.Namespace, made: Path) -> dict[str, tuple[Path, Path]]:
    """Returns the files of each pair; those of stored programs are written to `made`."""
    if arguments.kernelbench is None:
        if not arguments.folder:
            raise ValueError("name a FOLDER of pairs, or --kernelbench CHECKOUT")
        tasks = {task.name.removesuffix(".task.py"): task for task in sorted(arguments.folder[0].glob("*.task.py"))}
        return {name: (task, task.with_name(f"{name}.program.py")) for name, task in tasks.items()}
    from bench.beside import stored_programs
    from bench.sweep.store import slug
    from bench.sweep.tasks import items

    rows = json.loads(arguments.rows.read_text())["rows"]
    stored = stored_programs(rows, arguments.programs)
    paths = {item.key: item.path for item in items(["level1", "level2", "level3"], arguments.kernelbench)}
    found = {}
    for key in chosen(rows, stored, arguments.shortest, arguments.drawn, arguments.seed):
        program = made / f"{slug(key)}.py"
        program.write_text(stored[key])
        found[key] = (paths[key].resolve(), program)
    return found


def built(pairs: Mapping[str, tuple[Path, Path]], device: str, end: float) -> None:
    """Builds the plain loops' libraries beforehand, as many at a time as the host has processors for, while nothing is being timed."""

    def build(program: Path) -> None:
        command = [sys.executable, "-c", "import runpy, sys; runpy.run_path(sys.argv[1], run_name='program')", str(program)]
        seconds = max(1.0, min(BUILD_SECONDS, end - time.monotonic()))
        with contextlib.suppress(subprocess.TimeoutExpired):  # what fails here fails again in the loop, which says why
            subprocess.run(command, env={**os.environ, **only(device)}, capture_output=True, timeout=seconds)

    with ThreadPoolExecutor(max(1, min(16, (os.cpu_count() or 1) // 2))) as threads:
        list(threads.map(build, [program for _, program in pairs.values()]))


def measure(arguments: argparse.Namespace, begun: float) -> int:
    from bench.beside import Beside, Result

    fixed = {"seed": arguments.seed, "pairs": f"{arguments.shortest} shortest, {arguments.drawn} drawn"} if arguments.kernelbench else {}
    result = Result(arguments.out, {"unit": "us", **fixed}, summary)
    if arguments.resume:
        result.resume()
    result.notes.setdefault("device", name_of(arguments.devices))
    with tempfile.TemporaryDirectory(prefix="clock-") as made:
        pairs = pairs_of(arguments, Path(made))
        waiting = {name: pair for name, pair in pairs.items() if not result.rows.get(name, {}).get("off")}
        devices = arguments.devices.split(",")
        os.environ["STITCH_BUILD_DIR"] = str((arguments.data_dir / "loops").resolve())
        built(waiting, devices[0], begun + arguments.limit_seconds)

        def command(name: str, device: str, out: Path) -> list[str]:
            told = ["--device", device, "--processes", str(arguments.processes), "--data-dir", str(arguments.data_dir / device.replace(":", "-"))]
            return [sys.executable, __file__, "--pair", *map(str, pairs[name]), *told, "--out", str(out)]

        left = Beside(result, devices, command, begun + arguments.limit_seconds, arguments.task_seconds, begin_seconds=45.0, said=line).run(waiting)
    result.save()
    print(json.dumps(summary(result.rows), indent=1))
    print(f"{len(left)} left: {', '.join(left[:5])}" if left else "nothing is left")
    return 3 if left else 0


def name_of(devices: str) -> str:
    import torch

    return torch.cuda.get_device_name() if devices.startswith("cuda") else "cpu"


def parser() -> argparse.ArgumentParser:
    results = Path(__file__).resolve().parent / "results"
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("folder", type=Path, nargs="*", metavar="FOLDER", help="of pairs")
    top.add_argument("--kernelbench", type=Path, metavar="CHECKOUT", help="stored programs of KernelBench instead")
    top.add_argument("--devices", help="comma-separated; one pair at a time on each (default: --device)")
    top.add_argument("--out", type=Path, required=True, metavar="RESULT")
    top.add_argument("--rows", type=Path, default=results / "kernelbench-h200.json", help="the stored rows")
    top.add_argument("--programs", type=Path, default=results / "kernelbench-h200-programs.tar.gz", help="the stored programs")
    top.add_argument("--shortest", type=int, default=10, help="pairs with the shortest calls (default: 10)")
    top.add_argument("--drawn", type=int, default=20, help="pairs drawn from the others (default: 20)")
    top.add_argument("--seed", type=int, default=0)
    top.add_argument("--processes", type=int, default=PROCESSES, help=f"of plain loops for each pair (default: {PROCESSES})")
    top.add_argument("--limit-seconds", type=float, default=3600.0, help="of this session")
    top.add_argument("--task-seconds", type=float, default=300.0, help="of one pair")
    top.add_argument("--resume", action="store_true", help="go on with the rows that RESULT has")
    top.add_argument("--data-dir", type=Path, default=ROOT / ".data" / "clock", help="build caches, a folder a device")
    top.add_argument("--loops", action="store_true", help="plain loops alone, of TASK and PROGRAM, in this process")
    top.add_argument("--pair", action="store_true", help="one row, of TASK and PROGRAM")
    top.add_argument("--device", default="cuda:0")
    return top


def main() -> int:
    begun = time.monotonic()
    if "--loops" in sys.argv:
        sys.argv += ["--out", os.devnull]
    arguments = parser().parse_args()
    arguments.devices = arguments.devices or arguments.device
    if arguments.loops:
        print(json.dumps(loops(*arguments.folder, arguments.device)))
        return 0
    if arguments.pair:
        arguments.out.write_text(json.dumps(row(*arguments.folder, arguments.device, arguments.processes, arguments.data_dir)))
        return 0
    try:
        return measure(arguments, begun)
    except (ValueError, OSError) as error:
        parser().error(str(error))


if __name__ == "__main__":
    sys.exit(main())
