"""The compiler's own products, convolutions and pools, alone and tile by tile, against the library's operator on the same tensors.

    python bench/products.py prepare CHECKOUT --out CASES.json [--level 1] [--most 200] [--precision bf16]    (no GPU: captures, prints every variant)
    python bench/products.py run CASES.json --device cuda:0 --shard 1/4 --limit-seconds 420 --out PART.json [--resume]
    python bench/products.py table PART.json ... --out bench/results/products-h200.json

What a KernelBench task asks of a family is one case, equal ones once. Each variant (a tile, stages, a split) is timed in turn with the library's
operator under fp32 without TF32, both as CUDA graphs, caches flushed before each call; its error and the library's are taken against fp64 on a part
of the result. Under bf16 and fp16 the cases are those of the 16 bit families, also where the model would leave them to the library; images have their
channels innermost for both sides, as under the strategy channels-last; the variants are the tiles and splits that the model puts first.
"""

# sandboxed: `prepare` imports tasks; run it where KernelBench itself may run

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

CALLS = 12  # timed, of each side
FLUSH = 256 << 20  # bytes written between calls
MOST_BYTES = 24 << 30  # of a case's tensors
CHECKED = 128  # lines of the result that are compared in fp64
PROMISING = 6  # tiles, each with its best split, that are measured of a 16 bit product
HALVES = {
    "bf16": ("bfloat16", "#include <cuda_bf16.h>\nusing bf16 = __nv_bfloat16;"),
    "fp16": ("float16", "#include <cuda_fp16.h>\nusing fp16 = __half;"),
}


