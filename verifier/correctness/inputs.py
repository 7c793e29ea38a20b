"""Generates additional inputs for trials, beyond those drawn by the task's own function. Every tensor varies, regardless of its type.

Floating-point inputs are drawn from other distributions. Integers stay within the range of the task's own integers and vary as text does: they are
skewed, repeated or reordered. If all integers are equal, they are lowered; if all are zero or all are one, they are redrawn like booleans. If the
task fails on a distribution, narrower domains are tried before the distribution is dropped: first the widest domain that each input tolerates on its
own (`MIXED`), then one that keeps the signs of the task's own numbers, and finally one that keeps their range.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from verifier import float8
from verifier.correctness.bounds import position, root_mean_square

DISTRIBUTIONS = ("heavy-tailed", "negative", "spiked", "tiny", "large")  # the most revealing distributions first
SPIKES = (-1.5, 6.0, -0.25)  # in multiples of the input's root mean square
EACH = 6  # number of inputs that have an element changed in a separate trial; any further inputs are changed together
RUN = 8  # length of a run of equal integers
FEW = 16  # tensor size below which a few elements are a large part of the tensor
REMAIN = 1  # numbers that `concentrate` keeps: the rounding of a single operand is the same for all terms of a sum, so errors cannot cancel out
TINY = 1e-4  # factor applied to the task's own numbers
GRID = 8  # number of steps into which a range is divided
LEAST = 2  # smallest value at which integers that are all equal are lowered
SKEW = 4.0  # exponent applied to a uniform number: half of the results are in the lowest sixteenth of the range

Floats = Literal["any", "signs", "range"]
Discrete = Literal["drawn", "permuted", "own"]


@dataclass(frozen=True)
class Domain:
    """The domain that restricts the inputs of a distribution."""

    floats: Floats
    discrete: Discrete
    mixed: bool = False  # each input has its own domain

    def describe(self) -> str:
        if self.mixed:
            return "each input as far as the task goes"
        said = {"any": "", "signs": "signs kept", "range": "range kept"}[self.floats]
        return ", ".join(part for part in (said, {"drawn": "", "permuted": "integers permuted", "own": "integers kept"}[self.discrete]) if part)


MIXED = Domain("any", "drawn", mixed=True)


def domains(tensors: Sequence[torch.Tensor]) -> list[Domain]:
    """Returns the domains that make a difference for such inputs, from widest to narrowest."""
    floating = [tensor for tensor in tensors if _floating(tensor)]
    discrete = [tensor for tensor in tensors if not _floating(tensor)]
    floats: tuple[Floats, ...] = ("any", "signs", "range") if floating else ("any",)
    kinds: tuple[Discrete, ...] = ("drawn", "permuted", "own") if floating else ("drawn", "permuted")
    return [Domain(one, other) for one in floats for other in (kinds if discrete else ("drawn",))] if tensors else []


def vary(name: str, tensors: Sequence[torch.Tensor], within: Domain | Sequence[Domain | None], generator: torch.Generator) -> bool:
    """Replaces inputs in place with values from another distribution, keeping shapes and types. `within` is the domain of all inputs or of each one;
    an input without a domain stays unchanged. Returns whether any input has changed."""
    changed = False
    for tensor, domain in zip(tensors, [within] * len(tensors) if isinstance(within, Domain) else within, strict=True):
        if domain is None or not tensor.numel():
            continue
        if _floating(tensor):
            real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            changed = _vary_floats(name, real, domain.floats, generator) or changed
        elif domain.discrete != "own":
            other = _other(name, tensor, domain.discrete, _labels(tensor, tensors), generator)
            changed = changed or not torch.equal(other, tensor)
            tensor.copy_(other)
    return changed


def _floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _vary_floats(name: str, tensor: torch.Tensor, domain: Floats, generator: torch.Generator, least: float = 0.0) -> bool:
    """Varies a tensor of real numbers in place. `least` is the magnitude below which its type rounds numbers to zero."""
    if tensor.dtype in float8.TYPES:
        values = float8.wide(tensor)
        changed = _vary_floats(name, values, domain, generator, torch.finfo(tensor.dtype).tiny)
        tensor.copy_(float8.narrowed(values, tensor.dtype))
        return changed
    if name == "spiked" and tensor.numel() < FEW:
        return False
    if domain == "any":
        reshape_distribution(name, tensor, generator, least)
    elif domain == "signs":
        own = tensor.clone()
        if name == "negative":  # the signs are fixed, so large numbers become as common as small ones instead
            tensor.copy_(_uniform(tensor.shape, generator).to(tensor.device).mul_(4 * _scale(own)))
        else:
            reshape_distribution(name, tensor, generator, least)
        tensor.copy_(torch.copysign(tensor.abs(), own))
    else:
        return _within(name, tensor, generator)
    return True


def _within(name: str, tensor: torch.Tensor, generator: torch.Generator) -> bool:
    """Draws from another distribution, between the minimum and the maximum of the input's own numbers."""
    own = tensor[tensor.isfinite()]
    low, high = (float(own.min()), float(own.max())) if own.numel() else (0.0, 0.0)
    if low == high:
        return False
    if name == "spiked":
        for index, share in zip(_places(tensor, generator), (0.0, 1.0, 0.5), strict=False):
            tensor[index] = low + share * (high - low)
        return True
    part = _uniform(tensor.shape, generator).to(tensor.device)
    if name == "heavy-tailed":
        part.pow_(SKEW)
    elif name == "negative":
        part.pow_(SKEW).neg_().add_(1.0)
    elif name == "tiny":
        part.mul_(1e-2)
    tensor.copy_(torch.where(tensor.isfinite(), (low + part * (high - low)).clamp_(low, high), tensor.float()))
    return True


