"""Draws other values for a state dict's entries, of the same magnitude and in the same domain. Used by the judge, and for constructors in the
sandbox."""

from __future__ import annotations

import math

import torch

FAINT = 0.05  # spread for a weight whose elements are all equal


def randomised(name: str, tensor: torch.Tensor, parameter: bool, generator: torch.Generator, wide: bool = True) -> torch.Tensor | None:
    """Draws random values for a floating parameter or buffer; null for integers and masks, which stay as they are. Variances stay positive. With
    `wide`, zeros and signs change too; otherwise they stay."""
    if not tensor.is_floating_point() or not tensor.numel():
        return None
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
    if size < FAINT and bool((tensor == tensor.flatten()[0]).all()):
        size = 0.0  # a nearly closed gate would let nothing visible through
    scaled = tensor.float() * (0.5 + uniform)
    if wide:
        scaled += 0.2 * (size or 0.5) * (uniform - 0.5)
    elif not parameter:  # a table whose numbers are meaningful only in a range
        scaled = scaled.clamp(float(tensor.min()), float(tensor.max()))
    return scaled.to(tensor.dtype)


def _size(tensor: torch.Tensor) -> float:
    """Returns the root mean square."""
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64 if tensor.device.type == "cpu" else torch.float32)) / math.sqrt(tensor.numel())


def _mask(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a mask: zero and one other value, which mark what counts. An identity matrix is not a mask."""
    zero = tensor == 0
    if bool(zero.all()) or not bool(zero.any()):
        return False
    others = tensor[~zero]
    if not bool((others == others[0]).all()):
        return False
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
    return not (square and torch.equal(tensor, torch.eye(len(tensor), dtype=tensor.dtype, device=tensor.device)))
