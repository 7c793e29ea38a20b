"""Measures the margins of the error bound, for correct fp32 programs and for less precise ones, on ten kinds of tasks. Runs on the CPU.

    python bench/error_bounds.py [--json FILE]

Every program is judged as the verifier judges it, over the task's own inputs and redrawn ones: against the error of eager or that of plain
arithmetic, whichever is larger. The margin of a row is error / bound, taken as the maximum over the distributions; a margin of at most 1 passes.
Reduced precision is emulated bit by bit: TF32 operands by rounding to 11 bits, tensor-core accumulation by truncation to 24 bits after every 8
products (`cat3`: three TF32 products).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from verifier.correctness.bounds import DRAWS, SMALL, SMALL_DRAWS, bound, deviation, distance  # noqa: E402
from verifier.correctness.inputs import DISTRIBUTIONS, reshape_distribution  # noqa: E402
from verifier.parties.oracle import Rough, Wide, default_double  # noqa: E402

Tensors = tuple[torch.Tensor, ...]
Function = Callable[..., torch.Tensor]


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounds to nearest with 11 significant bits."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def truncated(x: torch.Tensor) -> torch.Tensor:
    """Rounds fp64 to fp32 towards zero, as a tensor core's adder does."""
    near = x.float()
    over = near.double().abs() > x.abs()
    return torch.where(over, torch.nextafter(near, torch.zeros_like(near)), near)


def tensor_core(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], 8):
        acc = truncated(acc.double() + a[:, k : k + 8].double() @ b[k : k + 8].double())
    return acc


