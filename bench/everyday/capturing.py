"""Surveys each task without a GPU: how far it is captured, which groups get generated kernels, and how long a program takes.

Each task runs in a separate process with a time limit; tensors are real, and small enough for a host. Programs are generated for an H200 but not run.
"""

# sandboxed: imports tasks of this repository

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import traceback
import warnings
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from bench.coverage import cast, compiled_for_cuda, narrow, own_share, rows
from bench.sweep.store import write
from bench.sweep.tasks import ROOT, Item, items
from verifier.parties.capturing.capture import capture

RESULTS = ROOT / "bench" / "results" / "everyday-capture.json"
LINES = 4  # maximum number of entries of `left` shown on a line


def run(only: list[str], seconds: float, out: Path, resume: bool) -> int:
    """Surveys the tasks whose names contain one of `only`; each row is written to disk before the next one begins."""
    results: dict[str, dict[str, Any]] = json.loads(out.read_text()) if out.exists() and (resume or only) else {}
    programs = ROOT / ".data" / "everyday" / "captured"
    programs.mkdir(parents=True, exist_ok=True)
    for item in items(["everyday"], None, only):
        if resume and item.key in results:
            continue
        results[item.key] = found = apart(item, programs, seconds)
        print(f"{item.key}: {line(found)}", flush=True)
        write(out, rows(results).encode())
    print(f"\n{summary(results)}")
    return 0


def apart(item: Item, programs: Path, seconds: float) -> dict[str, Any]:
    """Surveys a task in a separate process, which is killed after `seconds`."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=answer, args=(item, programs, there))
    child.start()
    there.close()
    try:
        return here.recv() if here.poll(seconds) else {"captured": "not", "error": f"not done within {seconds:.0f} s"}
    except EOFError:
        return {"captured": "not", "error": "its process died"}
    finally:
        if child.pid is not None and child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
        child.join()


def answer(item: Item, programs: Path, there: Connection) -> None:
    warnings.simplefilter("ignore")
    try:
        found = survey(item, programs)
    except Exception as error:  # an error in the task or the compiler is itself the finding
        found = {"captured": "not", "error": f"{type(error).__name__}: {str(error)[:300]} ({traceback.format_exc().splitlines()[-3].strip()[-120:]})"}
    there.send(found)
    there.close()


def survey(item: Item, programs: Path) -> dict[str, Any]:
    """Captures and plans a task and generates its program. Returns how far that got, and the time from reading the model to the finished program."""
    source = item.path.read_text()
    names: dict[str, Any] = {"__name__": "task"}
    exec(compile(source, str(item.path), "exec"), names)
    torch.manual_seed(0)
    model, inputs = names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
    if item.precision == "bf16":
        narrow(model, torch.bfloat16)
        inputs = [cast(value, torch.bfloat16) for value in inputs]
    begun = time.perf_counter()
    captured = capture(model, inputs, source, "train")
    found: dict[str, Any] = {"captured": "not", "capture_seconds": round(time.perf_counter() - begun, 1)}
    if captured.graph is None:
        return found | {"why": captured.reason}
    found |= compiled_for_cuda(captured, source, item.precision, programs / f"{item.path.parent.name}-{item.path.stem}.py")
    found |= {"captured": "in parts" if captured.graph.parts else "whole", "operators": len(captured.graph.nodes), "python": captured.graph.left}
    return found | {"seconds": round(time.perf_counter() - begun, 1)}


def line(found: dict[str, Any]) -> str:
    if "groups" not in found:
        return f"not captured: {found.get('error') or found.get('why')}"
    said = f"{found['captured']}, {found['own_groups']} of {found['groups']} groups in own kernels, {own_share(found):.0%} of the floor's time"
    left = sorted(found["left"], key=lambda one: -one[2])[:LINES]
    told = f"; left: {', '.join(f'{title} {ms:.3f} ms' for title, _, ms in left)}" if left else ""
    return f"{said}, {found['seconds']} s{told}{''.join(f'; Python: {why}' for why in found['python'][:LINES])}"


def summary(results: dict[str, dict[str, Any]]) -> str:
    if not results:
        return "no tasks"
    counts = Counter(found["captured"] for found in results.values())
    own = sum(bool(found.get("own_groups")) for found in results.values())
    slowest = max(results, key=lambda key: results[key].get("seconds", 0.0))
    told = ", ".join(f"{count} {how}" for how, count in counts.most_common())
    return f"{len(results)} tasks: captured {told}; {own} with own kernels; the slowest, {slowest}, {results[slowest].get('seconds')} s"
