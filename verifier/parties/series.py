"""A party's half of a series: calls one after the other, timed by steps in a page that it shares with the judge (`verifier/shim/series.c`)."""

# sandboxed: calls the models that tasks and programs define

from __future__ import annotations

import gc
import os
from typing import Any

import torch

from verifier.channel import Channel, Frame
from verifier.devices.base import PartyDevice
from verifier.layout import LayoutError, Spec, decode, encode, read_specs, view
from verifier.parties.seeding import seed_everything
from verifier.shim.clock import Clock, ClockError


class SeriesRole:
    """What `Role` answers to `page` and `series`."""

    channel: Channel
    device: PartyDevice
    arenas: dict[str, torch.Tensor]
    model: Any
    previous: list[torch.Tensor]

    def invoke(self, model: Any, inputs: Any, frame: Frame) -> Any:
        raise NotImplementedError

    def store(self, tensors: list[torch.Tensor], arena: torch.Tensor, offsets: list[int]) -> None:
        raise NotImplementedError

    def before_call(self) -> None:
        """Just before each call of a series, before its inputs can be read."""

    def do_page(self, frame: Frame) -> dict[str, Any]:
        """Maps the page in which judge and party meet."""
        self._clock().open_page(frame.fds[0])
        for descriptor in frame.fds:
            os.close(descriptor)
        return {"type": "ok"}

    def do_series(self, frame: Frame) -> dict[str, Any]:
        """The calls that the judge asks for, each with inputs, seed and room for outputs of its own. Which of them count it is not told. With
        ``empty`` nothing is called: what an exchange costs."""
        clock, calls = self._clock(), frame.message["calls"]
        begin, nbytes = self.arenas[frame.message["arena"]], int(frame.message["nbytes"])
        specs = read_specs(frame.message["specs"])
        inputs = [self._arguments(frame, begin, specs, call["offsets"]) for call in calls]
        model, fd = self.model, self.channel.fileno()
        answers: list[dict[str, Any]] = []
        gc.collect(0)
        gc.disable()
        self.device.prepare()
        self.channel.send({"type": "ready"}, timeout=None)
        self.channel.sock.settimeout(None)
        try:
            for number, call in enumerate(calls):
                seed_everything(int(call["rng"]))
                self.before_call()
                output = self._timed(clock, fd, number, begin.data_ptr() + int(call["begin"]), nbytes, model, inputs[number], frame)
                answers.append(self._handed_over(output, call["room"], frame) if not frame.message.get("empty") else {})
                del output
                clock.copied()
        except BaseException as error:
            clock.abort()
            raise (self.device.failure(error) if isinstance(error, ClockError) else error) from None
        finally:
            gc.enable()
        return {"type": "outputs", "calls": answers}

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

    def _handed_over(self, output: Any, room: list[dict[str, int]], frame: Frame) -> dict[str, Any]:
        """Copies outputs to where the judge made room, where they fit, and describes them."""
        tree, tensors = delivered(output, self.device.torch_device)
        specs = [Spec.of(tensor) for tensor in tensors]
        fits = len(room) == len(specs) and all(spec.nbytes <= place["nbytes"] for spec, place in zip(specs, room, strict=True))
        if fits:
            self.store(tensors, self.arenas["out"], [place["offset"] for place in room])
            self.device.sync()
        self.previous = tensors
        return {"tree": tree, "specs": [spec.model_dump(exclude_none=True) for spec in specs], "copied": fits}

    def _arguments(self, frame: Frame, arena: torch.Tensor, specs: list[Spec], offsets: list[int]) -> Any:
        values = decode(frame.message["tree"], [view(arena, spec, offset) for spec, offset in zip(specs, offsets, strict=True)])
        return values if isinstance(values, (list, tuple)) else [values]

    def _clock(self) -> Clock:
        clock = self.device.series
        if clock is None:
            raise RuntimeError("this device has no clock for a series of calls")
        return clock


def delivered(output: Any, torch_device: str) -> tuple[Any, list[torch.Tensor]]:
    """Tree and tensors of what a call returned, without calling a container's own code: it would run after the clock. Raises `LayoutError`."""
    leaves = _leaves(output)
    tensors: list[torch.Tensor] = []
    tree = encode(output, tensors)
    for tensor in leaves:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise LayoutError(f"an output is a {type(tensor).__name__}; it must be a plain torch.Tensor")
        if tensor.device.type != torch.device(torch_device).type:
            raise LayoutError(f"an output is on {tensor.device}; it must be on the device {torch_device}")
    return tree, tensors


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(dict.values(value))
    if not isinstance(value, (list, tuple)):
        return []
    kind: Any = list if isinstance(value, list) else tuple
    own: Any = type(value).__iter__
    if own is not kind.__iter__:
        raise LayoutError(f"outputs are held by a {type(value).__name__} with an iterator of its own; return a plain {kind.__name__}")
    return [leaf for item in own(value) for leaf in _leaves(item)]