def cat3(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Splits operands into a TF32 part and a remainder, and computes one product over the concatenation."""
    ah, bh = tf32(a), tf32(b)
    al, bl = tf32(a - ah), tf32(b - bh)
    return tensor_core(torch.cat([ah, al, ah], 1), torch.cat([bh, bh, bl], 0))


def sequential_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        acc += a[:, k : k + 1] * b[k : k + 1]
    return acc


def split_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return sum(sequential_mm(x, y) for x, y in zip(a.chunk(8, 1), b.chunk(8, 0), strict=True))


def kahan_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    acc, lost = torch.zeros(a.shape[0], b.shape[1]), torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        term = a[:, k : k + 1] * b[k : k + 1] - lost
        total = acc + term
        lost = (total - acc) - term
        acc = total
    return acc


def blocked_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], 32):
        acc += sequential_mm(a[:, k : k + 32], b[k : k + 32])
    return acc


def half_mm(dtype: torch.dtype) -> Function:
    return lambda a, b: a.to(dtype).float() @ b.to(dtype).float()


def half_accumulated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16)
    for k in range(a.shape[1]):
        acc += (a[:, k : k + 1].half() * b[k : k + 1].half()).half()
    return acc.float()


def sequential_sum(x: torch.Tensor) -> torch.Tensor:
    """Sums sequentially over the last dimension."""
    acc = torch.zeros(x.shape[:-1])
    for k in range(x.shape[-1]):
        acc = acc + x[..., k]
    return acc


def pairwise_sum(x: torch.Tensor) -> torch.Tensor:
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = F.pad(x, (0, 1))
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def kahan_sum(x: torch.Tensor) -> torch.Tensor:
    acc, lost = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for k in range(x.shape[-1]):
        term = x[..., k] - lost
        total = acc + term
        lost = (total - acc) - term
        acc = total
    return acc


def warp_sum(x: torch.Tensor) -> torch.Tensor:
    """Sums sequentially in each of 32 lanes, then combines the lanes in a tree."""
    return pairwise_sum(sequential_sum(x.unflatten(-1, (-1, 32)).transpose(-1, -2)))


def half_sum(x: torch.Tensor) -> torch.Tensor:
    acc = torch.zeros(x.shape[:-1], dtype=torch.float16)
    for k in range(x.shape[-1]):
        acc = acc + x[..., k].half()
    return acc.float()


def bf16(f: Function) -> Function:
    return lambda *xs: f(*(x.bfloat16().float() for x in xs))


def fp16(f: Function) -> Function:
    return lambda *xs: f(*(x.half().float() for x in xs))


def fast_rsqrt(x: torch.Tensor) -> torch.Tensor:
    """Computes 1/sqrt(x) using the integer trick with one Newton step; its relative error is 1.8e-3."""
    y = (0x5F3759DF - (x.contiguous().view(torch.int32) >> 1)).view(torch.float32)
    return y * (1.5 - 0.5 * x * y * y)


def fast_rsqrt2(x: torch.Tensor) -> torch.Tensor:
    """Computes 1/sqrt(x) using the integer trick with two Newton steps; its relative error is 4.7e-6."""
    y = fast_rsqrt(x)
    return y * (1.5 - 0.5 * x * y * y)


def fast_exp(x: torch.Tensor) -> torch.Tensor:
    """Computes exp(x) with a cubic polynomial in the fraction of its base-2 exponent; its relative error is 1e-4."""
    t = (x * 1.4426950408889634).clamp(-126, 126)
    whole = t.floor()
    f = t - whole
    return torch.ldexp(1 + f * (0.6951786 + f * (0.2276610 + f * 0.0781390)), whole.to(torch.int32))


def ex2_approx(x: torch.Tensor) -> torch.Tensor:
    """Computes exp(x) as `__expf` does: the argument is scaled in fp32, and the result is accurate to 2 ulp."""
    return torch.exp2((x * 1.4426950408889634).float())


def tanh_approx(x: torch.Tensor) -> torch.Tensor:
    """Computes tanh as tanh.approx.f32 does, accurate to 11 bits."""
    return tf32(torch.tanh(x))


def softmax(exp: Function, add: Function) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        e = exp(x - x.amax(-1, keepdim=True))
        return e / add(e)[..., None]

    return run


def layer_norm(add: Function, rsqrt: Function, one_pass: bool = False) -> Function:
    def run(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[-1]
        mean = add(x)[..., None] / n
        var = (add(x * x)[..., None] / n - mean * mean) if one_pass else add((x - mean) ** 2)[..., None] / n
        return (x - mean) * rsqrt(var + 1e-5)

    return run


def rms_norm(add: Function, rsqrt: Function) -> Function:
    return lambda x: x * rsqrt(add(x * x)[..., None] / x.shape[-1] + 1e-6)


def attention(mm: Function, exp: Function, add: Function) -> Function:
    return lambda q, k, v: mm(softmax(exp, add)(mm(q, k.T.contiguous()) / math.sqrt(q.shape[-1])), v)


def conv(mm: Function) -> Function:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        columns = F.unfold(x, w.shape[-2:])
        out = mm(w.flatten(1), columns.permute(1, 0, 2).reshape(columns.shape[1], -1))
        size = x.shape[-1] - w.shape[-1] + 1
        return out.reshape(w.shape[0], x.shape[0], size, size).permute(1, 0, 2, 3).contiguous()

    return run


def gelu(tanh: Function) -> Function:
    return lambda x: 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def reduced_mm() -> dict[str, Function]:
    return {
        "tf32 operands": lambda a, b: tf32(a) @ tf32(b),
        "tf32 tensor core": lambda a, b: tensor_core(tf32(a), tf32(b)),
        "cat3": cat3,
        "bf16 operands": half_mm(torch.bfloat16),
        "fp16 operands": half_mm(torch.float16),
        "fp16 accumulation": half_accumulated,
    }


def right_mm() -> dict[str, Function]:
    return {"sequential": sequential_mm, "blocked": blocked_mm, "split-K": split_mm, "Kahan": kahan_mm}


def tasks() -> dict[str, tuple[Function, Callable[[], Tensors], dict[str, Function], dict[str, Function]]]:
    """Returns tasks by name: the task, its inputs, correct programs, and programs with reduced precision."""
    r, n = torch.rand, torch.randn
    root, rsqrt, exp = torch.Tensor.sum, torch.rsqrt, torch.exp
    whole = lambda x: root(x, -1)  # noqa: E731
    sums = {"sequential": sequential_sum, "pairwise": pairwise_sum, "Kahan": kahan_sum, "32 lanes": warp_sum}
    return {
        "matmul 2048": (lambda a, b: a @ b, lambda: (r(64, 2048), n(2048, 64)), right_mm(), reduced_mm()),
        "matmul of positive numbers 4096": (lambda a, b: a @ b, lambda: (r(64, 4096), r(4096, 64)), right_mm(), reduced_mm()),
        "convolution 64 x 3 x 3": (
            lambda x, w: F.conv2d(x, w),
            lambda: (n(2, 64, 18, 18), n(32, 64, 3, 3) / 24),
            {k: conv(v) for k, v in right_mm().items()},
            {k: conv(v) for k, v in reduced_mm().items()},
        ),
        "sum 8192": (
            lambda x: x.sum(-1),
            lambda: (r(128, 8192),),
            sums,
            {"fp16 operands": fp16(whole), "bf16 operands": bf16(whole), "fp16 accumulation": half_sum},
        ),
        "softmax 1024": (
            lambda x: torch.softmax(x, -1),
            lambda: (n(128, 1024),),
            {k: softmax(exp, v) for k, v in sums.items()} | {"ex2.approx": softmax(ex2_approx, warp_sum)},
            {"cubic exp": softmax(fast_exp, whole), "fp16 operands": fp16(softmax(exp, whole)), "bf16 operands": bf16(softmax(exp, whole))},
        ),
        "layer norm 2048": (
            lambda x: F.layer_norm(x, x.shape[-1:]),
            lambda: (r(64, 2048),),
            {k: layer_norm(v, rsqrt) for k, v in sums.items()} | {"one pass": layer_norm(warp_sum, rsqrt, one_pass=True)},
            {
                "rsqrt, 1 step": layer_norm(whole, fast_rsqrt),
                "rsqrt, 2 steps": layer_norm(whole, fast_rsqrt2),
                "bf16 operands": bf16(layer_norm(whole, rsqrt)),
                "fp16 operands": fp16(layer_norm(whole, rsqrt)),
            },
        ),
        "rms norm 2048": (
            lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
            lambda: (n(64, 2048),),
            {k: rms_norm(v, rsqrt) for k, v in sums.items()},
            {
                "rsqrt, 1 step": rms_norm(whole, fast_rsqrt),
                "rsqrt, 2 steps": rms_norm(whole, fast_rsqrt2),
                "fp16 operands": fp16(rms_norm(whole, rsqrt)),
            },
        ),
        "attention 512 x 64": (
            lambda q, k, v: torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1) @ v,
            lambda: (n(128, 64), n(512, 64), n(512, 64)),
            {k: attention(v, exp, warp_sum) for k, v in right_mm().items()} | {"ex2.approx": attention(blocked_mm, ex2_approx, warp_sum)},
            {k: attention(v, exp, whole) for k, v in reduced_mm().items()},
        ),
        "gelu": (
            lambda x: F.gelu(x, approximate="tanh"),
            lambda: (n(512, 1024),),
            {"written out": gelu(torch.tanh)},
            {"tanh.approx": gelu(tanh_approx), "fp16 operands": fp16(gelu(torch.tanh)), "bf16 operands": bf16(gelu(torch.tanh))},
        ),
        "mean squared error": (
            lambda a, b: F.mse_loss(a, b),
            lambda: (r(64, 2048), r(64, 2048)),
            {k: lambda a, b, v=v: v(v((a - b) ** 2)) / a.numel() for k, v in {"32 lanes": warp_sum, "sequential": sequential_sum}.items()},
            {
                "bf16 operands": bf16(lambda a, b: F.mse_loss(a, b)),
                "fp16 accumulation": lambda a, b: half_sum(half_sum((a - b) ** 2) / 2048) / 64,
            },
        ),
        "three layers": (
            lambda x, a, b: torch.relu(torch.relu(x @ a) @ b).sum(-1),
            lambda: (r(128, 1024), n(1024, 512) / 32, n(512, 256) / 23),
            {k: lambda x, a, b, v=v: warp_sum(torch.relu(v(torch.relu(v(x, a)), b))) for k, v in right_mm().items()},
            {k: lambda x, a, b, v=v: torch.relu(v(torch.relu(v(x, a)), b)).sum(-1) for k, v in reduced_mm().items()},
        ),
    }


def rough_errors(task: Function, inputs: Tensors, exact: torch.Tensor) -> list[float]:
    found = []
    for seed in range(SMALL_DRAWS if exact.numel() < SMALL else DRAWS):
        with torch.no_grad(), default_double(), Rough(seed, torch.float32):
            found.append(deviation(task(*(x.double() for x in inputs)), exact)[0])
    return found


def margins(name: str) -> list[dict]:
    task, make, right, reduced = tasks()[name]
    torch.manual_seed(0)
    own = make()
    rows: dict[tuple[str, str], dict] = {}
    for distribution in ("own", *DISTRIBUTIONS):
        inputs = tuple(x.clone() for x in own)
        if distribution != "own":
            generator = torch.Generator().manual_seed(1)
            for x in inputs:
                reshape_distribution(distribution, x, generator)
        with torch.no_grad(), default_double(), Wide():
            exact = task(*(x.double() for x in inputs))
        eager_error = deviation(task(*inputs), exact)[0]
        cheap = bound(eager_error, [], torch.float32)
        plain = rough_errors(task, inputs, exact)
        full = bound(eager_error, plain, torch.float32)
        for kind, programs in (("right", right), ("reduced", reduced)):
            for label, program in programs.items():
                output = program(*inputs)
                error = distance(output, exact) if bool(output.isfinite().all()) else math.inf
                row = rows.setdefault((kind, label), {"task": name, "kind": kind, "program": label, "margin": 0.0, "by": {}})
                row["by"][distribution] = {"error": error, "eager": eager_error, "plain": plain, "bound": cheap if error <= cheap else full}
                row["margin"] = max(row["margin"], error / full)
    return list(rows.values())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--only", help="part of a task's name")
    options = arguments.parse_args()
    torch.set_num_threads(2)
    rows: list[dict] = []
    for name in tasks():
        if options.only and options.only not in name:
            continue
        found = margins(name)
        rows += found
        for kind in ("right", "reduced"):
            print(f"{name:32} {kind:8}", "  ".join(f"{row['program']} {row['margin']:.2g}" for row in found if row["kind"] == kind), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows))
    right = max(row["margin"] for row in rows if row["kind"] == "right")
    reduced = min(row["margin"] for row in rows if row["kind"] == "reduced")
    print(f"right programs: at most {right:.2f} of the bound; reduced ones: at least {reduced:.2f} times the bound")


if __name__ == "__main__":
    main()
