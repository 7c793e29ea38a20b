"""Times programs generated for KernelBench tasks against the unchanged model: the median time of each, the bytes moved per unit of time, and the
distance from eager's result.

    python bench/coverage.py CHECKOUT --level 1 --programs FOLDER --out COVERAGE.json    (no GPU: generates the programs)
    python bench/level1_kernels.py build FOLDER ... --libraries LIBRARIES                (no GPU: compiles their kernels for sm_90)
    python bench/level1_kernels.py run CHECKOUT FOLDER ... --libraries LIBRARIES --device cuda:0 --limit-seconds 120 --out RESULTS.json [--resume]

This is a quick check between sweeps, not a verdict: tensors are drawn on the GPU, every call is timed with events after the L2 cache has been
flushed, and the sides take turns. Programs with the same name in several folders are variants for one task. A task for which the limit leaves no time
is skipped and reported.
"""

# sandboxed: imports tasks and programs; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import math
import os
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CALLS = 9  # number of timed calls of each side
FLUSH = 128 << 20  # number of bytes written between calls
ARCHITECTURE = "sm_90"


def build(arguments: argparse.Namespace) -> int:
    """Executes only the part of each program that compiles its kernels; PyTorch is not needed."""
    arguments.libraries.mkdir(parents=True, exist_ok=True)
    os.environ |= {"STITCH_BUILD_DIR": str(arguments.libraries.resolve()), "STITCH_CUDA_ARCH": ARCHITECTURE}

    def one(program: Path) -> tuple[Path, str]:
        tree = ast.parse(program.read_text())
        tree.body = [part for part in tree.body if names(part) & {"stitch_build", "SOURCE", "kernels"}]
        try:
            exec(compile(tree, str(program), "exec"), {})
        except Exception as error:
            return program, f"{type(error).__name__}: {str(error)[-300:]}"
        return program, ""

    failed = 0
    with ThreadPoolExecutor(arguments.workers) as pool:
        for program, said in pool.map(one, programs(arguments.folders)):
            failed += bool(said)
            print(f"{program.parent.name}/{program.stem}: {said or 'built'}", flush=True)
    return int(failed > 0)


def names(statement: ast.stmt) -> set[str]:
    """Returns the names that a module-level statement defines."""
    if isinstance(statement, ast.FunctionDef):
        return {statement.name}
    return {target.id for target in statement.targets if isinstance(target, ast.Name)} if isinstance(statement, ast.Assign) else set()


def programs(folders: list[Path]) -> list[Path]:
    return sorted(path for folder in folders for path in folder.glob("*.py"))