# -- prepare ----------------------------------------------------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> int:
    """Every task in a process of its own, several at once; equal cases are kept once, with the tasks that have them."""
    levels = [arguments.level] if arguments.level else [1, 2, 3]
    paths = sorted(path for level in levels for path in (arguments.checkout / "KernelBench" / f"level{level}").glob("*.py"))
    cases: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.workers) as pool:

        def one(path: Path) -> tuple[Path, list[dict[str, Any]]]:
            answer = Path(scratch) / f"{path.parent.name}-{path.stem}.json"
            command = [sys.executable, __file__, "capture", str(path), "--out", str(answer), "--precision", arguments.precision]
            subprocess.run(["timeout", str(arguments.task_seconds), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return path, json.loads(answer.read_text()) if answer.exists() else []

        for path, found in pool.map(one, paths):
            for case in found:
                key = json.dumps({k: v for k, v in case.items() if k != "variants"}, sort_keys=True)
                cases.setdefault(key, {**case, "tasks": []})["tasks"].append(f"{path.parent.name}/{path.stem}")
            print(f"{path.parent.name}/{path.stem}: {len(found)} kernels, {len(cases)} distinct", flush=True)
    kept = sorted(cases.values(), key=lambda case: -case["flops"] * len(case["tasks"]))[: arguments.most]
    arguments.out.write_text(json.dumps(kept))
    print(f"{len(kept)} cases, {sum(len(case['variants']) for case in kept)} variants, {arguments.out.stat().st_size / 1e6:.1f} MB")
    return 0


def capture_one(arguments: argparse.Namespace) -> int:
    import gc

    import torch
    from coverage import REAL, DataDependentOutputException, FakeTensorMode, capture, cast, known_bytes, narrow

    from agents.compiler import DeviceFigures, Options, families, make_plan
    from agents.compiler.families import half_conv, half_product
    from agents.compiler.network import Network

    gc.disable()  # as in coverage.py
    torch.set_num_threads(1)
    source, names = arguments.checkout.read_text(), {"__name__": "task"}
    code = compile(source, str(arguments.checkout), "exec")
    half = HALVES.get(arguments.precision, ("", ""))[0]
    half_product.worthwhile = half_conv.worthwhile = lambda *_: True  # measured, whatever the model says

    def exported():
        exec(code, names)
        model, inputs = names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
        if half:
            narrow(model, getattr(torch, half))
            inputs = [cast(value, getattr(torch, half)) for value in inputs]
        return capture(model, inputs, source, "train")

    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            captured = exported()
        refused = "FakeTensorMode" in captured.reason
    except DataDependentOutputException:  # the constructor reads values
        refused = True
    if refused and known_bytes(arguments.checkout) < REAL:
        captured = exported()
    if captured.graph is None:
        return 1
    plan = make_plan(captured, source, DeviceFigures.h200(), arguments.precision)
    network, found = Network(captured.graph, images_last=bool(half)), []
    for node in network.nodes.values():
        match, _ = families.find(network, node, plan.setting)
        if match is None or (half and not match.family.startswith("half-")):
            continue
        family = families.by_name(match.family)
        work = families.make_work(network, match, list(match.members), plan.setting)
        knobs = family.knobs(work)
        variants, shared = {}, []
        for values in promising(work.detail.product, plan.setting) if half else variants_of(knobs):
            own = families.make_work(network, match, list(match.members), plan.setting, Options(knobs=values))
            try:
                printed = family.print_cuda(own)
            except families.Refused:
                continue
            shared += [text for text in printed.shared if text not in shared]
            variants[" ".join(f"{k}={v}" for k, v in values.items()) or "default"] = {
                "source": printed.source, "scratch": printed.scratch, "comment": printed.comment,
                "shared": [shared.index(text) for text in printed.shared],
                "packed": [{"values": packed.values, "code": packed.code} for packed in printed.packed],
            }  # fmt: skip
        bases = {network.base(value) for value in match.reads}
        found.append(
            {
                "family": match.family, "op": node.op, "args": node.args, "kwargs": node.kwargs, "flops": family.cost(work).flops,
                "floor_ms": family.cost(work).floor_ms, "shared": shared, "result": match.value, "reads": list(match.reads),
                "arguments": [argument.value for argument in printed.arguments],
                "tensors": {base: list(network.spec(base).shape) for base in sorted(bases)}, "out": list(network.spec(match.value).shape),
                "views": {value: vars(network.layouts[value]) for value in match.reads}, "variants": variants, "precision": arguments.precision,
                "out_strides": list(network.layouts[match.value].strides),
            }
        )  # fmt: skip
    named = [canonical(case) for case in found]
    arguments.out.write_text(json.dumps(named))
    return 0


def variants_of(knobs: dict[str, tuple[tuple[int, ...], int]]) -> list[dict[str, int]]:
    """As it is, then each number by itself at its other values."""
    now = {name: value for name, (_, value) in knobs.items()}
    return [{}, *({name: value} for name, (values, _) in knobs.items() for value in values if value != now[name])]


def promising(product: Any, setting: Any) -> list[dict[str, int]]:
    """The model's choice, the tiles that it puts next with their best splits, and that choice with other stages."""
    from agents.compiler.families import half_tile

    offered, chosen = half_tile.tiles(setting), half_tile.best(product, setting)
    every = [(at, split) for at in range(len(offered)) for split in half_tile.splits(product)]
    every.sort(key=lambda choice: half_tile.modelled_us(offered[choice[0]], choice[1], product, setting))
    best = dict(reversed(every))  # of each tile
    others = sorted(best.items(), key=every.index)[:PROMISING]
    found = [{}, *({"tile": at, "split": split} for at, split in others if (at, split) != chosen)]
    return [*found, *({"stages": stages} for stages in (3, 4, 6) if stages != offered[chosen[0]].stages)]


def canonical(case: dict[str, Any]) -> dict[str, Any]:
    """Values named by their role, so that equal cases of different tasks are equal."""
    names = {name: f"%{at}" for at, name in enumerate(dict.fromkeys([*case["tensors"], *case["reads"], case["result"]]))}

    def renamed(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"ref"}:
            return {"ref": names[value["ref"]]}
        return [renamed(v) for v in value] if isinstance(value, list) else value

    views = {names[name]: {**view, "base": names[view["base"]]} for name, view in case["views"].items()}

    def repacked(packed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**one, "values": [names[value] for value in one["values"]]} for one in packed]

    variants = {name: {**one, "packed": repacked(one["packed"])} for name, one in case["variants"].items()}
    return {
        **case, "args": renamed(case["args"]), "result": names[case["result"]], "reads": [names[name] for name in case["reads"]], "views": views,
        "arguments": [names[value] for value in case["arguments"]], "tensors": {names[n]: shape for n, shape in case["tensors"].items()},
        "variants": variants,
    }  # fmt: skip


# -- run --------------------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    import torch

    torch.cuda.set_device(arguments.device)  # what the compiled libraries launch goes to the current one
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
            except Exception as error:  # the next case may go well
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
    """The library, or what nvcc says."""
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
    given = views | {name: weights_last(case, name, view, views) for name, view in views.items()}  # what the library reads
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
    """The weights of a convolution whose image has its channels innermost: lying likewise, as the compiler's programs give them to the library."""
    import torch

    image = views[case["reads"][0]]
    innermost = image.dim() == 4 and image.stride(1) == 1 and image.size(1) > 1
    weights = case["family"] == "half-conv" and len(case["reads"]) > 1 and name == case["reads"][1]
    return view.contiguous(memory_format=torch.channels_last) if weights and innermost else view


def replayed(call: Any) -> Any:
    """The call as a CUDA graph: of a small operator PyTorch's own dispatch on the host takes longer than its kernel."""
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
    """fp64's result for the first lines, and which part of the result they are."""
    first = case["reads"][0]
    matrices = case["family"] in ("matmul", "half-product")
    lines = views[first].shape[0] if matrices and views[first].dim() == 2 else 1
    lines = min(lines, CHECKED)
    of = {name: (view[:lines] if name == first else view).double() for name, view in views.items()}
    if matrices and views[first].dim() > 2:
        of = {name: (view[:1] if view.dim() == views[first].dim() else view).double() for name, view in views.items()}
    return library(of), slice(0, lines)


def distance(got: Any, exact: Any) -> float:
    """The largest error over the value's size plus the root mean square of all."""
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
