"""Measures recurrent layers, attention and branches at realistic shapes: the compiler's program against PyTorch's libraries, both as CUDA graphs.

    python bench/recurrent.py run --device cuda:0 --limit-seconds 420 --out bench/results/recurrent-h200.json [--only gru] [--again]
    python bench/recurrent.py table bench/results/recurrent-h200.json
    python bench/recurrent.py print gru --out gru.py                     (no GPU: the program of one case)

A case is a module with the shapes of a KernelBench task. It is captured, planned and turned into a program on the host, built with nvcc, and checked
against fp64 on the device. Then the program, one variant for each alternative value of its numbers, and the module itself are timed in turn in fp32
without TF32, with caches flushed before each call. A case runs in a separate process and is killed after its share of the time, so that a kernel that
never finishes affects only one case. The file is written after each case, and the next call resumes where the last one stopped.
"""

# sandboxed: runs only the modules below

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

CALLS = 20  # number of timed calls per side
FLUSH = 256 << 20  # number of bytes written between calls
CASE_SECONDS = 150
MOST_VARIANTS = 12
LSTM, GRU = "torch.rand(10, 512, 128), torch.rand({n}, 10, 256), torch.rand({n}, 10, 256)", "torch.rand(512, 10, 128), torch.rand({n}, 10, 256)"

HEADS = """B, T, C = x.shape
q, k, v = self.qkv(x).split(C, dim=2)
q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2) for part in (q, k, v))
scores = (q @ k.transpose(-2, -1)) * (C // self.heads) ** -0.5
scores = scores.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
return (WEIGHTS(scores) @ v).transpose(1, 2).contiguous().view(B, T, C)"""
GPT = "self.heads = {heads}\nself.qkv = nn.Linear(768, 2304)\nself.register_buffer('mask', torch.tril(torch.ones(1024, 1024)).view(1, 1, 1024, 1024))"
LOOP = """hidden, outputs = h, []
for step in range(x.shape[0]):
    hidden = torch.tanh(self.cell(torch.cat((x[step], hidden), dim=1)))
    outputs.append(self.out(hidden))
return torch.stack(outputs)"""
BRANCHES = """for a, b, c, d, e, f in self.blocks:
    x = torch.relu(torch.cat([a(x), c(b(x)), e(d(x)), f(F.max_pool2d(x, 3, 1, 1))], 1))
return x"""
BLOCKS = """self.blocks = nn.ModuleList(nn.ModuleList([
    nn.Conv2d(480, 160, 1), nn.Conv2d(480, 96, 1), nn.Conv2d(96, 192, 3, padding=1), nn.Conv2d(480, 24, 1), nn.Conv2d(24, 64, 5, padding=2),
    nn.Conv2d(480, 64, 1)]) for _ in range(6))"""

