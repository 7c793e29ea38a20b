"""Draws the random numbers of constructors on the device, for models with gigabytes of weights.

`nn.Linear` and similar modules fill their parameters on the host, one number at a time in a single thread. This takes 10 s for 8 GiB, in every
process that constructs the model. Within `drawn_on`, filling a large host tensor draws a seed from the host's generator and the numbers on the
device. A task and a program constructed under the same seed therefore get the same numbers. A parameter stays on the device where its numbers were
drawn; for any other tensor, the numbers are copied to the host.
"""

# sandboxed: active while constructors of tasks and programs run

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from verifier.parties.varying import varying

LARGE = 1 << 24  # elements
_FILLS = ("uniform_", "normal_")


def constructed(make: Callable[[], Any], device: str, seed: Callable[[], None], vary: int | None = None) -> Any:
    """Constructs a model by calling `make` after `seed`. If the constructor combines its large weights with host tensors, it is called again with the
    weights on the host. `vary` is a seed for values that initialisers would set to constants (see `verifier.parties.varying`)."""
    with contextlib.nullcontext() if vary is None else varying(vary):
        return _constructed(make, device, seed)


def _constructed(make: Callable[[], Any], device: str, seed: Callable[[], None]) -> Any:
    seed()
    if device == "cpu":
        return make()
    moved: list[torch.Size] = []
    try:
        with drawn_on(device, moved):
            return make()
    except (RuntimeError, TypeError):  # possibly tensors on different devices, a tensor passed to numpy, or too little device memory
        if not moved:
            raise
    seed()
    with drawn_on(device):
        return make()


@contextlib.contextmanager
def drawn_on(device: str, moved: list[torch.Size] | None = None) -> Iterator[None]:
    """Draws on the device while the context is open. With `moved`, parameters stay on the device where they are drawn, and their shapes are appended
    to the list."""
    before = {name: torch.Tensor.__dict__.get(name) for name in _FILLS}
    for name in _FILLS:
        setattr(torch.Tensor, name, _filling(getattr(torch.Tensor, name), device, moved))
    try:
        yield
    finally:
        for name, own in before.items():
            if own is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, own)


def _filling(fill: Callable[..., torch.Tensor], device: str, moved: list[torch.Size] | None) -> Callable[..., torch.Tensor]:
    def filled(self: torch.Tensor, *args: Any, generator: torch.Generator | None = None, **kwargs: Any) -> torch.Tensor:
        if self.device.type != "cpu" or self.numel() < LARGE or generator is not None or type(self) not in (torch.Tensor, torch.nn.Parameter):
            return fill(self, *args, generator=generator, **kwargs)
        own = torch.Generator(device=device).manual_seed(int(torch.randint(1 << 62, ())))
        drawn = fill(torch.empty(self.shape, dtype=self.dtype, device=device), *args, generator=own, **kwargs)
        whole = self.is_contiguous() and self.untyped_storage().nbytes() == drawn.untyped_storage().nbytes()
        if moved is not None and whole and isinstance(self, torch.nn.Parameter):
            moved.append(self.shape)
            self.data = drawn
        else:
            with torch.no_grad():
                self.copy_(drawn)
        return self

    return filled
