"""Measures the compiler's own products, convolutions and pools, alone and tile by tile, against the library operator on the same tensors.

    python bench/products.py prepare CHECKOUT --out CASES.json [--level 1] [--most 200] [--precision bf16]    (no GPU: generates every variant)
    python bench/products.py run CASES.json --device cuda:0 --shard 1/4 --limit-seconds 420 --out PART.json [--resume]
    python bench/products.py table PART.json ... --out bench/results/products-h200.json

Each product, convolution or pool that a KernelBench task needs is a case; equal cases are measured once. Each variant (a tile, stages, a split) is
timed alternately with the library operator in fp32 without TF32, both as CUDA graphs, with caches flushed before each call. The errors of both are
measured against fp64 on part of the result. Under bf16 and fp16, the cases are those of the 16-bit families, even if the model would leave them to
the library. Images are channels-last on both sides, as under the channels-last strategy; the variants are the tiles and splits that the model ranks
first.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from product_cases import HALVES, capture_one, prepare  # noqa: E402

CALLS = 12  # number of timed calls per side
FLUSH = 256 << 20  # number of bytes written between calls
MOST_BYTES = 24 << 30  # maximum total size of a case's tensors
CHECKED = 128  # number of rows of the result that are compared in fp64


# -- run --------------------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    import torch

    torch.cuda.set_device(arguments.device)  # the compiled libraries launch on the current device
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    deadline = time.monotonic() + arguments.limit_seconds
    shard, shards = (int(n) for n in arguments.shard.split("/"))
    cases = [case for at, case in enumerate(json.loads(arguments.cases.read_text())) if at % shards == shard % shards]
    done = json.loads(arguments.out.read_text())["cases"] if arguments.resume and arguments.out.exists() else []
    known = {json.dumps(case["name"]) for case in done}
    head = {"device": torch.cuda.get_device_name(arguments.device), "torch": torch.__version__, "calls": CALLS}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(max(2, (os.cpu_count() or 4) // shards)) as pool:
        waiting = [only(case, arguments.numbers) for case in cases if json.dumps(name_of(case)) not in known]
        builds = [{variant: pool.submit(build, case, variant, Path(scratch)) for variant in case["variants"]} for case in waiting]
        for case, libraries in zip(waiting, builds, strict=True):
            if time.monotonic() > deadline:
                print(f"out of time: {len(cases) - len(done)} cases are left", flush=True)
                break
            try:
                found = measure(case, {variant: library.result() for variant, library in libraries.items()}, arguments.device)
            except Exception as error:  # the error affects one case, and the next one may succeed
                found = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            done.append({"name": name_of(case), "tasks": case["tasks"], "flops": case["flops"], **found})
            arguments.out.write_text(json.dumps({**head, "cases": done}, indent=1))
            print(line(done[-1]), flush=True)
            torch.cuda.empty_cache()
        for libraries in builds:
            for library in libraries.values():
                library.cancel()
    return 0


def only(case: dict[str, Any], numbers: str) -> dict[str, Any]:
    kept = {name: one for name, one in case["variants"].items() if not numbers or name == "default" or name.split("=")[0] in numbers.split(",")}
    return {**case, "variants": kept}


def name_of(case: dict[str, Any]) -> list[Any]:
    return [case["family"], case["op"], case["args"], case["tensors"], case["views"], *([case["precision"]] if case["precision"] in HALVES else [])]


def build(case: dict[str, Any], variant: str, folder: Path) -> ctypes.CDLL | str:
    """Returns the library, or nvcc's message."""
    base = folder / f"{abs(hash(json.dumps(name_of(case))))}-{abs(hash(variant))}"
    one = case["variants"][variant]
    types = HALVES.get(case["precision"], ("", ""))[1]
    text = "\n".join(["#include <cmath>", types, *(case["shared"][at] for at in one["shared"]), one["source"].replace("NAME", "product")])
    unit, library = base.with_suffix(".cu"), base.with_suffix(".so")
    unit.write_text(text)
    nvcc = "/usr/local/cuda/bin/nvcc" if Path("/usr/local/cuda/bin/nvcc").exists() else "nvcc"
    command = [nvcc, "-O3", "-std=c++17", "-shared", "-Xcompiler=-fPIC", "-gencode=arch=compute_90a,code=sm_90a", str(unit), "-o", str(library)]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stderr[-400:] if found.returncode else ctypes.CDLL(str(library))