def run(arguments: argparse.Namespace) -> int:
    import torch

    os.environ |= {"STITCH_BUILD_DIR": str(arguments.libraries.resolve()), "STITCH_CUDA_ARCH": ARCHITECTURE}
    torch.cuda.set_device(arguments.device)
    torch.set_default_device(arguments.device)  # tasks create their tensors directly on the GPU
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    deadline = time.monotonic() + arguments.limit_seconds
    known = json.loads(arguments.out.read_text())["tasks"] if arguments.resume and arguments.out.exists() else {}
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "calls": CALLS, "tasks": known}
    variants: dict[str, dict[str, Path]] = {}
    for path in programs(arguments.folders):
        if not arguments.only or any(part in path.stem for part in arguments.only.split(",")):
            variants.setdefault(path.stem, {})[path.parent.name] = path
    for name, own in variants.items():
        if name in known and "error" not in known[name]:
            continue
        if time.monotonic() > deadline:
            left = [name for name in variants if name not in known or "error" in known[name]]
            print(f"out of time: {len(left)} tasks are left", flush=True)
            break
        level, _, stem = name.partition("-")
        try:
            known[name] = measure(arguments.checkout / "KernelBench" / level / f"{stem}.py", own)
        except Exception as error:
            known[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
        print(line(name, known[name]), flush=True)
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError:  # after an illegal address, nothing else can run in this process
            print("the device's context is lost: the same command with --resume goes on behind this task", flush=True)
            return 1
    return 0


def loaded(path: Path) -> Any:
    specification = importlib.util.spec_from_file_location(f"task_{abs(hash(path))}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def measure(task: Path, own: dict[str, Path]) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    reference = loaded(task)
    inputs = reference.get_inputs()
    model = reference.Model(*reference.get_init_inputs())
    sides = {"eager": model}
    errors: dict[str, str] = {}
    for variant, path in own.items():
        try:
            sides[variant] = loaded(path).ModelNew(*reference.get_init_inputs())
            sides[variant].load_state_dict(model.state_dict())
        except Exception as error:
            errors[variant] = f"{type(error).__name__}: {str(error)[:300]}"
    result, distances = {}, {}
    with torch.no_grad():
        expected = first(model(*inputs))
        moved = sum(t.numel() * t.element_size() for t in [*inputs, expected] if isinstance(t, torch.Tensor))
        for variant in [v for v in own if v in sides]:
            try:
                distances[variant] = distance(first(sides[variant](*inputs)), expected)
            except Exception as error:
                errors[variant] = f"{type(error).__name__}: {str(error)[:300]}"
                del sides[variant]
        del expected
        flush = torch.empty(FLUSH, dtype=torch.uint8)
        samples: dict[str, list[float]] = {side: [] for side in sides}
        rng = random.Random(0)
        for turn in range(CALLS + 2):
            for side in rng.sample(list(sides), len(sides)):
                flush.fill_(turn)
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                kept = sides[side](*inputs)
                end.record()
                end.synchronize()
                del kept
                if turn >= 2:
                    samples[side].append(begin.elapsed_time(end))
    medians = {side: statistics.median(times) for side, times in samples.items()}
    for side, ms in medians.items():
        result[side] = {"ms": ms, "gbs": moved / ms / 1e6, "ratio": medians["eager"] / ms, "distance": distances.get(side, 0.0)}
    return {"bytes": moved, "sides": result, "errors": errors}


def first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def distance(got: Any, expected: Any) -> float:
    """Returns the largest difference divided by the root mean square of the expected result. Works in chunks, because tensors may fill half of the
    memory. Returns infinity if only one of the two values is a number."""
    if got.shape != expected.shape:
        raise ValueError(f"shape {tuple(got.shape)} in place of {tuple(expected.shape)}")
    a, b, most, square = got.reshape(-1), expected.reshape(-1), 0.0, 0.0
    for at in range(0, a.numel(), 1 << 28):
        x, y = a[at : at + (1 << 28)].float(), b[at : at + (1 << 28)].float()
        same = (x == y) | (x.isnan() & y.isnan())
        worst = float((x - y).abs().masked_fill_(same, 0.0).max())
        most = float("inf") if math.isnan(worst) else max(most, worst)
        square += float(y.masked_fill(~y.isfinite(), 0.0).square().mean()) * y.numel()
    return most / max((square / max(a.numel(), 1)) ** 0.5, 1e-30)


def line(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{name}: {row['error']}"
    sides = [f"{side} {one['ms']:.3f} ms ({one['ratio']:.2f}x, {one['gbs']:.0f} GB/s, {one['distance']:.0e})" for side, one in row["sides"].items()]
    return f"{name[:40]}: {'; '.join([*sides, *(f'{variant}: {said[:120]}' for variant, said in row['errors'].items())])}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("build")
    one.add_argument("folders", nargs="+", type=Path)
    one.add_argument("--workers", type=int, default=2)
    one.set_defaults(run=build)
    two = commands.add_parser("run")
    two.add_argument("checkout", type=Path)
    two.add_argument("folders", nargs="+", type=Path)
    two.add_argument("--device", default="cuda:0")
    two.add_argument("--limit-seconds", type=float, default=120)
    two.add_argument("--only", default="", help="parts of names, comma-separated")
    two.add_argument("--resume", action="store_true")
    two.add_argument("--out", type=Path, required=True)
    two.set_defaults(run=run)
    for command in (one, two):
        command.add_argument("--libraries", type=Path, required=True)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
