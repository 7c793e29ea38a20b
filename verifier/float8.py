"""8-bit floating-point types, which PyTorch can store and convert but supports in few computations.

Such a number is a code: a step to the next code changes the value by an eighth or a quarter. A relative error is therefore not informative, so two
float8 tensors are compared as integers are: they must be equal, except where rounding decides differently, and then they may differ by only a few
steps.
"""

from __future__ import annotations

import functools

import torch

NAMES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
TYPES = frozenset(getattr(torch, name) for name in NAMES)
NOT_A_NUMBER = 1 << 10  # the step assigned to NaN, far from those of all numbers
CHUNK = 1 << 24  # number of elements ranked at a time, because each index into the table takes four bytes


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a float8 tensor in fp32, which represents each of its numbers exactly, and any other tensor unchanged."""
    return tensor.float() if tensor.dtype in TYPES else tensor


def narrowed(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Converts to `dtype`. Numbers beyond the range of a float8 type become its largest number, and an unsigned type keeps only magnitudes.
    Otherwise, the conversion would introduce infinities or NaNs, which would hide everything else."""
    if dtype not in TYPES:
        return values.to(dtype)
    limits = torch.finfo(dtype)
    values = values.abs() if limits.min > 0 else values
    return torch.where(values.isfinite(), values.clamp(limits.min, limits.max), values).to(dtype)


def continuous(tensor: torch.Tensor) -> bool:
    """Returns whether a relative error is meaningful, that is, whether rounding changes the elements by far less than their magnitude."""
    return (tensor.is_floating_point() and tensor.dtype not in TYPES) or tensor.is_complex()


def follows_policy(tensor: torch.Tensor) -> bool:
    """Returns whether a precision policy, or fp64 in place of fp32, casts the tensor. Float8 values are never cast, because they are exact and a
    model may read their bits."""
    return tensor.is_floating_point() and tensor.dtype not in TYPES


def steps(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the number of steps between zero and each element of a float8 tensor as int16, and any other tensor unchanged. Both zeros have the same
    step; every NaN has the step `NOT_A_NUMBER`."""
    if tensor.dtype not in TYPES:
        return tensor
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    table = _table(tensor.dtype, tensor.device)
    return torch.cat([table[part.int()] for part in flat.split(CHUNK)]).view(tensor.shape) if flat.numel() else flat.view(tensor.shape).short()


@functools.lru_cache(maxsize=32)
def _table(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Returns the step of each of the 256 codes."""
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    ascending = numbers[~numbers.isnan()].unique()
    place = torch.searchsorted(ascending, numbers.masked_fill(numbers.isnan(), 0.0)) - int((ascending < 0).sum())
    return place.masked_fill(numbers.isnan(), NOT_A_NUMBER).to(device, torch.int16)
