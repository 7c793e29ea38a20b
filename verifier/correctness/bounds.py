"""Decides whether an output is correct. The bound is derived from the errors of PyTorch and of plain arithmetic, both measured against fp64.

The norm is ``max |a-b| / (|b| + rms(b))``: relative for large elements, and relative to the tensor's magnitude for small ones. As a result, tiny
outputs do not pass just because they fall below an absolute tolerance, and a sound program does not fail because an element cancels out.

The bound is ``max(K * error of PyTorch under the same policy, W * error of plain arithmetic, ULPS * epsilon)``. The error of plain arithmetic is the
effect of the policy's format on this task with these inputs if every operator rounds once and adds up terms one by one
(`verifier.parties.oracle.Rough`). It is measured only if the rest of the bound is exceeded. Therefore, a reordered or naive sum passes, but TF32,
fp16 or bf16 arithmetic does not pass as fp32; `bench/error_bounds.py` shows the margins.

Integer, boolean and float8 outputs must be equal, except for as many elements as rounding changes in PyTorch itself (for example, in an argmax
over equal values).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verifier import float8
from verifier.float8 import continuous, steps, wide
from verifier.layout import Spec
from verifier.passes import native
from verifier.task import Precision

K = {"fp32-strict": 4.0, "tf32": 3.0, "bf16": 3.0, "fp16": 3.0}  # below fp32, the rounding of operands dominates and affects all programs equally
W, W_FEW = 1.5, 3.0  # the second value applies if a few elements determine the largest error, because one draw is then a poorer predictor of the next
ULPS = 16.0
STEADY = 1.5  # up to this ratio of largest to smallest drawn error, many elements are assumed to determine the error
SMALL = 4096  # outputs with fewer elements get more draws
DRAWS, SMALL_DRAWS = 3, 8
NO_ORACLE = 256 * 2.0**-23  # used if fp64 cannot judge (it does not run, or the task is chaotic) and outputs are compared with eager itself
NO_ORACLE_ULPS = 8.0  # the same for 16-bit types
CHAOTIC, CHAOTIC_16 = 1e-2, 0.5  # an eager element with a larger error results from a different decision, because rounding alone does not explain it
FLIPPED = 0.05  # up to this share of elements, such decisions can be distinguished from noise
NORM = f"max |a-b| / (|b| + rms(b)); bound max({K['fp32-strict']:g} x PyTorch's error, {W:g} x plain arithmetic's, {ULPS:g} ulp)"
CHUNK = 1 << 18  # number of elements widened to fp64 at a time, chosen to fit in the cache
GPU_CHUNK = 1 << 26  # the same on a GPU: few launches, each of which needs 0.5 GiB instead of twice the tensor's size
LEAST = 1e-30  # lower limit for the divisor of a relative error
SQUARABLE = 1e-12  # root mean square above which fp32 underflow of squares is negligible


@dataclass
class Judgement:
    """The judgement of one tensor. `error` is null if the shape, dtype or finiteness already differs."""

    ok: bool
    error: float | None = None
    bound: float | None = None
    detail: str = ""
    decided: float = 0.0  # share of the elements whose error exceeds the bound, of a tensor that passes


def epsilon(dtype: torch.dtype) -> float:
    return torch.finfo(dtype if dtype.is_floating_point or dtype.is_complex else torch.float32).eps


_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def chunk(tensor: torch.Tensor) -> int:
    return GPU_CHUNK if tensor.is_cuda else CHUNK


def root_mean_square(tensor: torch.Tensor) -> float:
    flat, step = _flat(tensor), chunk(tensor)
    found = native.squares(flat)
    if found is not None and found[1] == flat.numel():
        return math.sqrt(found[0] / flat.numel())
    total = sum(float(flat[begin : begin + step].double().square().sum()) for begin in range(0, flat.numel(), step))
    return math.sqrt(total / flat.numel())


def distance(value: torch.Tensor, expected: torch.Tensor) -> float:
    """Computes the norm over the elements for which `expected` is finite. The result is infinite if the masks of finite elements differ."""
    a, b = _flat(value), _flat(expected)
    if (near := native.distance(a, b)) is not None or (near := _finite_distance(a, b)) is not None:
        return near
    total, count = 0.0, 0
    size = chunk(b)
    for begin in range(0, b.numel(), size):
        part = b[begin : begin + size].double()
        finite = part.isfinite()
        if not torch.equal(finite, a[begin : begin + size].isfinite()):
            return math.inf
        part = part[finite]
        total += float(part.square().sum())
        count += part.numel()
    rms = math.sqrt(total / count) if count else 0.0
    worst = 0.0
    for begin in range(0, b.numel(), size):
        x, y = a[begin : begin + size].double(), b[begin : begin + size].double()
        relative = (x - y).abs_().div_((y.abs() + rms).clamp_min_(1e-300))
        relative.masked_fill_(~y.isfinite(), 0.0).nan_to_num_(math.inf)
        worst = max(worst, float(relative.max()) if relative.numel() else 0.0)
    return worst


def _finite_distance(a: torch.Tensor, b: torch.Tensor) -> float | None:
    """Computes the same norm if all elements are finite; otherwise, returns null. Uses one of the judge's kernels if possible. If not, it makes half
    as many passes as `distance` for two tensors of the same type of at most 32 bits. The difference of two close numbers is exact in their own type,
    and the quotient needs no more digits than are shown."""
    if (near := native.distance(a, b, finite=True)) is not None:
        return near
    if a.dtype != b.dtype or a.dtype not in _NARROW:
        return None
    if not b.numel() or not math.isfinite(euclidean(a)) or not math.isfinite(size := euclidean(b)):
        return None
    rms, worst = size / math.sqrt(b.numel()), 0.0
    for begin in range(0, b.numel(), chunk(b)):
        x, y = a[begin : begin + chunk(b)].float(), b[begin : begin + chunk(b)].float()
        scale = y.abs().add_(rms)
        if rms < LEAST:
            scale.clamp_min_(LEAST)
        low, high = map(float, torch.aminmax((x - y).div_(scale)))
        if not math.isfinite(high - low):  # the difference or the divisor exceeds the fp32 range
            return None
        worst = max(worst, -low, high)
    return worst


def euclidean(flat: torch.Tensor) -> float:
    """Computes the norm of a one-dimensional tensor of fp32 or a narrower type. The result is not finite if any element is not. Works in fp64, one
    piece at a time, because `vector_norm` would make an fp64 copy of its whole argument. On a GPU, a tensor of more than one piece is first reduced
    in fp32, which reads it once instead of five times and has a relative error of a few millionths. The fp64 reduction follows if squares may have
    exceeded the fp32 range."""
    step = chunk(flat)
    pieces = range(0, flat.numel(), step)
    for kind in (torch.float32, torch.float64) if flat.is_cuda and len(pieces) > 1 else (torch.float64,):
        parts = [torch.linalg.vector_norm(flat[begin : begin + step], dtype=kind) for begin in pieces]
        found = float(torch.linalg.vector_norm(torch.stack(parts), dtype=torch.float64)) if parts else 0.0
        if kind == torch.float64 or (found >= SQUARABLE * math.sqrt(flat.numel()) and math.isfinite(found)):
            break
    return found


def same_values(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Returns whether two tensors of the same type are equal, treating NaN as equal to NaN. Works one piece at a time, because a mask of the whole
    tensor could take up gigabytes."""
    if left.shape != right.shape:
        return False
    if native.same_bits(left, right):
        return True
    step, whole = chunk(left), [(left, right)]
    if left.numel() > step and left.is_contiguous() and right.is_contiguous():
        whole = list(zip(left.view(-1).split(step), right.view(-1).split(step), strict=True))
    if left.dtype in float8.TYPES:
        whole = [(float8.steps(a), float8.steps(b)) for a, b in whole]
    return all(torch.equal(a, b) or (a.is_floating_point() and bool(((a == b) | (a.isnan() & b.isnan())).all())) for a, b in whole)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).flatten()


