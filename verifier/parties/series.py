"""A party's side of a series of consecutive calls, which are timed through a page that it shares with the judge (`verifier/shim/series.c`)."""

# sandboxed: calls the models that tasks and programs define

from __future__ import annotations

import dataclasses
import gc
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import DispatchKey
from torch.utils._device import DeviceContext

from verifier.channel import Channel, Frame
from verifier.devices.base import PartyDevice
from verifier.layout import LayoutError, Spec, decode, encode, read_specs, view
from verifier.parties.naming import resolver
from verifier.parties.owning import Footprint, HeldOutputs
from verifier.parties.seeding import seed_everything
from verifier.shim.clock import Clock, ClockError

_WRAPPERS = (DispatchKey.Functionalize, DispatchKey.FuncTorchBatched, DispatchKey.FuncTorchGradWrapper, DispatchKey.ZeroTensor)


@dataclass
class Room:
    """The space that the judge provides for one call's outputs: views for tensors of the expected form, and offsets for any others."""

    arena: torch.Tensor
    views: list[torch.Tensor]
    places: list[tuple[int, int]]  # (offset, bytes)

    @classmethod
    def of(cls, arena: torch.Tensor, expected: list[Spec], room: list[dict[str, int]]) -> Room:
        places = [(int(one["offset"]), int(one["nbytes"])) for one in room]
        return cls(arena, [view(arena, spec, offset) for spec, (offset, _) in zip(expected, places, strict=True)], places)

    def take(self, tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
        """Copies outputs there in the layout that the judge expects. Returns the copies, or None if they do not fit. The cost of changing a layout is
        part of the copy time, and is therefore charged to the program."""
        if len(tensors) != len(self.views):
            return None
        places = list(self.views)
        for at, (tensor, expected) in enumerate(zip(tensors, self.views, strict=True)):
            if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                spec, (offset, most) = Spec.of(tensor), self.places[at]
                if spec.nbytes > most:
                    return None
                places[at] = view(self.arena, spec, offset)
        for place, tensor in zip(places, tensors, strict=True):
            if tensor.numel():
                place.copy_(tensor)
        return places


@dataclass
class Handed:
    """The result of a call, which is described after all calls have ended."""

    tree: Any
    tensors: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]
    left: list[tuple[bool, bool]]  # for each tensor: whether the call returned a view that must be negated or conjugated when read
    copied: bool
    footprints: list[Footprint]  # memory of the tensors that the call returned

    def message(self, shared: list[str]) -> dict[str, Any]:
        """Describes the call. `shared` lists what each tensor shared memory with (see `verifier.parties.owning.owners`)."""
        specs = [Spec.of(torch.empty_strided(shape, stride, dtype=dtype, device="meta")) for shape, stride, dtype in self.tensors]
        kinds = [{"left": "neg" if negates else "conj" if conjugates else None} for negates, conjugates in self.left]
        specs = [spec.model_copy(update=kind) for spec, kind in zip(specs, kinds, strict=True)]
        return {"tree": self.tree, "specs": [spec.model_dump(exclude_none=True) for spec in specs], "copied": self.copied, "shared": shared}


