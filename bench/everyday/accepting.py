"""Asks KernelBench's own evaluation about the programs of the everyday suite: accepted, refused, or why it cannot judge the task.

Correctness only: several processes share a GPU. A program that is refused is tried once more without TF32 (`exact`, see `bench.sweep.accepting`). If
the reference itself shows that the evaluation does not apply to the task, the row's status is "not applicable" and `reasons` says why.
"""

# sandboxed: imports tasks and programs of this repository

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.beside import Beside, Result, Row, stored_programs
from bench.clock_beside_loops import only
from bench.kernelbench_eval import evaluated, import_kernelbench
from bench.sweep.accepting import EXACT
from bench.sweep.store import slug
from bench.sweep.tasks import ROOT, items

ACCEPTED, REFUSED, NOT_APPLICABLE = "accepted", "refused", "not applicable"
JUDGED = (ACCEPTED, REFUSED, NOT_APPLICABLE)
TASK_SECONDS = 180.0  # time limit for one task, compilation included


def run(arguments: argparse.Namespace) -> int:
    """Evaluates every stored fp32 program. Returns 3 if some are left for another session."""
    end = time.monotonic() + arguments.limit_seconds
    rows = json.loads(arguments.rows.read_text())["rows"]
    stored = stored_programs(rows, arguments.programs)
    suite = {item.key: item.path for item in items(["everyday"], None, arguments.only)}
    result = Result(arguments.out, {"stored": arguments.rows.name}, summary)
    if arguments.resume:
        result.resume()
    for key in suite:
        if key not in stored:
            result.rows[key] = {"status": "no program", "message": rows.get(key, {}).get("why") or "the suite's results hold no program"}
        elif result.rows.get(key, {}).get("program") != rows[key]["program"]:
            result.rows.pop(key, None)
    with tempfile.TemporaryDirectory(prefix="accept-") as made:
        for key in suite.keys() & stored.keys():
            (Path(made) / f"{slug(key)}.py").write_text(stored[key])

        def command(key: str, device: str, out: Path) -> list[str]:
            pair = [str(suite[key]), str(Path(made) / f"{slug(key)}.py")]
            return [sys.executable, "-m", "bench.everyday.accepting", str(arguments.checkout.resolve()), *pair, str(out)]

        def ask(keys: Sequence[str], exact: bool) -> list[str]:
            series = Beside(result, arguments.devices.split(","), command, end, TASK_SECONDS, share=arguments.share, said=line)
            series.environment = lambda device: {**only(device), **(EXACT if exact else {})}
            series.shaped = lambda key, row: shaped(row, rows[key]["program"], result.rows.get(key), exact)
            return series.run(keys)

        left = ask([key for key in suite if key in stored and key not in result.rows], exact=False)
        left += ask([key for key, row in result.rows.items() if key in suite and row["status"] == REFUSED and "exact" not in row], exact=True)
    result.save()
    print(json.dumps(result.summary(result.rows), indent=1))
    print(f"{len(left)} left: {', '.join(left[:5])}" if left else "nothing is left")
    return 3 if left else 0


def shaped(row: Row, program: str, before: Row | None, exact: bool) -> Row:
    """Returns the fields to record: those of the first evaluation, or the second one under `exact`."""
    if exact and before is not None:
        return {"exact": {name: row.get(name) for name in ("status", "message", "metadata")}}
    return {**row, "program": program}


def one(checkout: Path, task: Path, program: Path) -> Row:
    """Evaluates one program in this process."""
    try:
        found = evaluated(import_kernelbench(checkout), task, program, trials=5)
    except Exception as error:  # KernelBench lets the reference's own errors through
        found = {"compiled": None, "correct": False, "metadata": {"raised_error": f"{type(error).__name__}: {str(error)[:300]}"}}
    said = "; ".join(f"{name}: {text}" for name, text in found["metadata"].items() if "error" in name or "issue" in name)[:400]
    device_name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
    facts = {"compiled": found["compiled"], "metadata": found["metadata"], "device_name": device_name, "torch": torch.__version__}
    if found["correct"]:
        return {"status": ACCEPTED, "message": "", "reasons": [], **facts}
    gc.collect()
    reasons = inapplicable(task, "cuda:0" if torch.cuda.is_available() else "cpu") if found["compiled"] is not False else []
    return {"status": NOT_APPLICABLE if reasons else REFUSED, "message": said or "not compiled", "reasons": reasons, **facts}