# name: (lines of the constructor, arguments of forward, inputs, body)
CASES: dict[str, tuple[str, str, str, str]] = {
    "gru": ("self.net = nn.GRU(128, 256, 6)", "x, h", GRU.format(n=6), "return self.net(x, h)[0]"),
    "lstm": ("self.net = nn.LSTM(128, 256, 6, batch_first=True)", "x, h, c", LSTM.format(n=6), "return self.net(x, (h, c))[0][:, -1]"),
    "lstm-both-directions": (
        "self.net = nn.LSTM(128, 256, 6, batch_first=True, bidirectional=True)", "x, h, c", LSTM.format(n=12),
        "return self.net(x, (h, c))[0][:, -1]",
    ),
    "gru-both-directions": ("self.net = nn.GRU(128, 256, 6, bidirectional=True)", "x, h", GRU.format(n=12), "return self.net(x, h)[0]"),
    "loop": ("self.cell = nn.Linear(1280, 256)\nself.out = nn.Linear(256, 128)", "x, h", "torch.rand(256, 8, 1024), torch.rand(8, 256)", LOOP),
    "attention-causal": (GPT.format(heads=8), "x", "torch.rand(128, 512, 768)", HEADS.replace("WEIGHTS(scores)", "scores.softmax(-1)")),
    "attention-relu": (GPT.format(heads=12), "x", "torch.rand(16, 1024, 768)", HEADS.replace("WEIGHTS(scores)", "torch.relu(scores)")),
    "attention-long": ("pass", "q, k, v", ", ".join(["torch.rand(2, 4, 16384, 32)"] * 3),
                       "return torch.softmax(q * 0.17677669 @ k.transpose(-1, -2), -1) @ v"),
    "attention-operator": ("pass", "q, k, v", ", ".join(["torch.rand(16, 12, 1024, 64)"] * 3),
                           "return F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    "branches": (BLOCKS, "x", "torch.rand(10, 480, 14, 14)", BRANCHES),
    "gru-last": ("self.net = nn.GRU(128, 256, 6)", "x, h", GRU.format(n=6), "return self.net(x, h)[1]"),
}  # fmt: skip


def source_of(name: str) -> str:
    init, arguments, inputs, body = CASES[name]

    def lines(text: str) -> str:
        return "\n".join(f"        {line}" for line in text.splitlines())

    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{lines(init)}\n\n    def forward(self, {arguments}):\n{lines(body)}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def programs(name: str, units: int | None = None) -> dict[str, str]:
    """Returns the case's program and its variants, which are generated on the host."""
    import torch

    from compiler import DeviceFigures, Options, make_plan, print_program
    from compiler.options import TRIED
    from compiler.planning.knobs import numbers
    from verifier.parties.capturing.capture import capture

    source = source_of(name)
    names: dict[str, Any] = {"__name__": "task"}
    exec(compile(source, "<task>", "exec"), names)
    torch.manual_seed(0)
    captured = capture(names["Model"](), names["get_inputs"](), source, "train")
    if captured.graph is None:
        raise RuntimeError(captured.reason)
    figures = DeviceFigures.h200()
    plan = make_plan(captured, source, figures.model_copy(update={"units": units or figures.units}))
    for group in plan.groups:
        print(f"  {group.title}: {group.family or group.space}; {group.reason}; {group.expected}", flush=True)
    found = {"default": print_program(plan, source, Options())}
    if "overlap-streams" in TRIED:
        found["overlap-streams"] = print_program(plan, source, Options().with_strategy("overlap-streams"))
    known = numbers(plan, source, Options())
    for number in known:
        for value in number.values:
            options = Options()
            for group in number.groups:
                options = options.with_knob(number.name.rpartition(".")[2], value, group)
            if value != number.value and len(found) < MOST_VARIANTS:
                found[f"{number.name}={value}"] = print_program(plan, source, options)
    return {key: text for at, (key, text) in enumerate(found.items()) if text not in list(found.values())[:at]}


# -- one case, in a separate process ----------------------------------------------------------------------------------------


def measure(name: str, device: str, deadline: float) -> dict[str, Any]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    torch.cuda.set_device(device)  # streams, events and graphs belong to the current device
    began = time.monotonic()
    texts = programs(name, torch.cuda.get_device_properties(device).multi_processor_count)
    names: dict[str, Any] = {"__name__": "task"}
    exec(compile(source_of(name), "<task>", "exec"), names)
    torch.manual_seed(0)
    model = names["Model"]().to(device)
    inputs = [value.to(device) for value in names["get_inputs"]()]
    exact = checked(model, inputs)
    model = model.float()
    eager = model(*inputs)
    found: dict[str, Any] = {"library_error": distance(eager, exact), "variants": {}, "errors": {}}
    sides: dict[str, Any] = {"eager": lambda: model(*inputs)}
    recorded(sides, "graph", model, inputs, found["errors"])
    for variant, text in texts.items():
        if time.monotonic() > deadline:
            found["errors"][variant] = "out of time"
            continue
        program_names: dict[str, Any] = {"__name__": "program"}
        try:
            exec(compile(text, f"<{name} {variant}>", "exec"), program_names)
            program = program_names["ModelNew"]().to(device)
            program.load_state_dict(model.state_dict())
            first, again = program(*inputs), program(*inputs)
            torch.cuda.synchronize(device)
        except Exception as error:
            found["errors"][variant] = f"{type(error).__name__}: {str(error)[-300:]}"
            continue
        found["variants"][variant] = {"error": distance(first, exact), "repeats": bool(torch.equal(first, again))}
        recorded(sides, variant, program, inputs, found["errors"])
        if variant == "default":
            sides["default, launched"] = lambda program=program: program(*inputs)
        print(f"  {variant}: error {found['variants'][variant]['error']:.1e}, library's {found['library_error']:.1e}", flush=True)
    found["prepared_seconds"] = round(time.monotonic() - began, 1)
    samples = timed(sides, device)
    found |= {"samples": {side: samples[side] for side in ("eager", "graph", "default", "default, launched") if side in samples}}
    found |= {"eager_ms": statistics.median(samples["eager"]), "graph_ms": statistics.median(samples["graph"]) if "graph" in samples else None}
    best = min(found["eager_ms"], found["graph_ms"] or math.inf)
    for variant, entry in found["variants"].items():
        if variant in samples:
            entry["ms"] = statistics.median(samples[variant])
            entry["speedup"] = best / entry["ms"]
    if "default, launched" in samples:
        found["launched_ms"] = statistics.median(samples["default, launched"])
    return found


def checked(model: Any, inputs: list[Any]) -> Any:
    """Computes the module in fp64. Recurrences take the whole input; modules with independent sequences take only the first ones, so that the
    computation fits in memory."""
    import torch

    wide = model.double()
    many = [value for value in inputs if value.dim() in (3, 4) and value.numel() > 1 << 22]
    few = [value[:2] if value.dim() == 3 else value[:1] for value in inputs] if many else inputs
    exact = wide(*[value.double() for value in few])
    torch.cuda.empty_cache()
    return exact


def recorded(sides: dict[str, Any], name: str, model: Any, inputs: list[Any], errors: dict[str, str]) -> None:
    """Records the launches of one call as a CUDA graph and adds it to the sides."""
    import torch

    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                model(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = model(*inputs)
        graph.replay()
        torch.cuda.synchronize()
    except Exception as error:
        errors[f"{name} as a graph"] = f"{type(error).__name__}: {str(error)[:300]}"
        return
    sides[name] = lambda: (graph.replay(), kept)


def timed(sides: dict[str, Any], device: str) -> dict[str, list[float]]:
    """Returns the milliseconds of each call, with sides in random order and caches flushed."""
    import torch

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
            sides[name]()
            end.record()
            end.synchronize()
            if turn >= 2:
                samples[name].append(begin.elapsed_time(end))
    return samples


def distance(got: Any, exact: Any) -> float:
    """Returns the largest error relative to the value's size plus the root mean square of all values."""
    import torch

    size = exact.abs() + exact.square().mean().sqrt()
    found = ((got[: len(exact)].double() - exact).abs() / size).max()
    return float(found) if torch.isfinite(found) else float("inf")


# -- the commands -----------------------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + arguments.limit_seconds
    done: dict[str, Any] = json.loads(arguments.out.read_text())["cases"] if arguments.out.exists() and not arguments.again else {}
    for name in CASES:
        left = deadline - time.monotonic()
        if arguments.only not in name or (name in done and "failed" not in done[name]):
            continue
        if left < 20:
            print(f"out of time before {name}", flush=True)
            break
        limit = min(left, CASE_SECONDS)
        with tempfile.TemporaryDirectory() as scratch:
            answer = Path(scratch) / "case.json"
            command = [sys.executable, __file__, "case", name, "--device", arguments.device, "--limit-seconds", str(limit - 15), "--out", str(answer)]
            print(f"{name}:", flush=True)
            try:
                code = subprocess.run(command, timeout=limit).returncode
                found = json.loads(answer.read_text()) if answer.exists() else {"failed": f"the process ended with {code}"}
            except subprocess.TimeoutExpired:
                found = {"failed": f"not done within {limit:.0f} s"}
        done[name] = found
        arguments.out.write_text(json.dumps({"calls": CALLS, "cases": done}, indent=1) + "\n")
        print(line(name, found), flush=True)
    return 0


def case(arguments: argparse.Namespace) -> int:
    import torch

    found = measure(arguments.name, arguments.device, time.monotonic() + arguments.limit_seconds)
    found |= {"device": torch.cuda.get_device_name(arguments.device), "torch": torch.__version__}
    arguments.out.write_text(json.dumps(found))
    return 0


def print_one(arguments: argparse.Namespace) -> int:
    arguments.out.write_text(programs(arguments.name)["default"])
    return 0


def line(name: str, found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"{name}: {found['failed']}"
    variants = {variant: entry for variant, entry in found["variants"].items() if "ms" in entry}
    best = max(variants, key=lambda variant: variants[variant]["speedup"], default="")
    own = [f"{variant} {variants[variant]['ms']:.3f} ms, {variants[variant]['speedup']:.2f}x" for variant in dict.fromkeys(["default", best])
           if variant in variants]  # fmt: skip
    graph = f"{found['graph_ms']:.3f} ms as a graph" if found["graph_ms"] else "no graph"
    worst = max((entry["error"] for entry in found["variants"].values()), default=math.nan)
    parts = [f"{name}: eager {found['eager_ms']:.3f} ms, {graph}", *own, f"error {worst:.1e}, library's {found['library_error']:.1e}"]
    return "; ".join([*parts, *(f"{variant}: {why}" for variant, why in found["errors"].items())])


def table(arguments: argparse.Namespace) -> int:
    for name, found in json.loads(arguments.file.read_text())["cases"].items():
        print(line(name, found))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("--only", default="", help="cases whose name holds this")
    one.add_argument("--again", action="store_true", help="also what the file has already")
    one.set_defaults(run=run)
    two = commands.add_parser("case")
    two.add_argument("name", choices=CASES)
    two.set_defaults(run=case)
    three = commands.add_parser("print")
    three.add_argument("name", choices=CASES)
    three.add_argument("--out", type=Path, required=True)
    three.set_defaults(run=print_one)
    four = commands.add_parser("table")
    four.add_argument("file", type=Path)
    four.set_defaults(run=table)
    for command in (one, two):
        command.add_argument("--device", default="cuda:0")
        command.add_argument("--limit-seconds", type=float, default=420)
        command.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