def reshape_distribution(name: str, tensor: torch.Tensor, generator: torch.Generator, least: float = 0.0) -> None:
    """Replaces a floating-point input in place with values from another distribution, even if the task cannot handle them. Tiny values have a root
    mean square of at least `least`."""
    if name == "negative":
        tensor.abs_().neg_()
        return
    if name == "tiny":
        tensor.mul_(max(TINY, min(least / _scale(tensor), 1.0)))
        return
    scale = _scale(tensor)
    if name == "spiked":
        # Only a few elements of the task's own inputs change, so a program that examines part of its input to detect a test will not detect this one.
        for index, spike in zip(_places(tensor, generator), SPIKES, strict=False):
            tensor[index] = spike * scale
        return
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32, device=generator.device).to(tensor.device)
    if name == "heavy-tailed":
        noise.mul_(noise.abs().clamp_max_(4.0).mul_(0.75).exp_())
        tensor.copy_(noise.mul_(scale))
    elif name == "large":
        tensor.copy_(noise.mul_(64 * scale))


def _places(tensor: torch.Tensor, generator: torch.Generator) -> list[tuple[int, ...]]:
    """Picks a few elements from the second half; `one_element` changes one in the first half. A program that examines only one half does not notice
    changes in the other. Picks none if the tensor is so small that they would be a large part of it."""
    if tensor.numel() < FEW:
        return []
    at = torch.randint(tensor.numel() // 2, tensor.numel(), (len(SPIKES),), generator=generator, device=generator.device).tolist()
    return [position(index, tuple(tensor.shape)) for index in at]


def _scale(tensor: torch.Tensor) -> float:
    """Returns the root mean square of the task's own input, used to preserve its scale."""
    scale = root_mean_square(tensor) if tensor.numel() else 1.0
    return scale if math.isfinite(scale) and scale > 0 else 1.0


def _uniform(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(tuple(shape), generator=generator, dtype=torch.float32, device=generator.device)


def on_a_grid(tensors: Sequence[torch.Tensor], whole: bool) -> bool:
    """Rounds floating-point inputs in place to a few values, so that many elements are equal. With `whole`, these are multiples of a power of two,
    including zero; otherwise, they are spread over the input's own range. Returns whether any input has changed."""
    changed = False
    for tensor in tensors:
        if not _floating(tensor) or tensor.numel() < FEW:
            continue
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        before = float8.wide(real)
        own = before[before.isfinite()]
        low, high = (float(own.min()), float(own.max())) if own.numel() else (0.0, 0.0)
        step = 2.0 ** math.floor(math.log2(_scale(before) / 2)) if whole else (high - low) / GRID
        if low == high or not math.isfinite(step) or step <= 0:
            continue
        begin = 0.0 if whole else low
        rounded = before.float().sub(begin).div_(step).round_().mul_(step).add_(begin).clamp_(low, high)
        changed = True
        real.copy_(torch.where(before.isfinite(), rounded, before.float()))
    return changed


def concentrate(tensors: Sequence[torch.Tensor], seed: int) -> bool:
    """Zeroes floating-point inputs in place except for one element (`REMAIN`), at corresponding places in each input. Returns whether any input has
    changed. A mean of half a million terms with independent errors is as precise in TF32 as in fp32; one whose terms share a factor is not."""
    place, changed = random.Random(seed).random(), False
    for tensor in tensors:
        if not _floating(tensor) or tensor.dtype in float8.TYPES or tensor.numel() < 2 * FEW:
            continue
        columns = tensor.shape[-1]
        row = tensor[position(int(place * (tensor.numel() // columns)), tuple(tensor.shape[:-1]))]
        first = int(place * max(columns - REMAIN + 1, 1))
        kept = row[first : first + REMAIN].clone()
        tensor.zero_()
        row[first : first + REMAIN] = kept
        changed = True
    return changed


# Integers and booleans


def other_constant(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """Draws another value for a tensor of integers or booleans whose elements are all equal (zero points, a mask that keeps everything). Returns null
    if its elements differ, or if no other value is possible. Tensors with different elements are tables that a constructor computes, such as the
    positions in a causal mask, and other values would make no sense for them."""
    if _floating(tensor) or not tensor.numel() or not bool((tensor == tensor.flatten()[0]).all()):
        return None
    drawn = _drawn_bits("heavy-tailed", tensor, generator) if tensor.dtype == torch.bool else _lower("", tensor, int(tensor.flatten()[0]), generator)
    other = drawn if not torch.equal(drawn, tensor) else ~tensor if tensor.dtype == torch.bool else (1 - tensor).clamp(0, 1).to(tensor.dtype)
    return None if torch.equal(other, tensor) else other


def _other(name: str, tensor: torch.Tensor, how: Discrete, labels: bool, generator: torch.Generator) -> torch.Tensor:
    if how == "permuted":
        return tensor if _offsets(tensor) and not labels else _shuffled(tensor, generator)
    return _drawn_bits(name, tensor, generator) if tensor.dtype == torch.bool else _drawn_integers(name, tensor, labels, generator)


def _labels(tensor: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    """Returns whether integers label the rows of another input, one by one (segments, clusters). In ascending order, they look like offsets, but any
    other order is as valid. The last of some offsets is the number of rows, which no label of a row reaches."""
    if tensor.dim() != 1 or not tensor.numel():
        return False
    rows = {other.shape[0] for other in inputs if other is not tensor and other.dim()}
    return tensor.numel() in rows and int(tensor.max()) not in rows


def _shuffled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    order = torch.randperm(tensor.numel(), generator=generator, device=generator.device).to(tensor.device)
    return tensor.flatten()[order].view(tensor.shape)


def _drawn_integers(name: str, tensor: torch.Tensor, labels: bool, generator: torch.Generator) -> torch.Tensor:
    low, high = int(tensor.min()), int(tensor.max())
    if low == high:
        return _lower(name, tensor, low, generator)
    if _offsets(tensor) and not labels:
        # These are boundaries between consecutive parts. If they did not ascend, they could point outside the tensor that they index.
        inner = _between(low, high, _uniform(tensor.shape, generator), tensor).sort().values
        inner[0], inner[-1] = low, high
        return inner
    if name == "spiked":
        made = tensor.clone()
        for index, value in zip(_places(tensor, generator), (low, high, (low + high) // 2), strict=False):
            made[index] = value
        return made
    if name == "negative" or (name == "heavy-tailed" and _permutation(tensor, low, high)):
        return _shuffled(tensor, generator)
    part = _uniform(tensor.shape, generator)
    if name == "heavy-tailed":
        part.pow_(SKEW)
    elif name == "tiny":  # runs of equal integers, most of them with the same value
        flat = part.view(-1)
        first = torch.arange(flat.numel(), device=flat.device) // RUN * RUN
        part = torch.where(flat[first] < 0.5, flat[0], flat[first]).view(part.shape)
    return _between(low, high, part, tensor)


def _lower(name: str, tensor: torch.Tensor, number: int, generator: torch.Generator) -> torch.Tensor:
    """Lowers integers that are all equal to `number`, such as the position of a decoding step or the lengths of full rows. A lower value is also a
    valid position or length, whereas a larger value could point outside the tensor that it indexes. Zeros and ones are redrawn like booleans, which
    they may represent (a mask, a token type). If the task cannot handle the other value, a narrower domain is tried next."""
    if number in (0, 1):
        return _drawn_bits(name, tensor.bool(), generator).to(tensor.dtype)
    if number < LEAST:
        return tensor
    if name == "spiked" and tensor.numel() >= FEW:
        made = tensor.clone()
        for index in _places(tensor, generator):
            made[index] = number // 2
        return made
    part = _uniform(tensor.shape if tensor.numel() >= FEW else (1,) * tensor.dim(), generator)
    least = number // 2 if name == "heavy-tailed" else 1
    lower = (least + (part.double() * (number - least)).floor().to(torch.int64)).clamp_(1, number - 1)
    return lower.to(tensor.device, tensor.dtype).expand(tensor.shape).clone()


def _between(low: int, high: int, part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Maps `part` in [0, 1) to integers from `low` to `high` in the type of `like`. Both ends occur if there are enough elements."""
    drawn = (part.double() * (float(high) - float(low) + 1.0)).floor_().to(torch.int64).add_(low).clamp_(low, high)
    if drawn.numel() > 1:
        drawn.view(-1)[0], drawn.view(-1)[-1] = high, low
    return drawn.to(like.device, like.dtype)


def _permutation(tensor: torch.Tensor, low: int, high: int) -> bool:
    """Returns whether the tensor is a permutation, that is, whether every number in the range occurs exactly once."""
    return high - low + 1 == tensor.numel() and bool((tensor.flatten().sort().values.diff() == 1).all())


def _offsets(tensor: torch.Tensor) -> bool:
    """Returns whether the numbers ascend from zero but are not a permutation. Such numbers are offsets at which parts of another tensor begin."""
    if tensor.dtype == torch.bool or tensor.dim() != 1 or tensor.numel() < 2 or int(tensor[0]) != 0:
        return False
    steps = tensor.diff()
    return bool((steps >= 0).all()) and not bool((steps == 1).all())


def _drawn_bits(name: str, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if name == "spiked":
        made = tensor.clone()
        for index in _places(tensor, generator):
            made[index] = ~made[index]
        return made
    part = _uniform(tensor.shape, generator).to(tensor.device)
    columns = tensor.shape[-1] if tensor.dim() else 1
    if name == "tiny" and columns > 1:  # rows of different lengths, as with padding
        ends = (part[..., :1] * (columns - 1)).floor() + 1
        return (torch.arange(columns, device=tensor.device) < ends).expand(tensor.shape).clone()
    made = part < {"negative": 0.1, "large": 0.9}.get(name, 0.5)
    if columns > 1:  # many tasks fail on a row that is entirely true or entirely false
        made[..., 0], made[..., -1] = True, False
    return made


# One element


def changeable(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Returns groups of inputs; each trial changes an element in one group. Each of the first `EACH` inputs forms its own group, and the remaining
    inputs form one group together."""
    found = [index for index, tensor in enumerate(tensors) if tensor.numel()]
    rest = found[EACH:]
    return [[index] for index in found[:EACH]] + ([rest] if rest else [])


def one_element(tensor: torch.Tensor, seed: int, wide: bool = False) -> torch.Tensor | None:
    """Returns a copy in which one element of the first half is replaced with a different value that is plausible among the tensor's own numbers. With
    `wide`, a floating-point value may have any sign and magnitude. Returns null if all integers are zero or negative, because a larger value might
    point outside the tensor that it indexes, or if all float8 numbers are equal and the new value rounds to them."""
    if tensor.is_complex():
        parts = one_element(torch.view_as_real(tensor), seed, wide)
        return None if parts is None else torch.view_as_complex(parts)
    if tensor.dtype in float8.TYPES:
        for freely in (True, False) if wide else (False,):  # a new value may round to the old one
            parts = one_element(float8.wide(tensor), seed, freely)
            made = tensor if parts is None else float8.narrowed(parts, tensor.dtype)
            if not torch.equal(float8.steps(made), float8.steps(tensor)):
                return made
        return None
    draws = random.Random(seed)
    changed = tensor.clone(memory_format=torch.preserve_format)
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride()[axis])
    flat = changed.view(-1) if changed.is_contiguous() else changed.permute(order).view(-1)
    at = draws.randrange((flat.numel() + 1) // 2)
    if changed.is_floating_point() and wide and tensor.numel() >= FEW and float(flat[at]) != (spike := min(SPIKES) * _scale(tensor)):
        flat[at] = spike
    elif changed.is_floating_point():
        low, high = flat.min(), flat.max()
        flat[at] = (
            torch.where(flat[at] - low > high - flat[at], low, high) if bool(low < high) else flat[at] * 1.25 + (0.0 if bool(flat[at]) else 0.25)
        )
    elif changed.dtype == torch.bool:
        flat[at] = ~flat[at]
    elif _offsets(changed):
        return changed if _moved_boundary(changed, draws) else None
    else:
        other = torch.nonzero(flat != flat[at])
        if other.numel():
            flat[at] = flat[other[draws.randrange(len(other))]].reshape(())
        elif int(flat[at]) > 0:
            flat[at] = draws.randrange(int(flat[at]) // 2, int(flat[at]))
        else:
            return None
    return changed


def _moved_boundary(offsets: torch.Tensor, draws: random.Random) -> bool:
    """Moves the boundary between two neighbouring parts in place. Returns false if no part has room."""
    inner = list(range(1, offsets.numel() - 1))
    draws.shuffle(inner)
    for at in inner[:64]:
        low, now, high = (int(offsets[index]) for index in (at - 1, at, at + 1))
        others = [value for value in (low, (low + now) // 2, (now + high) // 2, high) if value != now]
        if others:
            offsets[at] = draws.choice(others)
            return True
    return False
