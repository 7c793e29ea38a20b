"""Prepares the cases of products.py: the product families that KernelBench tasks need, with the generated source of every variant. Needs no GPU."""

# sandboxed: `prepare` imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PROMISING = 6  # number of tiles, each with its best split, that are measured for a 16-bit product
HALVES = {
    "bf16": ("bfloat16", "#include <cuda_bf16.h>\nusing bf16 = __nv_bfloat16;"),
    "fp16": ("float16", "#include <cuda_fp16.h>\nusing fp16 = __half;"),
}
COMMAND = Path(__file__).with_name("products.py")


def prepare(arguments: argparse.Namespace) -> int:
    """Prepares every task in a separate process, running several concurrently. Equal cases are stored once, with the names of all tasks that have
    them."""
    levels = [arguments.level] if arguments.level else [1, 2, 3]
    paths = sorted(path for level in levels for path in (arguments.checkout / "KernelBench" / f"level{level}").glob("*.py"))
    cases: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.workers) as pool:

        def one(path: Path) -> tuple[Path, list[dict[str, Any]]]:
            answer = Path(scratch) / f"{path.parent.name}-{path.stem}.json"
            command = [sys.executable, str(COMMAND), "capture", str(path), "--out", str(answer), "--precision", arguments.precision]
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

    from compiler import DeviceFigures, Options, families, make_plan
    from compiler.families.conv import half_conv
    from compiler.families.product import half_product
    from compiler.graph.network import Network

    gc.disable()  # as in coverage.py
    torch.set_num_threads(1)
    source, names = arguments.checkout.read_text(), {"__name__": "task"}
    code = compile(source, str(arguments.checkout), "exec")
    half = HALVES.get(arguments.precision, ("", ""))[0]
    half_product.worthwhile = half_conv.worthwhile = lambda *_: True  # measured regardless of the model's prediction

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
    """Returns the default variant, then variants that change one number at a time."""
    now = {name: value for name, (_, value) in knobs.items()}
    return [{}, *({name: value} for name, (values, _) in knobs.items() for value in values if value != now[name])]


def promising(product: Any, setting: Any) -> list[dict[str, int]]:
    """Returns the model's choice, the next tiles in its ranking with their best splits, and the choice with other stage counts."""
    from compiler.families.product import half_tile

    offered, chosen = half_tile.tiles(setting), half_tile.best(product, setting)
    every = [(at, split) for at in range(len(offered)) for split in half_tile.splits(product)]
    every.sort(key=lambda choice: half_tile.modelled_us(offered[choice[0]], choice[1], product, setting))
    best = dict(reversed(every))  # per tile
    others = sorted(best.items(), key=every.index)[:PROMISING]
    found = [{}, *({"tile": at, "split": split} for at, split in others if (at, split) != chosen)]
    return [*found, *({"stages": stages} for stages in (3, 4, 6) if stages != offered[chosen[0]].stages)]


def canonical(case: dict[str, Any]) -> dict[str, Any]:
    """Names values by their role, so that the same case in different tasks compares equal."""
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