def relative(value: torch.Tensor, expected: torch.Tensor, rms: float) -> torch.Tensor:
    """Returns the norm of every element. The norm is infinite if only one of the two values is finite, or if they are infinities of different signs.
    `rms` refers to the whole tensor; `expected` may be only a part of it."""
    a, b = value.double(), expected.double()
    off = (a - b).abs_().div_((b.abs() + rms).clamp_min_(1e-300))
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(b.isfinite() & a.isfinite(), off, torch.where(same, 0.0, math.inf))


@dataclass
class Survey:
    """The elements whose error exceeds a limit."""

    share: float
    wrong: int  # number of such elements
    rest: float  # the largest error among the other elements
    first: int  # index of the first such element in shape order; -1 if there is none


def survey(value: torch.Tensor, expected: torch.Tensor, limit: float) -> Survey:
    """Surveys a tensor one piece at a time, because an fp64 copy of the whole tensor would take many times its size. A complex number counts as two
    elements."""
    a, b = _flat(value), _flat(expected)
    size = chunk(b)
    total, count = 0.0, 0
    for begin in range(0, b.numel(), size):
        part = b[begin : begin + size].double()
        part = part[part.isfinite()]
        total, count = total + float(part.square().sum()), count + part.numel()
    rms = math.sqrt(total / count) if count else 0.0
    found = Survey(0.0, 0, 0.0, -1)
    wrong = 0
    for begin in range(0, b.numel(), size):
        off = relative(a[begin : begin + size], b[begin : begin + size], rms)
        far = off > limit
        here = int(far.sum())
        if here and found.first < 0:
            found.first = begin + int(far.to(torch.uint8).argmax())
        wrong += here
        if here < off.numel():
            found.rest = max(found.rest, float(off.masked_fill_(far, 0.0).max()))
    found.share, found.wrong = wrong / max(b.numel(), 1), wrong
    return found


