"""Measures the distance of PyTorch's fp32 from fp64 in KernelBench's metric, to find tasks whose reference misses its own tolerance.

    python bench/kernelbench_tolerance.py CHECKOUT --only 24_EfficientNetB2 [--only NAME ...] [--seeds 2] --out RESULT.json

KernelBench accepts an element within 1e-4 + 1e-4 |reference| (fp32). If fp32 itself has a larger error than the tolerance allows, only a program that
adds in the same order as the reference is accepted. Runs on the CPU, in the same mode and with the same inputs as KernelBench's evaluation. `over` is
the fraction of elements outside the tolerance.
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

TOLERANCE = 1e-4


def widened(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def distances(path: Path, seed: int) -> dict[str, float]:
    spec = importlib.util.spec_from_file_location("task", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(seed)
    inputs = module.get_inputs()
    torch.manual_seed(seed)
    model = module.Model(*module.get_init_inputs())
    precise = copy.deepcopy(model).double()
    with torch.no_grad():
        found = tree_leaves(model(*inputs))
        torch.set_default_dtype(torch.float64)
        try:
            exact = tree_leaves(precise(*map(widened, inputs)))
        finally:
            torch.set_default_dtype(torch.float32)
    pairs = [(a.double(), b) for a, b in zip(found, exact, strict=True) if a.is_floating_point()]
    off = torch.cat([(a - b).abs().flatten() for a, b in pairs])
    size = torch.cat([b.abs().flatten() for _, b in pairs])
    over = off > TOLERANCE + TOLERANCE * size
    figures = {"mean_size": size.mean(), "mean_off": off.mean(), "most_off": off.max(), "over": over.double().mean()}
    return {name: float(f"{float(value):.4g}") for name, value in figures.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="part of a task's name (default: all of level 3)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: dict[str, Any] = {}
    for path in sorted((arguments.checkout / "KernelBench" / "level3").glob("*.py")):
        if arguments.only and not any(part in path.stem for part in arguments.only):
            continue
        try:
            rows[f"level3/{path.stem}"] = [distances(path, seed) for seed in range(arguments.seeds)]
        except Exception as error:  # out of memory, or a missing library
            print(f"{path.stem}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        said = [f"over {row['over']:.2%}, at most {row['most_off']:g} of {row['mean_size']:g}" for row in rows[f"level3/{path.stem}"]]
        print(f"{path.stem}: {'; '.join(said)}", flush=True)
        arguments.out.write_text(
            json.dumps({"host": platform.machine(), "torch": torch.__version__, "tolerance": TOLERANCE, "rows": rows}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