def measure(case: dict[str, Any], libraries: dict[str, ctypes.CDLL | str], device: str) -> dict[str, Any]:
    import torch

    dtype = getattr(torch, HALVES.get(case["precision"], ("float32", ""))[0])
    total = dtype.itemsize * (sum(math.prod(shape) for shape in case["tensors"].values()) + 2 * math.prod(case["out"]))
    if total > MOST_BYTES:
        return {"error": f"{total / 2**30:.0f} GiB of tensors"}
    generator = torch.Generator(device).manual_seed(0)
    tensors = {name: torch.randn(shape, device=device, generator=generator, dtype=dtype) for name, shape in case["tensors"].items()}
    views = {name: tensors[v["base"]].as_strided(v["shape"], v["strides"], v["offset"]) for name, v in case["views"].items()}
    out = torch.empty_strided(case["out"], case["out_strides"], device=device, dtype=dtype)
    given = views | {name: weights_last(case, name, view, views) for name, view in views.items()}  # the library's inputs
    known = {"torch": torch, "device": device, **{name.replace("%", "v"): view for name, view in views.items()}}
    namespace, operator, overload = case["op"].split(".")
    call = getattr(getattr(getattr(torch.ops, namespace), operator), overload)

    def library(of: dict[str, torch.Tensor]) -> torch.Tensor:
        return call(*[filled(a, of) for a in case["args"]], **{k: filled(v, of) for k, v in case["kwargs"].items()})

    kernels, errors, found = {}, {}, {}
    exact, part = checked(case, views, library)
    for variant, built in libraries.items():
        if isinstance(built, str):
            errors[variant] = built
            continue
        packed = [eval(one["code"].format(*one["values"]).replace("%", "v"), known) for one in case["variants"][variant]["packed"]]
        scratch = torch.empty(max(case["variants"][variant]["scratch"], 4) // 4, device=device)
        pointers = [out if value == case["result"] else tensors[value] for value in case["arguments"]]
        pointers += packed + ([scratch] if case["variants"][variant]["scratch"] else [])
        values = [ctypes.c_void_p(t.data_ptr()) for t in pointers]

        def launch(built=built, values=values, keep=(scratch, pointers)) -> None:
            status = built.product(*values, ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream))
            if status:
                raise RuntimeError(f"CUDA error {status}")

        out.fill_(float("nan"))
        launch()
        torch.cuda.synchronize(device)
        kernels[variant] = launch
        found[variant] = {"error": distance(out[part], exact)}
    theirs = distance(library(given)[part], exact)
    sides = {name: replayed(call) for name, call in {"library": lambda: library(given), **kernels}.items()}
    flush = torch.empty(FLUSH, dtype=torch.uint8, device=device)
    samples: dict[str, list[float]] = {name: [] for name in sides}
    rng = random.Random(0)
    for turn in range(CALLS + 2):
        order = list(sides)
        rng.shuffle(order)
        for name in order:
            flush.fill_(turn)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            sides[name].replay()
            end.record()
            end.synchronize()
            if turn >= 2:
                samples[name].append(begin.elapsed_time(end))
    reference = statistics.median(samples["library"])
    for variant in kernels:
        ms = statistics.median(samples[variant])
        found[variant] |= {"ms": ms, "speedup": reference / ms, "tflops": case["flops"] / ms / 1e9}
    best = max(kernels, key=lambda v: found[v]["speedup"], default="")
    return {"library_ms": reference, "library_tflops": case["flops"] / reference / 1e9, "library_error": theirs, "best": best,
            "variants": found, "errors": errors, "samples": {k: samples[k] for k in ("library", "default", best) if k in samples}}  # fmt: skip


def weights_last(case: dict[str, Any], name: str, view: Any, views: dict[str, Any]) -> Any:
    """Returns the weights of a convolution in channels-last layout if its image has that layout, as the compiler's programs pass them to the
    library."""
    import torch

    image = views[case["reads"][0]]
    innermost = image.dim() == 4 and image.stride(1) == 1 and image.size(1) > 1
    weights = case["family"] == "half-conv" and len(case["reads"]) > 1 and name == case["reads"][1]
    return view.contiguous(memory_format=torch.channels_last) if weights and innermost else view


