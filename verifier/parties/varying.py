"""Makes all weights of a constructor depend on the seed: values that an initialiser sets to zeros, ones or any other constant become random.

A task and a program whose state dicts do not match can only be compared as constructed. A gate that starts at zero would then hide everything that it
multiplies, for every seed. Within `varying`, a parameter or buffer that is set to a constant receives random values instead, and values derived from
it change accordingly. The random values are the same in two constructors that set up equal weights in the same order. Values that come from a
generator, or from such weights, are unchanged.
"""

# sandboxed: active while constructors of tasks and programs run

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from verifier.randomising import randomised

BLANK, FIXED, RANDOM = "blank", "fixed", "random"
_EMPTY = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
_OVERWRITE = ("zero_", "fill_", "copy_", "eye", "set_")


class Varying(TorchDispatchMode):
    """Tracks which storages hold random numbers."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.seed = seed
        self.status: dict[int, str] = {}
        self.weights: dict[int, tuple[torch.Tensor, str, bool]] = {}  # by storage: tensor that keeps it alive, buffer name, is a parameter
        self.ordinals: dict[tuple[Any, ...], int] = {}
        self.counts: dict[tuple[Any, ...], int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False, because nothing is compiled here (see `verifier.parties.oracle.Wide`)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        written = _written(func, args, kwargs)
        own = {id(tensor) for tensor in written}
        drawn = torch.Tag.nondeterministic_seeded in func.tags or any(self.of(tensor) == RANDOM for tensor in given if id(tensor) not in own)
        for tensor in written:
            self._write(tensor, drawn, name in _OVERWRITE)
        known = {_key(tensor) for tensor in given}
        for tensor in pytree.tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and _key(tensor) not in known:
                self.status[_key(tensor)] = RANDOM if drawn else BLANK if name in _EMPTY else FIXED
        return output

    def of(self, tensor: torch.Tensor) -> str:
        return self.status.get(_key(tensor), FIXED)

    def _write(self, tensor: torch.Tensor, drawn: bool, overwrites: bool) -> None:
        key = _key(tensor)
        whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
        before = self.of(tensor)
        if drawn:
            self.status[key] = RANDOM
        elif overwrites and (whole or before == BLANK):
            self.status[key] = FIXED
        if key in self.weights and not drawn and (overwrites or self.of(tensor) == FIXED):
            _, name, parameter = self.weights[key]
            self._vary(tensor, name, parameter)

    def enlist(self, tensor: torch.Tensor, name: str, parameter: bool) -> None:
        """Registers a new parameter or buffer."""
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel() or tensor.device.type == "meta":
            return
        key = _key(tensor)
        self.weights.setdefault(key, (tensor.detach(), name, parameter))
        if self.of(tensor) == FIXED:
            self._vary(tensor, name, parameter)

    def _vary(self, tensor: torch.Tensor, name: str, parameter: bool) -> None:
        with _disable_current_modes(), torch.no_grad():
            values = tensor.detach().cpu().contiguous()
            digest = hashlib.sha256(values.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
            group = (parameter, tuple(tensor.shape), digest)
            mine = (_key(tensor), *group)
            if mine not in self.ordinals:
                self.ordinals[mine] = self.counts[group] = self.counts.get(group, -1) + 1
            seed = hashlib.sha256(repr((self.seed, group, self.ordinals[mine])).encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(seed[:7], "little"))
            other = randomised(name, values, parameter, generator, flips=False)  # no narrower values are tried where the task fails
            if other is not None:
                tensor.detach().copy_(other)
        self.status[_key(tensor)] = RANDOM


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Returns the arguments that an operator writes to."""
    found = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = kwargs.get(argument.name, args[index] if index < len(args) else None)
        found += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return found


@contextlib.contextmanager
def varying(seed: int) -> Iterator[None]:
    mode = Varying(seed)
    new, register = torch.nn.Parameter.__new__, torch.nn.Module.register_buffer

    def made(cls: Any, *args: Any, **kwargs: Any) -> Any:
        parameter = new(cls, *args, **kwargs)
        mode.enlist(parameter, "", True)
        return parameter

    def registered(self: torch.nn.Module, name: str, tensor: torch.Tensor | None, persistent: bool = True) -> None:
        register(self, name, tensor, persistent)
        if persistent and isinstance(tensor, torch.Tensor):
            mode.enlist(tensor, name, False)

    torch.nn.Parameter.__new__ = made  # type: ignore[method-assign]  # replaced while the model is constructed
    torch.nn.Module.register_buffer = registered  # type: ignore[method-assign]  # as above
    try:
        with mode:
            yield
    finally:
        torch.nn.Parameter.__new__ = staticmethod(new)  # type: ignore[method-assign]  # as it was
        torch.nn.Module.register_buffer = register  # type: ignore[method-assign]  # as it was
