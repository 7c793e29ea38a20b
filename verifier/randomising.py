"""Draws new values, of the same magnitude and in the same domain, for a state dict's entries.

The judge uses this module, and so do parties when they run constructors.
"""

from __future__ import annotations

import math

import torch

from verifier import float8

FAINT = 0.05  # spread of the values drawn for a weight whose elements are all equal
UNSEEN = 1e-3  # root mean square below which a parameter's own values hide whatever they scale
FLIPPED = 0.25  # share of a weight's elements that change their sign if all of them have the same one
CLOSED = 4.0  # root mean square above which values of one sign may close a gate (a sigmoid, a softmax)


def randomised(
    name: str, tensor: torch.Tensor, parameter: bool, generator: torch.Generator, wide: bool = True, flips: bool = True
) -> torch.Tensor | None:
    """Draws random values for a floating-point or complex parameter or buffer. Returns null for integers and masks, which stay unchanged. Variances
    stay positive. With `wide`, zeros and signs change too; otherwise they are preserved. Without `flips`, parameters whose elements all have the same
    sign keep it."""
    if tensor.is_complex():
        if not parameter and tensor.numel() and _mask(tensor):
            return None
        parts = randomised(name, torch.view_as_real(tensor.resolve_conj()), True, generator, wide, flips)
        return None if parts is None else torch.view_as_complex(parts)
    if not tensor.is_floating_point() or not tensor.numel():
        return None
    if tensor.dtype in float8.TYPES:
        drawn = randomised(name, float8.wide(tensor), parameter, generator, wide, flips)
        return None if drawn is None else float8.narrowed(drawn, tensor.dtype)
    uniform = torch.rand(tensor.shape, generator=generator, dtype=torch.float32, device=generator.device).to(tensor.device)
    if name.endswith("running_var"):
        return (0.5 + uniform).to(tensor.dtype)
    if name.endswith("running_mean"):
        return (uniform - 0.5).to(tensor.dtype)
    if not parameter and _mask(tensor):
        return None
    size = _size(tensor)
    if not math.isfinite(size):
        return None
    if _faint(tensor, size, parameter):
        size = 0.0  # a nearly closed gate would hide everything behind it
    if wide and parameter and _closed(tensor, size):
        return ((2.0 * uniform - 1.0) * size).to(tensor.dtype)
    scaled = tensor.float() * (0.5 + uniform)
    if wide:
        scaled += 0.2 * (size or 0.5) * (uniform - 0.5)
        if flips and parameter and _one_sign(tensor):
            chosen = torch.rand(tensor.shape, generator=generator, dtype=torch.float32, device=generator.device).to(tensor.device) < FLIPPED
            scaled = torch.where(chosen, -scaled, scaled)
    elif not parameter:  # a table whose values are meaningful only within a range
        scaled = scaled.clamp(float(tensor.min()), float(tensor.max()))
    return scaled.to(tensor.dtype)


def _size(tensor: torch.Tensor) -> float:
    """Returns the root mean square of the values."""
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64 if tensor.device.type == "cpu" else torch.float32)) / math.sqrt(tensor.numel())


def hides(tensor: torch.Tensor, parameter: bool) -> bool:
    """Returns whether the values that a constructor gives to an entry may hide anything that depends on other values: all elements are equal, or so
    small that whatever they scale is invisible, or so large that they close a gate."""
    if tensor.is_complex() and tensor.numel():
        return bool((tensor == tensor.flatten()[0]).all()) or hides(torch.view_as_real(tensor.resolve_conj()), parameter)
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    tensor = float8.wide(tensor)
    size = _size(tensor)
    return bool((tensor == tensor.flatten()[0]).all()) or (math.isfinite(size) and (_faint(tensor, size, parameter) or _closed(tensor, size)))


def _faint(tensor: torch.Tensor, size: float, parameter: bool) -> bool:
    return (size < FAINT and bool((tensor == tensor.flatten()[0]).all())) or (parameter and size < UNSEEN)


def _closed(tensor: torch.Tensor, size: float) -> bool:
    return size > CLOSED and _one_sign(tensor)


def _one_sign(tensor: torch.Tensor) -> bool:
    low, high = torch.aminmax(tensor)
    return bool(low > 0) or bool(high < 0)


def _mask(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is a mask: it contains zero and one other value, which marks the elements that count. An identity matrix is not a
    mask."""
    zero = tensor == 0
    if bool(zero.all()) or not bool(zero.any()):
        return False
    others = tensor[~zero]
    if not bool((others == others[0]).all()):
        return False
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return not (square and torch.equal(tensor, torch.eye(len(tensor), dtype=tensor.dtype, device=tensor.device)))
