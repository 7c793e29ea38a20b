"""Checks what owns the memory of outputs, and how they are laid out. An output belongs to its reader for as long as the reader needs it.

An output must not share elements with an input, with anything that the model keeps, or with another output of this call or an earlier one, and no two
of its elements may share memory, unless the same is true of the task's own outputs. The outputs of the most recent calls are held in order to detect
later overwrites.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from verifier.layout import LayoutError

HELD_CALLS = 16
MOST_HELD = 40  # number of calls whose outputs a party keeps; the judge holds more of them in timed calls than in trials
HELD_BYTES = 1 << 30
ITSELF, EARLIER = "itself", "earlier"
_MAP_BYTES = 1 << 28  # maximum size of a map of the memory in which two tensors are interleaved; for larger tensors, only extents are compared


@dataclass
class HeldOutputs:
    """Outputs of one object's most recent calls, as many as fit in memory."""

    calls: deque[tuple[int, list[torch.Tensor], list[torch.Tensor]]] = field(default_factory=deque)  # number, handed-over outputs, returned outputs
    count: int = 0

    def add(self, tensors: list[torch.Tensor], returned: list[torch.Tensor]) -> None:
        self.calls.append((self.count, tensors, returned))
        self.count += 1
        while len(self.calls) > MOST_HELD or sum(tensor.nbytes for _, kept, _ in self.calls for tensor in kept) > HELD_BYTES:
            self.calls.popleft()

    def of(self, number: int) -> list[torch.Tensor] | None:
        return next((tensors for at, tensors, _ in self.calls if at == number), None)

    def outlived(
        self, borrowed: Sequence[bool], in_use: Callable[[list[tuple[int, int]]], list[bool]] = lambda extents: [False] * len(extents)
    ) -> int:
        """Forgets all outputs, and returns the number of calls of which outputs still exist, because the program has kept them. `borrowed` says, for
        each output, whether the task itself returns memory that it keeps. `in_use` says which ranges of addresses are still in use: a program that
        wraps its own memory as a new tensor in each call keeps no tensor, but the memory remains, and a later call can write to it."""
        left: list[tuple[list[StorageWeakRef], list[tuple[int, int]]]] = []
        for _, handed, returned in self.calls:
            tensors = [tensor for at, tensor in enumerate(returned or handed) if tensor.numel() and not (at < len(borrowed) and borrowed[at])]
            left.append(
                ([StorageWeakRef(tensor.untyped_storage()) for tensor in tensors], [extent(tensor) for tensor in tensors if _may_be_wrapped(tensor)])
            )
        handed = returned = tensors = []  # these names still refer to tensors of the last call
        self.clear()
        gc.collect()  # a model may create cycles that hold its outputs
        extents = [one for _, call in left for one in call]
        used = dict(zip(extents, in_use(extents), strict=True))
        return sum(not all(one.expired() for one in storages) or any(used[one] for one in call) for storages, call in left)

    def clear(self) -> None:
        self.calls.clear()
        self.count = 0