def replayed(call: Any) -> Any:
    """Returns the call as a CUDA graph, because for a small operator PyTorch's dispatch overhead on the host exceeds the kernel time."""
    import torch

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()
    graph.kept = kept  # type: ignore[attr-defined]
    return graph


def filled(value: Any, of: dict[str, Any]) -> Any:
    if isinstance(value, dict) and "ref" in value:
        return of[value["ref"]]
    return [filled(v, of) for v in value] if isinstance(value, list) else value


def checked(case: dict[str, Any], views: dict[str, Any], library: Any) -> tuple[Any, Any]:
    """Returns the fp64 result for the first rows, and which part of the result they make up."""
    first = case["reads"][0]
    matrices = case["family"] in ("matmul", "half-product")
    lines = views[first].shape[0] if matrices and views[first].dim() == 2 else 1
    lines = min(lines, CHECKED)
    of = {name: (view[:lines] if name == first else view).double() for name, view in views.items()}
    if matrices and views[first].dim() > 2:
        of = {name: (view[:1] if view.dim() == views[first].dim() else view).double() for name, view in views.items()}
    return library(of), slice(0, lines)


def distance(got: Any, exact: Any) -> float:
    """Returns the largest error relative to the value's size plus the root mean square of all values."""
    import torch

    size = exact.abs() + exact.square().mean().sqrt()
    found = ((got.double() - exact).abs() / size).max()
    return float(found) if torch.isfinite(found) else float("inf")


def line(case: dict[str, Any]) -> str:
    if "error" in case:
        return f"{case['tasks'][0]}: {case['error']}"
    best, default = case["variants"].get(case["best"], {}), case["variants"].get("default", {})
    parts = [
        f"{case['name'][0]} {case['tasks'][0]} (+{len(case['tasks']) - 1})",
        f"library {case['library_ms']:.3f} ms, {case['library_tflops']:.1f} TFLOP/s",
        f"default {default.get('speedup', 0):.2f}x",
        f"best ({case['best']}) {best.get('speedup', 0):.2f}x, {best.get('tflops', 0):.1f} TFLOP/s",
        f"error {default.get('error', 0):.1e}, library's {case['library_error']:.1e}",
    ]
    return "; ".join([*parts, *([f"{len(case['errors'])} not built"] if case["errors"] else [])])


def table(arguments: argparse.Namespace) -> int:
    parts = [json.loads(path.read_text()) for path in arguments.parts]
    cases = [case for part in parts for case in part["cases"]]
    arguments.out.write_text(json.dumps({**parts[0], "cases": cases}, separators=(",", ":")) + "\n")
    for case in sorted(cases, key=lambda case: -case["flops"]):
        print(line(case))
    ratios = [case["variants"][case["best"]]["speedup"] for case in cases if case.get("best")]
    print(f"{len(ratios)} of {len(cases)} cases; geometric mean of the best variant {math.exp(statistics.fmean(map(math.log, ratios))):.2f}x")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("prepare")
    one.add_argument("checkout", type=Path)
    one.add_argument("--level", type=int)
    one.add_argument("--most", type=int, default=200)
    one.add_argument("--workers", type=int, default=2)
    one.add_argument("--task-seconds", type=int, default=600, help="after which one task is left out")
    one.set_defaults(run=prepare)
    two = commands.add_parser("capture")
    two.add_argument("checkout", type=Path, metavar="TASK")
    two.set_defaults(run=capture_one)
    for command in (one, two):
        command.add_argument("--precision", default="fp32-strict", choices=("fp32-strict", *HALVES))
    three = commands.add_parser("run")
    three.add_argument("cases", type=Path)
    three.add_argument("--device", default="cuda:0")
    three.add_argument("--shard", default="0/1")
    three.add_argument("--limit-seconds", type=float, default=420)
    three.add_argument("--resume", action="store_true")
    three.add_argument("--numbers", default="", help="only these, comma-separated: tile, stages, promoted, split, ...")
    three.set_defaults(run=run)
    four = commands.add_parser("table")
    four.add_argument("parts", nargs="+", type=Path)
    four.set_defaults(run=table)
    for command in (one, two, three, four):
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
