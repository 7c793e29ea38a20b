"""Checks the CUDA programs without a GPU: each task's program is generated for small sizes, run by the emulator and compared with PyTorch.

Decisions that depend on sizes (tiles, splits, use of the library) are made for the small sizes, and groups get kernels regardless of their size.
"""

# sandboxed: imports tasks of this repository

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.coverage import rows
from bench.sweep.store import write
from bench.sweep.tasks import ROOT, items
from verifier.task import Precision

RESULTS = ROOT / "bench" / "results" / "everyday-emulated.json"
SIZES = {
    "serving/01": "BATCH=1 LENGTH=48 WIDTH=256 HEADS=8 GROUPS=2",
    "serving/02": "BATCH=2 CAPACITY=100 WIDTH=256 HEADS=8 GROUPS=2",
    "serving/03": "BATCH=1 LENGTH=40 WIDTH=128 HEADS=2 LATENT=64 PLAIN=32 TURNED=16 VALUE=32",
    "serving/04": "BATCH=2 PAST=70 WIDTH=128 HEADS=2 LATENT=64 PLAIN=32 TURNED=16 VALUE=32",
    "serving/05": "LENGTH=80 WIDTH=96 HEADS=4 GROUPS=2 FEATURES=32 WINDOW=24",
    "serving/06": "BATCH=1 LENGTH=32 WIDTH=48 INNER=64",
    "serving/07": "TOKENS=64 WIDTH=48 INNER=32 EXPERTS=8 CAPACITY=20",
    "serving/08": "TOKENS=8 WIDTH=128 INNER=320",
    "serving/09": "TOKENS=8 INPUTS=256 OUTPUTS=192 GROUP=64",
    "serving/10": "TOKENS=16 INPUTS=256 OUTPUTS=256 BLOCK=64",
    "serving/11": "BATCH=8 WIDTH=64 VOCABULARY=2000 HISTORY=32",
    "serving/12": "BATCH=3 PAGES=6 HEADS=8 GROUPS=2 FEATURES=64",
    "serving/13": "BATCH=2 VOCABULARY=1003 PAST=40 LAYER_HEADS=3 FEATURES=32 WIDTH=96",
    "serving/14": "REQUESTS=12 INPUTS=128 OUTPUTS=160 ADAPTERS=6",
    "serving/15": "BATCH=4 VOCABULARY=1000",
    "serving/16": "BATCH=1 CHUNK=20 PAST=60 WIDTH=128 INNER=192 HEADS=4 GROUPS=2 FEATURES=32",
    "domains/01": "BATCH=2 CHANNELS=48 SIZE=6",
    "domains/02": "BATCH=2 QUERIES=40 WIDTH=64 HEADS=4 SIZES=((16,16),(8,8),(4,4),(2,2))",
    "domains/03": "BATCH=1 CHANNELS=(32,48,64) SIZES=(16,8,4) WIDTH=32 ANCHORS=3 CLASSES=5",
    "domains/04": "BATCH=2 POINTS=200 CENTRES=32 FEATURES=16 NEIGHBOURS=8",
    "domains/05": "BATCH=2 LENGTH=60 WIDTH=32",
    "domains/06": "BATCH=1 CHANNELS=32 FRAMES=20",
    "domains/07": "BATCH=2 SAMPLES=4000 BANDS=20 WIDTH=32",
    "domains/08": "BATCH=1 CHANNELS=96 SIZE=8 TIME=64",
    "domains/09": "BATCH=2 TOKENS=20 WIDTH=96 HEADS=4",
    "domains/10": "BATCH=64 TABLES=6 ROWS=100",
    "domains/11": "BATCH=16 LENGTH=20 ITEMS=500",
    "domains/12": "NODES=200 EDGES=2000",
    "domains/13": "GRAPHS=8 WIDTH=36",
    "domains/14": "ATOMS=256 PAIRS=2000",
    "domains/15": "RESIDUES=24 WIDTH=32 INNER=32 HEADS=2 FEATURES=16",
    "domains/16": "BATCH=2 CHANNELS=8 SIZE=32 MODES=6",
    "loops/1": "BATCH=2 LENGTH=40 WIDTH=64",
    "loops/2": "BATCH=2 LENGTH=40 WIDTH=64 RANK=16",
    "loops/3": "BATCH=1 LENGTH=24 WIDTH=64 HEADS=2 FEATURES=32",
    "loops/4": "BATCH=4 LENGTH=24 INPUTS=32 HIDDEN=32",
    "loops/5": "BATCH=16 WIDTH=32 INNER=48 STEPS=6",
    "loops/6": "BATCH=2 POINTS=40 DIMENSIONS=8 ITERATIONS=20",
    "loops/7": "BATCH=4 LENGTH=24 TAGS=16",
    "loops/8": "BATCH=1 HEIGHT=8 WIDTH=10 HIDDEN=16 CONTEXT=16 ITERATIONS=4",
    "library/1": "BATCH=1 LENGTH=24 WIDTH=256",
    "library/2": "BATCH=1 LENGTH=16 WIDTH=64 INNER=96 EXPERTS=4",
    "library/3": "BATCH=1 LENGTH=20 WIDTH=256 HEADS=2",
    "library/4": "BATCH=1 LENGTH=20 WIDTH=128",
    "library/5": "BATCH=1 LENGTH=30 WIDTH=96",
    "library/6": "BATCH=1 LENGTH=20 WIDTH=96",
    "library/7": "BATCH=1 CHANNELS=32 OUTPUTS=64 SIZE=14",
    "library/8": "BATCH=2 CHANNELS=48 SIZE=9",
}


