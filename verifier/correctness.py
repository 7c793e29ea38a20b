"""Is an output right? A bound that follows PyTorch's own error against fp64, input distributions, and random weights.

The norm is ``max |a-b| / (|b| + rms(b))``: relative for large elements, and relative to the tensor's size for small ones, so that neither an
absolute tolerance lets tiny outputs pass nor a cancelled element fails a sound program. The bound is
``max(K * error of PyTorch at the same policy, W * effect of rounding inputs and weights, ULPS * epsilon)``: a reordered sum, a vectorised exp
and a one-pass softmax pass; TF32, fp16 or bf16 arithmetic under fp32 is off by one to three orders of magnitude and does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verifier.layout import Spec

K = 6.0
W = 4.0
ULPS = 64.0
NO_ORACLE = 256.0  # ulp, where fp64 cannot judge (random numbers, a task that does not run in fp64) and eager itself is compared with
NORM = f"max |a-b| / (|b| + rms(b)); bound max({K:g} x PyTorch's error, {W:g} x rounding of the inputs, {ULPS:g} ulp)"
CHUNK = 1 << 18  # elements that are widened to fp64 at a time: they stay in the cache
GPU_CHUNK = 1 << 26  # on a GPU: few enough launches, and 0.5 GiB each instead of twice a tensor of any size
SMALL = 4096  # outputs with fewer elements can be right by luck in eager, so there the effect of rounding is measured as well
DISTRIBUTIONS = ("negative", "heavy-tailed", "tiny", "large")


@dataclass
class Judgement:
    """Of one tensor. `error` is null where shape, dtype or finiteness already differ."""

    ok: bool
    error: float | None = None
    bound: float | None = None
    detail: str = ""


def epsilon(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if dtype.is_floating_point else torch.finfo(torch.float32).eps


def real(tensor: torch.Tensor) -> torch.Tensor:
    """fp64, with a complex number as two."""
    return torch.view_as_real(tensor.to(torch.complex128)) if tensor.is_complex() else tensor.double()


def chunk(tensor: torch.Tensor) -> int:
    return GPU_CHUNK if tensor.is_cuda else CHUNK


def root_mean_square(tensor: torch.Tensor) -> float:
    flat, step = _flat(tensor), chunk(tensor)
    total = sum(float(flat[begin : begin + step].double().square_().sum()) for begin in range(0, flat.numel(), step))
    return math.sqrt(total / flat.numel())


def distance(value: torch.Tensor, expected: torch.Tensor) -> float:
    """The norm, over the elements where `expected` is finite; infinite where the finite masks differ."""
    a, b = _flat(value), _flat(expected)
    total, count, step = 0.0, 0, chunk(b)
    for begin in range(0, b.numel(), step):
        part = b[begin : begin + step].double()
        finite = part.isfinite()
        if not torch.equal(finite, a[begin : begin + step].isfinite()):
            return math.inf
        part = part[finite]
        total += float(part.square().sum())
        count += part.numel()
    rms = math.sqrt(total / count) if count else 0.0
    worst = 0.0
    for begin in range(0, b.numel(), step):
        x, y = a[begin : begin + step].double(), b[begin : begin + step].double()
        relative = (x - y).abs_().div_((y.abs() + rms).clamp_min_(1e-300))
        worst = max(worst, float(relative.nan_to_num_(0.0, 0.0, 0.0).max()) if relative.numel() else 0.0)
    return worst


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).flatten()


def bound(reference_error: float, wiggle_error: float, dtype: torch.dtype) -> float:
    finite = [error for error in (K * reference_error, W * wiggle_error) if math.isfinite(error)]
    return max(*finite, ULPS * epsilon(dtype)) if finite else ULPS * epsilon(dtype)


def judge(value: torch.Tensor, expected: torch.Tensor, limit: float) -> Judgement:
    """`value` of the program against `expected` (fp64 where floating). Non-floating tensors must be equal."""
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        if torch.equal(value, expected.to(value.dtype)):
            return Judgement(True, 0.0, 0.0)
        index = _first((value != expected).flatten(), tuple(value.shape))
        return Judgement(False, None, None, f"at {list(index)}: {value[index].item()} instead of {expected[index].item()}")
    masks = _mask_difference(value, expected)
    if masks:
        return Judgement(False, None, limit, masks)
    error = distance(value, expected)
    if error <= limit:
        return Judgement(True, error, limit)
    a, b = real(value), real(expected)
    rms = b[b.isfinite()].square().mean().sqrt()
    relative = torch.where(b.isfinite(), (a - b).abs() / (b.abs() + rms).clamp_min(1e-300), 0)
    wrong = relative > limit
    index = _first(wrong.flatten(), tuple(b.shape))
    share = float(wrong.double().mean())
    return Judgement(
        False, error, limit, f"{share:.1%} of the elements are off; first at {list(index)}: {a[index].item():.9g} instead of {b[index].item():.9g}"
    )


def _mask_difference(value: torch.Tensor, expected: torch.Tensor) -> str:
    """Non-finite elements must be the same ones of the same kind: NaN is never a wildcard."""
    if bool(value.isfinite().all()) and bool(expected.isfinite().all()):
        return ""
    a, b = real(value), real(expected)
    both = a.isfinite() == b.isfinite()
    nonfinite = ~b.isfinite()
    same = both & (~nonfinite | (a.isnan() & b.isnan()) | (a == b))
    if bool(same.all()):
        return ""
    index = _first((~same).flatten(), tuple(a.shape))
    return f"at {list(index)}: {a[index].item()} instead of {b[index].item()}"


def _first(mask: torch.Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    flat = int(mask.to(torch.uint8).argmax())
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))


def same_form(value: Spec, expected: Spec, name: str) -> str:
    """Empty, or how shape or dtype differ. Strides may: no caller of the task can tell."""
    if value.shape != expected.shape:
        return f"{name} has shape {list(value.shape)} instead of {list(expected.shape)}"
    if value.dtype != expected.dtype:
        return f"{name} has dtype {value.dtype} instead of {expected.dtype}"
    return ""


def reshape_distribution(name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Turns a floating input, in place, into one of the same shape from another distribution."""
    if name == "negative":
        tensor.abs_().neg_()
        return
    if name == "tiny":
        tensor.mul_(1e-4)
        return
    scale = _scale(tensor)
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32, device=generator.device).to(tensor.device)
    if name == "heavy-tailed":
        noise.mul_(noise.abs().clamp_max_(4.0).mul_(0.75).exp_())
        tensor.copy_(noise.mul_(scale))
    elif name == "large":
        tensor.copy_(noise.mul_(64 * scale))


def _scale(tensor: torch.Tensor) -> float:
    """Root mean square of the task's own input, so that units stay what they are."""
    scale = root_mean_square(tensor) if tensor.numel() else 1.0
    return scale if math.isfinite(scale) and scale > 0 else 1.0


def randomise_state(name: str, tensor: torch.Tensor, parameter: bool, generator: torch.Generator) -> bool:
    """Gives a floating parameter, or a norm's running statistic, other values of its own size, in place. Other buffers (masks, tables, counters)
    stay as the task makes them. Returns whether it changed."""
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    uniform = torch.rand(tensor.shape, generator=generator, dtype=torch.float32, device=generator.device).to(tensor.device)
    if name.endswith("running_var"):
        tensor.copy_((0.5 + uniform).to(tensor.dtype))
    elif name.endswith("running_mean"):
        tensor.copy_((uniform - 0.5).to(tensor.dtype))
    elif parameter:
        rms = root_mean_square(tensor)
        if not math.isfinite(rms):
            return False
        tensor.copy_((tensor.float() * (0.5 + uniform) + 0.2 * (rms or 0.5) * (uniform - 0.5)).to(tensor.dtype))
    else:
        return False
    return True