def all_finite(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() and not tensor.is_complex():
        return True
    flat = _flat(tensor)
    if (found := native.squares(flat)) is not None:
        return found[1] == flat.numel()
    return all(bool(wide(flat[begin : begin + chunk(flat)]).isfinite().all()) for begin in range(0, flat.numel(), chunk(flat)))


def deviation(value: torch.Tensor, expected: torch.Tensor, most: float = FLIPPED) -> tuple[float, float]:
    """Returns the error of a run that follows the task, and the share of elements for which it decides differently from fp64 (for example, an index
    or a threshold). Those elements are excluded from the error unless their share exceeds `most`, in which case the whole tensor is noise."""
    if not continuous(value):
        wrong = differing(value, expected)
        return 0.0, 0.0 if wrong is None else float(wrong.double().mean())
    chaotic = chaotic_error(value.dtype)
    error = distance(value, expected)
    if error <= chaotic:
        return error, 0.0
    found = survey(value, expected, chaotic)
    return (error, 0.0) if found.share > most else (found.rest, found.share)


def differing(value: torch.Tensor, expected: torch.Tensor) -> torch.Tensor | None:
    """Returns a mask of the elements that differ between two tensors of integers, booleans or float8 numbers. Returns null if they are equal."""
    a, b = steps(value), steps(expected.to(value.dtype))
    return None if torch.equal(a, b) else a != b


def chaotic_error(dtype: torch.dtype) -> float:
    return CHAOTIC_16 if dtype in (torch.float16, torch.bfloat16) else CHAOTIC


def bound(own_error: float, plain_errors: list[float], dtype: torch.dtype, precision: Precision = "fp32-strict") -> float:
    """Computes the bound from PyTorch's error and, if they were measured, from the errors of plain arithmetic (one per draw)."""
    drawn = [error for error in plain_errors if math.isfinite(error)]
    steady = len(drawn) > 1 and max(drawn) <= STEADY * min(drawn)
    plain = (W if steady else W_FEW) * max(drawn, default=0.0)
    return max(K[precision] * own_error if math.isfinite(own_error) else 0.0, plain, ULPS * epsilon(dtype))


def tolerated(own_share: float, plain_share: float, numel: int) -> float:
    """Returns the share of elements that may result from a different decision. The share is zero if neither PyTorch nor plain arithmetic has any such
    elements."""
    share = max(own_share, plain_share)
    return min(4 * share + 2 / max(numel, 1), 4 * FLIPPED) if share > 0 else 0.0


def no_oracle(dtype: torch.dtype) -> float:
    """Returns the bound for a comparison with eager's own result."""
    return max(NO_ORACLE, NO_ORACLE_ULPS * epsilon(dtype)) if dtype in (torch.float16, torch.bfloat16) else min(NO_ORACLE, 256 * epsilon(dtype))


def judge(value: torch.Tensor, expected: torch.Tensor, limit: float, share: float = 0.0) -> Judgement:
    """Judges the program's `value` against `expected` (fp64 for floating-point tensors). Non-floating tensors must be equal. At most `share` of the
    elements may have larger errors, to allow for decisions that depend on rounding."""
    if not value.numel():
        return Judgement(True, 0.0, limit)
    if not continuous(value):
        wrong = differing(value, expected)
        if wrong is None or float(wrong.double().mean()) <= share:
            return Judgement(True, 0.0, 0.0)
        index = _first(wrong.flatten(), tuple(value.shape))
        said = f"first at {list(index)}: {value[index].item()} instead of {expected[index].item()}"
        return Judgement(False, None, None, f"{counted(int(wrong.sum()), value)}; {said}")
    near = _finite_distance(_flat(value), _flat(expected))
    if near is not None and near <= limit:
        return Judgement(True, near, limit)
    masks = _mask_difference(value, expected)
    if masks and not share:
        return Judgement(False, None, limit, masks)
    error = math.inf if masks else distance(value, expected)
    if error <= limit:
        return Judgement(True, error, limit)
    found = survey(value, expected, limit)
    if found.share <= share:
        return Judgement(True, found.rest, limit, decided=found.share)
    a, b, place = _element(value, expected, found.first)
    detail = f"{counted(found.wrong, value)}; first at {place}: {a:.9g} instead of {b:.9g}"
    return Judgement(False, error if math.isfinite(error) else None, limit, detail)


def counted(wrong: int, value: torch.Tensor) -> str:
    """Formats an element count; a complex number counts as two elements."""
    numel = value.numel() * (2 if value.is_complex() else 1)
    return f"{wrong:,} of {numel:,} {'element is' if numel == 1 else 'elements are'} off"


def _mask_difference(value: torch.Tensor, expected: torch.Tensor) -> str:
    """Compares non-finite elements. Both tensors must have the same kind of value at the same positions. NaN is never a wildcard."""
    if all_finite(value) and all_finite(expected):
        return ""
    a, b = _flat(value), _flat(expected)
    for begin in range(0, b.numel(), chunk(b)):
        x, y = a[begin : begin + chunk(b)].double(), b[begin : begin + chunk(b)].double()
        same = (x.isfinite() & y.isfinite()) | (x.isnan() & y.isnan()) | ((x == y) & ~x.isfinite())
        if not bool(same.all()):
            one, other, index = _element(value, expected, begin + int((~same).to(torch.uint8).argmax()))
            return f"at {index}: {one} instead of {other}"
    return ""


def _element(value: torch.Tensor, expected: torch.Tensor, number: int) -> tuple[float, float, list[int]]:
    """Returns both values at the `number`-th element in shape order, and the element's position. A complex number counts as two elements."""
    a, b = (torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in (value, expected))
    index = position(number, tuple(b.shape))
    return float(a[index]), float(b[index]), list(index)


def _first(mask: torch.Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    return position(int(mask.to(torch.uint8).argmax()), shape)


_LEFT = {"neg": "negated", "conj": "conjugated"}


def same_form(value: Spec, expected: Spec, name: str) -> str:
    """Describes how the shape or dtype differs, or how a view leaves work to its reader. Returns an empty string if the tensors agree. Strides may
    differ, because no caller of the task can observe them."""
    if value.shape != expected.shape:
        return f"{name} has shape {list(value.shape)} instead of {list(expected.shape)}"
    if value.dtype != expected.dtype:
        return f"{name} has dtype {value.dtype} instead of {expected.dtype}"
    if value.left is not None and value.left != expected.left:
        return f"{name} is a view whose elements are still to be {_LEFT[value.left]} by its reader: return it resolved (torch.resolve_{value.left})"
    return ""


def position(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the coordinates of the `index`-th element in shape order."""
    place = []
    for size in reversed(shape):
        place.append(index % size)
        index //= size
    return tuple(reversed(place))
