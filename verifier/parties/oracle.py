"""Evaluates a model in fp64, and estimates how far plain arithmetic at a policy's precision may deviate from the result.

`Wide` keeps a run in fp64 where forward requests fp32, and draws the same random numbers as the fp32 run. `Rough` is the same run, but perturbs every
operator's result as a plain implementation would: by one rounding and, after a sum of n terms, by the error of sequential addition. The variance of
that error is the sum of the squared partial sums times u^2/3. For x_i with mean m and mean square s, the partial sum of k terms grows as k m or as
sqrt(k s). This gives n (y^2/3 + q/2) u^2/3, where q is the sum of squares of the terms (the probabilistic error model of Higham and Mary, 2019).
Later operators amplify or hide an error just as they do in a program, so the error model needs no knowledge of the task.
"""

# sandboxed: its modes are active while the models that tasks define run

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from verifier.float8 import TYPES, follows_policy, narrowed

WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_HALVES = {torch.float16: torch.float64, torch.bfloat16: torch.float64}
LONGEST = 1 << 15  # maximum number of terms that a plain program adds sequentially; longer sums are divided among threads
NARROWER = {wide: narrow for narrow, wide in WIDER.items()}
_DRAWS = ("bernoulli", "bernoulli_", "rand", "randn", "rand_like", "randn_like", "normal", "normal_", "uniform_", "exponential_", "cauchy_")
_CONTRACTIONS = {"mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "addmv": (1, 2), "convolution": (0, 1)}
_EXACT = frozenset(  # operators that move, select or clamp, without rounding
    [
        "abs",
        "neg",
        "relu",
        "relu_",
        "maximum",
        "minimum",
        "clamp",
        "clamp_",
        "clamp_min",
        "clamp_min_",
        "clamp_max",
        "clamp_max_",
        "where",
        "sign",
        "floor",
        "ceil",
        "round",
        "trunc",
        "copysign",
        "hardtanh",
        "hardtanh_",
        "threshold",
        "fill_",
        "zero_",
        "copy_",
        "clone",
        "masked_fill",
        "masked_fill_",
        "frac",
        "fmod",
        "remainder",
        "nan_to_num",
        "alias",
        "_to_copy",
        "lift_fresh",
        "detach",
    ]
)
_SUMS = ("sum", "mean", "cumsum")
# The number of elements that are summed into one result, derived from the operator's arguments and its result.
_LENGTHS: dict[str, Callable[[tuple[Any, ...], torch.Tensor], float]] = {
    "_softmax": lambda a, y: a[0].shape[a[1]] if a[0].dim() else 1,
    "_log_softmax": lambda a, y: a[0].shape[a[1]] if a[0].dim() else 1,
    "native_layer_norm": lambda a, y: math.prod(a[1]),
    "native_group_norm": lambda a, y: a[0].numel() / max(a[3] * a[6], 1),
    "cumprod": lambda a, y: a[0].shape[a[1]] if a[0].dim() else 1,
}
_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_batch_norm_with_update", "_native_batch_norm_legit_no_training")
_REDUCTIONS = [
    "var",
    "std",
    "var_mean",
    "std_mean",
    "norm",
    "linalg_vector_norm",
    "logsumexp",
    "prod",
    "mse_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "nll_loss_forward",
    "nll_loss2d_forward",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool1d",
    "soft_margin_loss",
    "multi_margin_loss",
    "multilabel_margin_loss_forward",
    "index_add",
    "scatter_add",
    "index_add_",
    "scatter_add_",
    "_embedding_bag",
    "trace",
]
_LIKE_ROWS = (
    "_scaled_dot_product",
    "_thnn_fused",
    "_cudnn_rnn",
    "lstm",
    "gru",
    "_cdist",
    "cdist",
    "linalg_",
    "_linalg",
    "_fft",
    "logcumsumexp",
    "cosine",
)


ABSORBED = 1 / 8  # fraction of the half ulps that may be lost: a naive softmax of 512 heavy-tailed elements lost between an eighth and a quarter


class Wide(TorchDispatchMode):
    """Replaces fp32 with fp64 wherever forward names fp32 or combines it with fp64. 16-bit types that a task names are intentional: such a tensor
    holds 16-bit numbers, and keeps their values when it is combined with an fp64 tensor."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False, because nothing is compiled here. Otherwise, PyTorch would wrap the mode to guard against its compiler, and the first use
        would import the compiler (800 modules, 2.4 s)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name.removeprefix("aten::")
        if name == "native_dropout":
            return _dropout(func, args)
        if name in _DRAWS:
            return _draw(func, name, args, kwargs)
        if name == "_scaled_mm" and (found := self._scaled(*args, **kwargs)) is not None:
            return found
        if kwargs.get("dtype") in WIDER:
            kwargs["dtype"] = WIDER[kwargs["dtype"]]
        if name != "copy_":
            args, kwargs = _alike(name, args, kwargs)
        return self.result(func, name, args, kwargs)

    def result(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)

    def _scaled(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        bias: torch.Tensor | None = None,
        scale_result: torch.Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        use_fast_accum: bool = False,
    ) -> torch.Tensor | None:
        """Computes a product of float8 matrices, which PyTorch supports only with fp32 scales and results. Returns None for block-wise scales."""
        if any(scale.numel() > 1 and scale.shape != shape for scale, shape in ((scale_a, (len(a), 1)), (scale_b, (1, b.shape[1])))):
            return None
        product: torch.Tensor = self.result(torch.ops.aten.mm.default, "mm", (a.double(), b.double()), {}) * scale_a.double() * scale_b.double()
        product = product if bias is None else product + bias.double()
        dtype = out_dtype or a.dtype
        if dtype not in TYPES:
            return product.to(WIDER.get(dtype, dtype))
        return narrowed(product if scale_result is None else product * scale_result.double(), dtype)


class Rough(Wide):
    """Perturbs each operator's result. Values between operators are stored as `dtype`; sums are accumulated in at least fp32. With `tf32`, operands
    of contractions have the 10 fraction bits of TF32. `times` scales all other errors."""

    def __init__(self, seed: int, dtype: torch.dtype, tf32: bool = False, times: float = 1.0):
        super().__init__()
        self.seed = seed
        self.generators: dict[torch.device, torch.Generator] = {}
        self.store = torch.finfo(dtype).eps / 2 * times
        self.sum = min(self.store, torch.finfo(torch.float32).eps / 2 * times)
        self.tf32 = tf32

    def result(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name in _CONTRACTIONS and self.tf32:
            args = tuple(_tf32(a) if i in _CONTRACTIONS[name] else a for i, a in enumerate(args))
        output = func(*args, **kwargs)
        spread = self._spread(func, name, args, kwargs, output)
        if spread is None:
            return output
        leaves = [output] if isinstance(output, torch.Tensor) else [leaf for leaf in output if isinstance(leaf, torch.Tensor)]
        for leaf, deviation in zip(leaves, spread, strict=False):
            if deviation is not None and leaf.dtype in (torch.float64, torch.complex128) and leaf.numel():
                _real(leaf).add_(deviation.mul_(self._noise(deviation)))
        return output

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        generator = self.generators.setdefault(like.device, torch.Generator(device=like.device))
        generator.manual_seed(self.seed)
        self.seed += 1
        return torch.randn(like.shape, generator=generator, device=like.device, dtype=torch.float32)

    def _spread(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> list[torch.Tensor | None] | None:
        """Returns the standard deviation of each result's error, or None for an operator that only moves or compares."""
        first = output[0] if isinstance(output, (list, tuple)) and output else output
        if not isinstance(first, torch.Tensor) or first.dtype not in (torch.float64, torch.complex128):
            return None
        if name in _CONTRACTIONS:
            return [self._contracted(func, name, args, kwargs, first)]
        if name in _SUMS and isinstance(args[0], torch.Tensor) and not args[0].is_complex():
            return [self._summed(func, name, args, kwargs, first)]
        length = _length(name, args, first)
        if length is None:
            pointwise = torch.Tag.pointwise in func.tags and name not in _EXACT
            return [_real(first).abs().mul_(self.store)] if pointwise else None
        leaves = output if isinstance(output, (list, tuple)) else [output]
        positive = name in _REDUCTIONS
        uneven = positive or "softmax" in name
        return [
            self._plain(leaf, length, positive, uneven) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else None for leaf in leaves
        ]

    def _plain(self, y: torch.Tensor, length: float, positive: bool = False, uneven: bool = False) -> torch.Tensor:
        """Estimates the error when the sum of squares of the terms is unknown: from the mean square of the results, or without this contribution if
        all terms are positive. `uneven` means that the terms have one sign and any magnitude (exponentials, squares). A running sum then loses every
        term below half an ulp, always in the same direction, which adds up to as much as `length` half ulps."""
        y = _real(y)
        squares = 0.0 if positive else y.square().mean().nan_to_num(0.0, 0.0, 0.0)
        grown = self.sum**2 / 3 * min(length, LONGEST)
        lost = ABSORBED * self.sum * min(length, LONGEST) if uneven else 0.0
        return (grown * (y.square() / 3 + squares / 2) + (self.store**2 + lost**2) * y.square()).sqrt_()

    def _contracted(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], y: torch.Tensor) -> torch.Tensor:
        left, right = _CONTRACTIONS[name]
        a: torch.Tensor = args[left]
        b: torch.Tensor = args[right]
        if y.is_complex():
            return self._plain(y, a.shape[-1])
        if name == "convolution":
            transposed = bool(args[6])
            length: float = b.numel() / max(b.shape[1] * args[8] if transposed else b.shape[0], 1)
            squares: torch.Tensor = func(a.square(), b.square(), None, *args[3:], **kwargs)
        else:
            length = a.shape[-1]
            squares = torch.matmul(a.square(), b.square())
        return (self.sum**2 / 3 * min(length, LONGEST) * (y.square() / 3 + squares.clamp_min(0) / 2) + (self.store * y).square()).sqrt_()

    def _summed(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], y: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = args[0]
        length: float = x.shape[args[1]] if name == "cumsum" and x.dim() else max(x.numel() / max(y.numel(), 1), 1)
        squares: torch.Tensor = func(x.square(), *args[1:], **kwargs)
        if name == "mean":
            squares = squares / length
        return (self.sum**2 / 3 * min(length, LONGEST) * (y.square() / 3 + squares / 2) + (self.store * y).square()).sqrt_()