def inapplicable(task: Path, device: str) -> list[str]:
    """Returns why KernelBench's evaluation does not apply to a task, judging by the reference alone."""
    names: dict[str, Any] = {"__name__": "task"}
    try:
        exec(compile(task.read_text(), str(task), "exec"), names)
    except ImportError as error:
        return [f"the task needs a package that is not installed: {error}"]
    torch.manual_seed(0)
    model, inputs = names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
    found = of_inputs(inputs)
    types = {value.dtype for value in (*model.parameters(), *model.buffers()) if value.is_floating_point() and value.dtype != torch.float32}
    if types:
        found.append(f"its evaluation casts the model to float32, and its weights are {', '.join(sorted(map(str, types)))}")
    try:
        return found + of_outputs(model.to(device), moved(inputs, device))
    except Exception:  # a program may have broken the device, or the evaluation may still hold its memory: then this says nothing about the task
        return found


def of_inputs(inputs: Sequence[Any]) -> list[str]:
    types = sorted({str(value.dtype) for value in inputs if isinstance(value, torch.Tensor) and value.dtype != torch.float32})
    found = [f"its evaluation casts every input to float32, and the task's are {', '.join(types)} too"] if types else []
    if any(isinstance(value, list | tuple | dict) for value in inputs):
        found.append("inputs within a list or dict stay on the CPU")
    return found


def of_outputs(model: torch.nn.Module, inputs: Sequence[Any]) -> list[str]:
    """Runs the reference twice and returns what its evaluation cannot compare."""
    found, kept = [], [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    with torch.no_grad():
        first = model(*inputs)
        changed = any(isinstance(old, torch.Tensor) and not same(old, new) for old, new in zip(kept, inputs, strict=True))
        second = model(*kept)
    if not isinstance(first, torch.Tensor):
        many = f" of {len(first)}" if hasattr(first, "__len__") else ""
        found.append(f"its evaluation compares one tensor, and the model returns a {type(first).__name__}{many}")
    elif not same(first, second):
        found.append("the model gives another result in its second call: it keeps state or draws random numbers")
    return found + ["the model changes its inputs in place, and its evaluation gives the same tensors to both models"] * changed


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compares with some tolerance, because library kernels may add up in another order."""
    if one.shape != other.shape or not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)


def moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    return type(value)(moved(part, device) for part in value) if isinstance(value, list | tuple) else value


def summary(rows: Mapping[str, Row]) -> Row:
    counts = Counter(row["status"] for row in rows.values())
    exact = [key for key, row in rows.items() if row.get("exact", {}).get("status") == ACCEPTED]
    return {
        "tasks": len(rows),
        "accepted": counts[ACCEPTED],
        "accepted_without_tf32": exact,
        "refused": {key: row["message"][:200] for key, row in rows.items() if row["status"] == REFUSED and key not in exact},
        "not_applicable": {key: "; ".join(row["reasons"]) for key, row in rows.items() if row["status"] == NOT_APPLICABLE},
        "other": {
            key: f"{row['status']}: {row['message']}"[:200] for key, row in rows.items() if row["status"] in ("failed", "timed_out", "no program")
        },
    }


def line(key: str, row: Row) -> str:
    told = "; ".join(row.get("reasons", [])) or row.get("message", "")
    return f"{key}: {row['status']}{': ' + told[:220] if told else ''}"


def parser(commands: Any) -> None:
    results = ROOT / "bench" / "results"
    asked = commands.add_parser("accept", help="KernelBench's own evaluation of the suite's programs")
    asked.add_argument("checkout", type=Path, metavar="CHECKOUT", help="of KernelBench")
    asked.add_argument("--out", type=Path, required=True, metavar="RESULT")
    asked.add_argument("--devices", default="cuda:0", help="comma-separated")
    asked.add_argument("--share", type=int, default=3, metavar="N", help="processes a device (default: 3)")
    asked.add_argument("--rows", type=Path, default=results / "everyday-h100-80gb-hbm3.json", help="the suite's rows")
    asked.add_argument("--programs", type=Path, default=results / "everyday-h100-programs.tar.gz", help="their programs")
    asked.add_argument("--only", action="append", default=[], metavar="PART", help="only tasks with this in their name")
    asked.add_argument("--limit-seconds", type=float, default=540.0, help="of this session")
    asked.add_argument("--resume", action="store_true", help="go on with the rows that RESULT has")


if __name__ == "__main__":
    checkout, task, program, out = map(Path, sys.argv[1:])
    out.write_text(json.dumps(one(checkout, task, program)))