class SeriesRole:
    """The part of `Role` that handles `page` and `series`."""

    channel: Channel
    device: PartyDevice
    arenas: dict[str, torch.Tensor]
    model: Any
    module: Any
    previous: list[torch.Tensor]
    last: HeldOutputs

    def invoke(self, model: Any, inputs: Any, frame: Frame) -> Any:
        raise NotImplementedError

    def owners_in_series(self, outputs: list[list[Footprint]], inputs: list[Any]) -> list[list[str]]:
        raise NotImplementedError

    def before_call(self) -> None:
        """Runs just before each call of a series, before its inputs can be read."""

    def do_page(self, frame: Frame) -> dict[str, Any]:
        """Maps the page through which judge and party synchronise."""
        self._clock().open_page(frame.fds[0])
        for descriptor in frame.fds:
            os.close(descriptor)
        return {"type": "ok"}

    def do_series(self, frame: Frame) -> dict[str, Any]:
        """Makes the calls that the judge requests, each with its own inputs, seed and space for outputs. The judge does not reveal which of them
        count. With ``empty``, nothing is called, which measures the cost of an exchange.

        The host does as little as possible between calls, because a user's loop does nothing there either, and Python code would evict the call's own
        code from the processor's caches (decoding steps with 66 kernels each took 168 us instead of 127 us on an H100 host).
        """
        clock, calls = self._clock(), frame.message["calls"]
        arena, nbytes = self.arenas[frame.message["arena"]], int(frame.message["nbytes"])
        specs, expected = read_specs(frame.message["specs"]), read_specs(frame.message["expected"])
        inputs = [self._arguments(frame, arena, specs, call["offsets"]) for call in calls]
        rooms = [Room.of(self.arenas["out"], expected, call["room"]) for call in calls]
        places = [arena.data_ptr() + int(call["begin"]) for call in calls]
        seeds, model, fd = [call.get("rng") for call in calls], self.model, self.channel.fileno()
        handed: list[Handed] = []
        held = frame.message.get("hold")  # the call whose outputs are kept here in order to detect later overwrites
        if seeds and seeds[0] is None:
            seed_everything(1)
        gc.collect(0)
        gc.disable()
        self.device.prepare()
        self.channel.send({"type": "ready"}, timeout=None)
        self.channel.sock.settimeout(None)
        try:
            for number, place in enumerate(places):
                if seeds[number] is not None:
                    seed_everything(seeds[number])
                self.before_call()
                output = self._timed(clock, fd, number, place, nbytes, model, inputs[number], frame)
                handed.append(self._handed_over(output, rooms[number]))
                output = None
                clock.copied()
                if number == held:
                    self.last.add(self.previous, [])
        except BaseException as error:
            clock.abort()
            raise (self.device.failure(error) if isinstance(error, ClockError) else error) from None
        finally:
            gc.enable()
        shared = self.owners_in_series([one.footprints for one in handed], inputs)
        return {"type": "outputs", "calls": [one.message(words) for one, words in zip(handed, shared, strict=True)]}

    def _timed(self, clock: Clock, fd: int, number: int, place: int, nbytes: int, model: Any, inputs: Any, frame: Frame) -> Any:
        output = failure = None
        empty = frame.message.get("empty")
        clock.wait(fd, number, place, nbytes)
        try:
            if not empty:
                output = self.invoke(model, inputs, frame)
        except BaseException as error:
            failure = error
        clock.ended()
        if failure is not None:
            raise failure
        return output

    def _handed_over(self, output: Any, room: Room) -> Handed:
        """Copies outputs to the space that the judge provides, if they fit."""
        tree, tensors = delivered(output, self.device.torch_device)
        copies = room.take(tensors)
        if copies is not None:
            self.device.sync()
        self.previous = tensors
        described = tensors if copies is None else copies
        forms = [(tuple(tensor.shape), tensor.stride(), tensor.dtype) for tensor in described]
        left = [(tensor.is_neg(), tensor.is_conj()) for tensor in tensors]
        return Handed(tree, forms, left, copies is not None, [Footprint.of(tensor) for tensor in tensors])

    def _arguments(self, frame: Frame, arena: torch.Tensor, specs: list[Spec], offsets: list[int]) -> Any:
        tensors = [view(arena, spec, offset) for spec, offset in zip(specs, offsets, strict=True)]
        values = decode(frame.message["tree"], tensors, resolve=resolver(self.module))
        return values if isinstance(values, (list, tuple)) else [values]

    def _clock(self) -> Clock:
        clock = self.device.series
        if clock is None:
            raise RuntimeError("this device has no clock for a series of calls")
        return clock


def delivered(output: Any, torch_device: str) -> tuple[Any, list[torch.Tensor]]:
    """Returns the tree and tensors of a call's result. It does not run the code of a custom container, because that code would not be timed. Raises
    `LayoutError`."""
    leaves = _leaves(output)
    if torch._C._len_torch_dispatch_stack() or any(mode is not DeviceContext for mode in _function_modes()):
        raise LayoutError("a mode that intercepts torch's functions is still active after forward returned; exit it before forward returns")
    for tensor in leaves:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or _wrapped(tensor):
            raise LayoutError(f"an output is a {type(tensor).__name__}; it must be a plain torch.Tensor")
        if tensor.device.type != torch.device(torch_device).type:
            raise LayoutError(f"an output is on {tensor.device}; it must be on the device {torch_device}")
    tensors: list[torch.Tensor] = []
    tree = encode(output, tensors)
    return tree, tensors


def _function_modes() -> list[type]:
    """Returns the types of torch's active function modes. A default device is such a mode, and any code may set one."""
    return [type(torch._C._get_function_stack_at(at)) for at in range(torch._C._len_torch_function_stack())]


def _wrapped(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has no storage of its own: a wrapper from torch.func or functionalization, or zeros that are not materialised."""
    keys = torch._C._dispatch_keys(tensor)
    return any(keys.has(key) for key in _WRAPPERS)


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(dict.values(value))
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if not isinstance(value, (list, tuple)):
        return []
    kind: Any = list if isinstance(value, list) else tuple
    own: Any = type(value).__iter__
    if own is not kind.__iter__:
        raise LayoutError(f"outputs are held by a {type(value).__name__} with an iterator of its own; return a plain {kind.__name__}")
    return [leaf for item in own(value) for leaf in _leaves(item)]