def _length(name: str, args: tuple[Any, ...], y: torch.Tensor) -> float | None:
    if name in _LENGTHS:
        return _LENGTHS[name](args, y)
    if name in _NORMS:
        normed: torch.Tensor = args[0]
        return normed.numel() / max(normed.shape[1], 1)
    whole = [a for a in args if isinstance(a, torch.Tensor)]
    if name in _REDUCTIONS or name.endswith("_backward"):
        ratio = max((a.numel() for a in whole), default=1) / max(y.numel(), 1)
        row = whole[0].shape[-1] if name.endswith("_backward") and whole and whole[0].dim() else 1
        return max(ratio, row)
    if name.startswith(_LIKE_ROWS):
        return whole[0].shape[-1] if whole and whole[0].dim() else 1
    if name.startswith(("upsample", "grid_sampler")) and "nearest" not in name:
        return 4
    return None


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Rounds to 11 significant bits, like TF32's operands."""
    if not tensor.is_floating_point():
        return tensor
    scaled = tensor.double() * (2.0**42 + 1)  # Dekker's splitting drops the low 53 - 11 = 42 bits
    return scaled - (scaled - tensor)


def _alike(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Widens operands that are combined with fp64 ones; a tensor that is written in place keeps its type. 16-bit operands are widened only if an fp64
    operand has axes, in which case the result is fp64 anyway. Products require a single type. In the task, where the state was also 16-bit, they had
    one. A scalar does not change the type."""
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    kinds = {leaf.dtype for leaf in leaves if leaf.is_floating_point() or leaf.is_complex()}
    wider = WIDER | _HALVES if any(leaf.dtype == torch.float64 and leaf.dim() for leaf in leaves) else WIDER
    if len(kinds) < 2 or not kinds & set(wider):
        return args, kwargs

    def widen(value: Any) -> Any:
        return value.to(wider[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in wider else value

    if name.endswith("_") and not name.endswith("__"):
        return (args[0], *pytree.tree_map(widen, args[1:])), pytree.tree_map(widen, kwargs)
    return pytree.tree_map(widen, args), pytree.tree_map(widen, kwargs)


def _draw(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draws the numbers that the same call would draw in fp32, and widens them."""
    if name.endswith("_"):
        narrow = torch.empty_like(args[0], dtype=NARROWER.get(args[0].dtype, args[0].dtype))
        args[0].copy_(func(narrow, *_narrow(args[1:]), **kwargs))
        return args[0]
    dtype = kwargs.get("dtype")
    if "dtype" in kwargs or name in ("rand", "randn"):
        kwargs["dtype"] = NARROWER.get(dtype or torch.get_default_dtype(), dtype)
    output = func(*_narrow(args), **kwargs)
    return output.to(WIDER[output.dtype]) if output.dtype in WIDER else output


def _dropout(func: Any, args: tuple[Any, ...]) -> Any:
    x, p, train = args
    ones, mask = func(torch.ones_like(x, dtype=NARROWER.get(x.dtype, x.dtype)), p, train)
    return (x * mask / (1 - p) if train and p < 1 else x * ones), mask


def _narrow(args: tuple[Any, ...]) -> tuple[Any, ...]:
    def narrow(value: Any) -> Any:
        return value.to(NARROWER[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in NARROWER else value

    narrowed: tuple[Any, ...] = pytree.tree_map(narrow, args)
    return narrowed


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a private copy, with floating-point and complex tensors in double precision. Float8 tensors keep their type, which is intentional:
    forward converts their numbers, which are exact, or reads their bits."""
    if follows_policy(tensor):
        return tensor.double() if tensor.dtype != torch.float64 else tensor.clone()
    return tensor.to(torch.complex128) if tensor.is_complex() and tensor.dtype != torch.complex128 else tensor.clone()


@contextlib.contextmanager
def default_double() -> Iterator[None]:
    """Makes fp64 the default type of tensors that forward creates without specifying a type."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)