def _may_be_wrapped(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor's memory may not be torch's own. On the CPU, where finding out whether memory is in use disturbs later calls, storages
    that torch allocated itself are left out: they can be resized, and those that wrap other memory (`from_numpy`, `from_blob`) cannot."""
    return tensor.device.type != "cpu" or not tensor.untyped_storage().resizable()


class Footprint(NamedTuple):
    """The memory that a tensor occupies. It outlives the tensor, whose memory may then belong to another one."""

    pointer: int
    storage: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    size: int  # bytes of an element
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Footprint:
        pointer, storage = tensor.data_ptr(), tensor.untyped_storage().data_ptr()
        return cls(pointer, storage, tuple(tensor.shape), tensor.stride(), tensor.element_size(), tensor.device)

    @property
    def empty(self) -> bool:
        return 0 in self.shape

    @property
    def extent(self) -> tuple[int, int]:
        """Returns the addresses of the first byte and of the byte after the last."""
        last = sum((size - 1) * step for size, step in zip(self.shape, self.steps, strict=True))
        return self.pointer, self.pointer + (last + 1) * self.size


def owners(tensors: list[torch.Tensor], inputs: list[torch.Tensor], state: dict[str, torch.Tensor], held: HeldOutputs | None = None) -> list[str]:
    """Returns, for each output, what it shares memory with, as words separated by "|": "input 0", a state name, "output 1", `EARLIER` for an output
    of an earlier call, or `ITSELF` if two of its elements share memory. The text is empty for an output that shares no memory."""
    before = [other for _, kept, returned in held.calls for other in [*kept, *returned]] if held is not None else []
    outputs, given, earlier = (list(map(Footprint.of, some)) for some in (tensors, inputs, before))
    return owners_of(outputs, given, footprints(state), earlier)


def footprints(state: dict[str, torch.Tensor]) -> dict[str, Footprint]:
    return {name: Footprint.of(value) for name, value in state.items()}


def owners_of(outputs: list[Footprint], inputs: list[Footprint], state: dict[str, Footprint], before: Sequence[Footprint] = ()) -> list[str]:
    """Returns the same as `owners`, for tensors that no longer exist except as footprints. `before` holds outputs of earlier calls."""
    found = []
    for index, one in enumerate(outputs):
        words = [f"input {at}" for at, other in enumerate(inputs) if _meet(one, other)]
        words += [name for name, other in state.items() if not other.empty and not one.empty and other.storage == one.storage]
        words += [f"output {at}" for at, other in enumerate(outputs) if at != index and _share(one, other)]
        words += [EARLIER] if any(_share(one, other) for other in before) else []
        words += [ITSELF] if _overlapping(one) else []
        found.append("|".join(words))
    return found


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the addresses of a tensor's first byte and of the byte after its last."""
    return Footprint.of(tensor).extent


def overlapping(tensor: torch.Tensor) -> bool:
    """Returns whether two elements share memory."""
    return _overlapping(Footprint.of(tensor))


def share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors have an element in common. Columns of one allocation are interleaved but share no elements."""
    return _share(Footprint.of(one), Footprint.of(other))


def _overlapping(one: Footprint) -> bool:
    """Checks whether, with dimensions ordered by stride, any stride is too small to step over everything that the earlier dimensions cover."""
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(one.shape, one.steps, strict=True) if size > 1):
        if step <= reach:
            return not one.empty
        reach += (size - 1) * step
    return False


def _share(one: Footprint, other: Footprint) -> bool:
    if not _meet(one, other) or one.storage != other.storage:
        return False
    begin, end = min(one.extent[0], other.extent[0]), max(one.extent[1], other.extent[1])
    size = one.size
    if size != other.size or (end - begin) // size > _MAP_BYTES or (one.pointer - other.pointer) % size:
        return True
    covered = torch.zeros((end - begin) // size, dtype=torch.bool, device=one.device)
    covered.as_strided(one.shape, one.steps, (one.pointer - begin) // size).fill_(True)
    return bool(covered.as_strided(other.shape, other.steps, (other.pointer - begin) // size).any())


def _meet(one: Footprint, other: Footprint) -> bool:
    if one.empty or other.empty or one.device != other.device:
        return False
    return one.extent[0] < other.extent[1] and other.extent[0] < one.extent[1]


def strides(tensors: Sequence[torch.Tensor]) -> list[list[int] | None]:
    """Returns the strides of the task's outputs, or None for an output with gaps or overlaps, for which any layout is accepted."""
    return [list(tensor.stride()) if _dense(tensor) else None for tensor in tensors]


def _dense(tensor: torch.Tensor) -> bool:
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def laid_down(output: Any, layout: Sequence[Sequence[int] | None]) -> Any:
    """Returns `output` with its tensors laid out like the task's. This happens within the timed interval, because otherwise a reader would have to do
    it. A tensor that already has the layout remains the same object."""
    return _laid(output, iter(layout))


def _laid(value: Any, layout: Any) -> Any:
    if isinstance(value, torch.Tensor):
        wanted = next(layout, None)
        if value.layout is not torch.strided:
            raise LayoutError(f"an output has the layout {value.layout}; it must be torch.strided")
        if wanted is None or len(wanted) != value.dim() or _alike(value, wanted):
            return value
        return torch.empty_strided(value.shape, wanted, dtype=value.dtype, device=value.device).copy_(value.detach())
    if type(value) in (list, tuple):
        items = [_laid(item, layout) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    if type(value) is dict:
        found = {key: _laid(item, layout) for key, item in value.items()}
        return value if all(found[key] is value[key] for key in found) else found
    return value


def _alike(tensor: torch.Tensor, wanted: Sequence[int]) -> bool:
    stride = tensor.stride()
    if stride == tuple(wanted):
        return True
    return tensor.numel() == 0 or all(size == 1 or a == b for size, a, b in zip(tensor.shape, stride, wanted, strict=True))