def run(only: list[str], precision: str, seconds: float, out: Path, resume: bool) -> int:
    """Checks the tasks whose names contain one of `only`; each row is written to disk before the next one begins. Returns 1 if a program is wrong."""
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}  # also those for the other precision
    for item in items(["everyday-bf16" if precision == "bf16" else "everyday"], None, only):
        if resume and item.key in results:
            continue
        begun = time.perf_counter()
        results[item.key] = {"found": apart(item.path, precision, seconds), "seconds": round(time.perf_counter() - begun, 1)}
        print(f"{item.key}: {results[item.key]['found']}", flush=True)
        write(out, rows(results).encode())
    wrong = [key for key, row in results.items() if not row["found"].startswith(("right", "not here", "not captured"))]
    print(f"\n{len(results)} tasks, {len(wrong)} not right{': ' + ', '.join(wrong) if wrong else ''}")
    return 1 if wrong else 0


def apart(path: Path, precision: str, seconds: float) -> str:
    """Checks a task in a separate process, which is killed after `seconds`."""
    command = [sys.executable, "-m", "bench.everyday.emulating", str(path), precision]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return f"not done within {seconds:.0f} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if done.returncode == 0 else f"failed: {lines[-1] if lines else done.returncode}"


def small(path: Path) -> str:
    """Returns the task's source with the sizes from SIZES."""
    source, place = path.read_text(), f"{path.parent.name}/{path.stem.partition('_')[0]}"
    for size in SIZES[place].split():
        name, _, value = size.partition("=")
        found = re.search(rf"^((?:[A-Z_0-9]+, )*{name}(?:, [A-Z_0-9]+)*) = (.*)$", source, re.MULTILINE)
        if found is None:
            raise KeyError(f"{path}: no constant {name}")
        names = found[1].split(", ")
        values = [found[2]] if len(names) == 1 else re.split(r", (?![^(]*\))", found[2])
        values[names.index(name)] = value
        source = source.replace(found[0], f"{found[1]} = {', '.join(values)}")
    return source


def one(path: Path, precision: Precision) -> str:
    """Returns a task's result as one line."""
    from compiler import DeviceFigures
    from compiler.families.attention import attention
    from compiler.families.conv import conv
    from compiler.families.product import matmul, matvec
    from compiler.planning import partition
    from tests import kept
    from tests.emulator import as_cpp
    from tests.unit.compiler.conftest import Compiled
    from verifier.correctness.bounds import bound

    os.environ.setdefault("STITCH_BUILD_DIR", str(kept.folder("libraries-" + kept.compiler())))
    partition.TINY = 32
    conv.LEAST_FLOPS = conv.THIN_FLOPS = matmul.LEAST_FLOPS = attention.LEAST_FLOPS = attention.LEAST_KEYS = matvec.LEAST = matvec.LEAST_DEPTH = 1
    try:
        found = Compiled(small(path), figures=DeviceFigures.h200(), precision=precision)
    except ModuleNotFoundError as error:
        return f"not here: {error}"
    except AssertionError as error:  # the reason why a test's capture has no graph
        return f"not captured: {str(error)[:200]}"
    kinds = ", ".join(dict.fromkeys(group.family or group.space for group in found.plan.groups))
    if not found.plan.own:
        return f"right: nothing in own kernels ({kinds})"
    found.text = as_cpp(found.text)
    try:
        found.check()
    except AssertionError as error:
        far = error.args[0] if error.args else None  # distance from fp64, and PyTorch's own distance
        if isinstance(far, tuple) and far[0] <= bound(far[1], [], found.dtype, precision):
            return f"right ({kinds}), {far[0] / far[1]:.1f} times as far from fp64 as PyTorch"
        return f"WRONG ({kinds}): {str(error)[:160]}"
    return f"right ({kinds})"


if __name__ == "__main__":
    print(one(Path(sys.argv[1]), "bf16" if sys.argv[2] == "bf16" else "fp32-strict"))
