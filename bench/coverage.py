"""Surveys how much of KernelBench the built-in compiler captures, plans, turns into CUDA and compiles, and what it leaves to PyTorch and why.

python bench/coverage.py CHECKOUT [--level 1] [--only NAME] [--precision bf16] [--jobs 2] [--compile] [--resume]

Needs no GPU and no memory for the tasks' tensors: models are constructed and exported as fake tensors. Writes bench/results/compiler-coverage.json
and a table next to it (.md). Every task runs in a separate process with a time limit.
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from compiler import DeviceFigures, Options, make_plan, print_program  # noqa: E402
from verifier.graph import Capture  # noqa: E402
from verifier.parties.capturing.capture import capture  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "compiler-coverage.json"
LIMIT = 300  # time limit per task in seconds
REAL = 3 << 30  # size in bytes up to which a task that needs values gets real tensors


def known_bytes(path: Path) -> int:
    """Returns the size of the task's tensors in bytes, from bench/kernelbench-sizes.json."""
    sizes = json.loads((Path(__file__).parent / "kernelbench-sizes.json").read_text())
    return sum(sizes.get(f"{path.parent.name}/{path.name}", {"state": 0}).values())


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Casts a value as the verifier casts a task's model and inputs."""
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def narrow(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Replaces `model.to(dtype)`, which fails on fake tensors."""
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None:
                setattr(module, name, torch.nn.Parameter(cast(value.detach(), dtype), value.requires_grad))
        for name, value in module._buffers.items():
            module._buffers[name] = cast(value, dtype)


def captured_of(path: Path, precision: str) -> Capture:
    """Captures a task from fake tensors. A task that needs values gets real ones, if they are small enough."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    source = path.read_text()
    name = {"__name__": "task"}
    code = compile(source, str(path), "exec")

    def exported() -> Capture:
        exec(code, name)
        model, inputs = name["Model"](*name["get_init_inputs"]()), name["get_inputs"]()
        if precision in ("bf16", "fp16"):
            narrow(model, dtype)
            inputs = [cast(value, dtype) for value in inputs]
        return capture(model, inputs, source, "train")

    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            captured = exported()
        refused = "FakeTensorMode" in captured.reason
    except DataDependentOutputException:  # the constructor reads values
        refused = True
    return exported() if refused and known_bytes(path) < REAL else captured


def survey(path: Path, folder: Path, precision: str) -> dict[str, Any]:
    """Captures and plans one task, and writes its generated program to `folder`. `left` holds (title, reason, floor in ms) of the groups that PyTorch
    computes."""
    source, found = path.read_text(), {}
    started = time.perf_counter()
    captured = captured_of(path, precision)
    found["captured"], found["why"] = captured.graph is not None, captured.reason
    found["capture_seconds"] = round(time.perf_counter() - started, 1)
    if captured.graph is not None:
        found |= compiled_for_cuda(captured, source, precision, folder / f"{path.parent.name}-{path.stem}.py")
        found["seconds"] = round(time.perf_counter() - started, 1)
    return found


def compiled_for_cuda(captured: Capture, source: str, precision: str, program: Path) -> dict[str, Any]:
    """Plans a capture that has a graph and generates its program, which is written to `program`."""
    found: dict[str, Any] = {}
    plan = make_plan(captured, source, DeviceFigures.h200(), precision)
    found["planned"], found["why"] = not plan.reason, plan.reason
    found["groups"], found["own_groups"] = len(plan.groups), len(plan.own)
    found["floor_ms"] = round(sum(group.floor_ms for group in plan.groups), 6)
    left: dict[tuple[str, str], float] = {}
    for group in plan.groups:
        if group.space != "own kernel":
            left[group.title, group.reason] = left.get((group.title, group.reason), 0.0) + group.floor_ms
    found["left"] = [[title, reason, round(ms, 6)] for (title, reason), ms in left.items()]
    text = print_program(plan, source, Options())
    ast.parse(text)
    program.write_text(text)
    found["printed"] = "class ModelNew" in text
    return found


def child(path: Path, folder: Path, answer: Path, precision: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.disable()  # torch 2.11 crashes if the collector encounters an export's fake tensors
    try:
        found = survey(path, folder, precision)
    except Exception as error:  # an error of the task or the compiler is itself the finding
        found = {"error": f"{type(error).__name__}: {str(error)[:300]} ({traceback.format_exc().splitlines()[-3].strip()[-120:]})"}
    answer.write_text(json.dumps(found))


def one(path: Path, folder: Path, build: bool, precision: str) -> dict[str, Any]:
    """Surveys one task in a separate process, then compiles its kernels with nvcc."""
    answer = folder / f"{path.parent.name}-{path.stem}.json"
    command = [sys.executable, __file__, str(path.parents[2]), "--child", str(path), str(folder), str(answer), "--precision", precision]
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"error": f"not done within {LIMIT} s"}
    if not answer.exists():
        return {"error": f"the process ended with {done.returncode}"}
    found = json.loads(answer.read_text())
    if build and found.get("printed"):
        found["built"], kernels = compiled(folder / f"{path.parent.name}-{path.stem}.py")
        found["most_registers"] = max((kernel["registers"] or 0 for kernel in kernels), default=0)
        found["spills"] = [kernel["name"] for kernel in kernels if kernel["spills"]]
    return found


def compiled(program: Path) -> tuple[bool | str, list[dict[str, Any]]]:
    """Returns True (or nvcc's message), and each kernel's registers and spills."""
    text = program.read_text()
    parts = text.split('SOURCE = r"""')
    if len(parts) == 1:
        return True, []
    unit = program.with_suffix(".cu")
    unit.write_text(parts[1].split('"""')[0])
    flags = re.search(r"stitch_build\(\"cuda\", SOURCE, (\(.*?\))\)", text)
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    command = [nvcc, "-O3", "-std=c++17", "-cubin", "-Xptxas=-v", str(unit), "-o", str(program.with_suffix(".cubin"))]
    extra = [*ast.literal_eval(flags[1])] if flags else []
    command[1:1] = extra if any("gencode" in flag or "arch" in flag for flag in extra) else ["-arch=sm_90", *extra]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr[-600:], []
    kernels = []
    for name, rest in re.findall(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry|\Z)", done.stderr, re.S):
        spill, registers = re.search(r"(\d+) bytes spill stores", rest), re.search(r"Used (\d+) registers", rest)
        kernels.append({"name": name, "registers": int(registers[1]) if registers else None, "spills": int(spill[1]) if spill else 0})
    return True, kernels


def own_share(found: dict[str, Any]) -> float:
    """Returns the fraction of the groups' floor time that is in generated kernels."""
    total = found.get("floor_ms", 0.0)
    return 1 - sum(ms for *_, ms in found["left"]) / total if total else 0.0


def rows(results: dict[str, dict[str, Any]]) -> str:
    """Formats JSON with one line per task."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in results.items()) + "\n}\n"


def summary(results: dict[str, dict[str, Any]]) -> str:
    """Formats Markdown tables: counts per level, then the groups left to PyTorch, most expensive first."""
    lines = ["# Coverage of KernelBench by the built-in compiler", ""]
    lines += ["Made by `python bench/coverage.py`; floors are those of an H200. Each row of the JSON names the commit that it belongs to (`at`);"]
    lines += ["`--resume` adds the missing rows.", ""]
    lines += [
        "| level | tasks | captured | planned | with own kernels | built by nvcc | own share of the floor time (mean) |",
        "|---|---|---|---|---|---|---|",
    ]
    levels = sorted({name.split("/")[0] for name in results})
    for level in levels:
        tasks = [found for name, found in results.items() if name.startswith(level + "/")]
        own = sum(bool(found.get("own_groups")) for found in tasks)
        built = [found["built"] for found in tasks if "built" in found]
        share = sum(map(own_share, tasks)) / max(len(tasks), 1)
        lines.append(
            f"| {level} | {len(tasks)} | {sum(bool(f.get('captured')) for f in tasks)} | {sum(bool(f.get('planned')) for f in tasks)} | {own} "
            f"| {f'{sum(b is True for b in built)} of {len(built)}' if built else 'not tried'} | {share:.0%} |"
        )
    for level in levels:
        left: dict[tuple[str, str], list[Any]] = {}
        broken = []
        for name, found in results.items():
            if not name.startswith(level + "/"):
                continue
            task = name.split("/")[1].removesuffix(".py")
            why = found.get("error") or found.get("why") or (found.get("built") if found.get("built") not in (None, True) else "")
            if why:
                broken.append(f"- {task}: {' '.join(str(why).split())[:240]}")
            for title, reason, ms in found.get("left", []):
                entry = left.setdefault((title, reason), [0.0, 0.0, {}])
                entry[0] += ms
                entry[1] += ms / (found["floor_ms"] or 1)
                entry[2][task] = None
        lines += ["", f"## {level}", "", "| left to PyTorch | reason | floor, ms | tasks' worth | tasks |", "|---|---|---|---|---|"]
        for (title, reason), (ms, worth, tasks) in sorted(left.items(), key=lambda item: -item[1][1]):
            names = ", ".join(task.split("_")[0] for task in tasks)
            lines.append(f"| {title} | {reason} | {ms:.3f} | {worth:.2f} | {names} |")
        lines += ["", *(["Not captured, planned or built:", "", *broken] if broken else [])]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--level", type=int, action="append", choices=(1, 2, 3))
    parser.add_argument("--only", action="append", default=[], help="part of a task's file name")
    parser.add_argument("--precision", default="fp32-strict", choices=("fp32-strict", "tf32", "bf16", "fp16"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="nvcc over every program, for sm_90")
    parser.add_argument("--resume", action="store_true", help="leave out what the results hold already")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--programs", type=Path, help="keep the printed programs in this folder")
    parser.add_argument("--child", nargs=3, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child, arguments.precision)
        os._exit(0)
    results: dict[str, dict[str, Any]] = json.loads(arguments.out.read_text()) if arguments.resume and arguments.out.exists() else {}
    paths = []
    for level in arguments.level or (1, 2, 3):
        files = (arguments.checkout / "KernelBench" / f"level{level}").glob("*.py")
        paths += sorted(files, key=lambda path: int(path.stem.split("_")[0]))
    paths = [p for p in paths if not arguments.only or any(part in p.stem for part in arguments.only)]
    wanted = [
        p for p in paths if f"{p.parent.name}/{p.name}" not in results or (arguments.compile and "built" not in results[f"{p.parent.name}/{p.name}"])
    ]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.jobs) as pool:
        folder = arguments.programs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for path, found in zip(wanted, pool.map(lambda path: one(path, folder, arguments.compile, arguments.precision), wanted), strict=True):
            results[f"{path.parent.name}/{path.name}"] = found | {"at": commit}
            said = found.get("error") or found.get("why") or f"{own_share(found):.0%} own"
            print(f"{path.parent.name}/{path.stem}: {said}"[:200], flush=True)
            arguments.out.write_text(rows(results))
    arguments.out.write_text(rows(results))
    arguments.out.with_suffix(".md").write_text(summary(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
