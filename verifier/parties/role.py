"""The base of a party's roles: arenas, tensors that wait to be fetched, and the timed call."""

# sandboxed: calls the models that tasks and programs define

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import torch

from verifier.channel import Channel, Frame
from verifier.devices.base import PartyDevice
from verifier.float8 import continuous, follows_policy
from verifier.layout import Spec, decode, encode, read_specs, view
from verifier.parties.gradients import forward_backward
from verifier.parties.naming import resolver
from verifier.parties.owning import Footprint, HeldOutputs, footprints, laid_down, owners, owners_of
from verifier.parties.plain_state import lasting
from verifier.parties.seeding import seed_everything
from verifier.parties.series import SeriesRole, delivered


class Role(SeriesRole):
    """A role. `held` keeps tensors by name until the judge has allocated space for them and sends `put`."""

    module: Any = None  # the module of the task or program
    own_types = False  # whether the task chooses 16-bit types itself, so that the precision policy casts nothing
    graphed = False  # whether the model replays a CUDA graph that includes the gradients

    def __init__(self, channel: Channel, home: str, device: PartyDevice, frame: Frame):
        self.channel = channel
        self.home = home
        self.device = device
        self.precision = frame.text("precision")
        self.mode = frame.text("mode")
        self.arenas: dict[str, torch.Tensor] = {}
        self.held: dict[str, list[torch.Tensor]] = {}
        self.model: Any = None
        self.previous: list[torch.Tensor] = []
        self.earlier: list[torch.Tensor] = []
        self.last = HeldOutputs()  # outputs of the calls in the program's trials

    # Arenas

    def do_attach(self, frame: Frame) -> dict[str, Any]:
        self.arenas[frame.text("arena")] = self.device.attach(frame.message["handle"], frame.fds)
        return {"type": "ok"}

    def do_detach(self, frame: Frame) -> dict[str, Any]:
        """Unmaps an arena. This is never requested for a program's inputs, because the program may have kept views of them."""
        arena = self.arenas.pop(frame.text("arena"), None)
        if arena is not None:
            self.device.detach(arena)
        return {"type": "ok"}

    def do_put(self, frame: Frame) -> dict[str, Any]:
        """Writes held tensors into an arena at the offsets that the judge chose."""
        self.store(self.held[frame.text("what")], self.arenas[frame.text("arena")], frame.message["offsets"])
        self.device.sync()
        return {"type": "ok"}

    def store(self, tensors: list[torch.Tensor], arena: torch.Tensor, offsets: list[int]) -> None:
        for tensor, offset in zip(tensors, offsets, strict=True):
            if tensor.numel():
                view(arena, Spec.of(tensor), offset).copy_(tensor)

    def take(self, message: dict[str, Any]) -> list[torch.Tensor]:
        """Returns views of tensors that are stored in an arena: ``{"arena", "specs", "offsets"}``."""
        arena = self.arenas[message["arena"]]
        return [view(arena, spec, offset) for spec, offset in zip(read_specs(message["specs"]), message["offsets"], strict=True)]

    def hold(self, name: str, value: Any, whole: bool = False) -> dict[str, Any]:
        """Holds the tensors of `value`, and returns its description as a tree and specs. `whole`: the tensors are arguments."""
        tensors: list[torch.Tensor] = []
        tree = encode(value, tensors, whole=whole)
        self.held[name] = tensors
        return {"tree": tree, "specs": [Spec.of(tensor).model_dump(exclude_none=True) for tensor in tensors]}

    # Calls

    def inputs(self, frame: Frame) -> Any:
        values = decode(frame.message["tree"], self.take(frame.message), resolve=resolver(self.module))
        return values if isinstance(values, (list, tuple)) else [values]

    def do_call(self, frame: Frame) -> dict[str, Any]:
        """Makes one call with inputs from an arena. The clock runs from the judge's byte to the device's sync. Afterwards, the outputs are copied to
        their slot, and those of the previous call are copied again."""
        inputs = self.inputs(frame)
        seed_everything(frame.integer("rng"))
        fd = self.channel.fileno()
        self.channel.sock.settimeout(None)
        gc.collect(0)
        gc.disable()
        output = laid = failure = None
        model, layout = self.model, frame.message.get("layout") or ()
        self.device.prepare()
        self.channel.send({"type": "ready"}, timeout=None)
        self.channel.sock.settimeout(None)
        self.device.go(fd)
        try:
            output = self.invoke(model, inputs, frame)
            laid = laid_down(output, layout) if layout else output
        except BaseException as error:
            failure = error
        self.device.done(fd)
        gc.enable()
        if failure is not None:
            raise failure
        tree, tensors = delivered(laid, self.device.torch_device)
        relaid = laid is not output
        specs = [Spec.of(tensor) for tensor in tensors]
        slot = frame.message["slot"]
        offsets = slot["offsets"]
        fits = len(offsets) == len(specs) and all(spec.nbytes <= room for spec, room in zip(specs, slot["room"], strict=True))
        if fits:
            self.store(tensors, self.arenas[slot["arena"]], offsets)
            again = frame.message.get("again")
            if again and len(self.previous) == len(again):
                self.store(self.previous, self.arenas[slot["arena"]], again)
            self.device.sync()
        kept = frame.message.get("kept", True)  # gigabytes of outputs are copied again only when `again` requests it
        self.earlier = self.previous if kept == "both" else []
        self.previous = tensors if kept else []
        returned: list[torch.Tensor] = []
        encode(output, returned)
        shared = self.owners(returned, inputs)
        if frame.message.get("hold"):
            self.last.add(tensors, returned)
        if frame.message.get("need"):
            del output, laid, returned
            self.device.trim(frame.integer("need"))
        described = [spec.model_dump(exclude_none=True) for spec in specs]
        return {"type": "outputs", "tree": tree, "specs": described, "copied": fits, "shared": shared, "laid": relaid}

    def do_again(self, frame: Frame) -> dict[str, Any]:
        """Copies the outputs of the second-to-last call again, to the location of the last call's outputs."""
        slot = frame.message["slot"]
        earlier, self.earlier = self.earlier, []
        if len(earlier) == len(slot["offsets"]):
            self.store(earlier, self.arenas[slot["arena"]], slot["offsets"])
            self.device.sync()
        return {"type": "ok"}

    def do_held(self, frame: Frame) -> dict[str, Any]:
        """Copies the outputs of an earlier call, identified by its number since the object was created, over the outputs of the last call. The copy
        uses the layout in which the judge read the outputs, because a call in a series may have returned another layout."""
        slot, tensors = frame.message["slot"], self.last.of(frame.integer("number")) or []
        room = self.take(slot)
        fits = len(tensors) == len(room) and all(
            one.shape == other.shape and one.dtype == other.dtype for one, other in zip(tensors, room, strict=True)
        )
        if fits:
            for tensor, place in zip(tensors, room, strict=True):
                place.copy_(tensor)
            self.device.sync()
        return {"type": "ok", "copied": fits}

    def do_outlived(self, frame: Frame) -> dict[str, Any]:
        """Drops the outputs that this process holds, and returns the number of calls whose outputs the program keeps nevertheless."""
        self.previous, self.earlier = [], []
        return {"type": "ok", "calls": self.last.outlived([bool(one) for one in frame.message["borrowed"]], self.device.in_use)}

    def do_trim(self, frame: Frame) -> dict[str, Any]:
        """Frees memory that this process caches but does not use. Nothing is being timed at that point."""
        self.previous, self.earlier = [], []
        self.last.clear()
        self.device.trim(frame.integer("need"))
        return {"type": "ok"}

    def owners(self, tensors: list[torch.Tensor], inputs: Any) -> list[str]:
        """Returns what owns each output's memory (`verifier.parties.owning`)."""
        return owners(tensors, _given(inputs), self._kept_tensors(), self.last)

    def owners_in_series(self, outputs: list[list[Footprint]], inputs: list[Any]) -> list[list[str]]:
        """Returns the same for each call of a series, after the last one. Only the last call's outputs still exist. The memory of the others may have
        been reused by now, so it is compared only with the inputs."""
        state = footprints(self._kept_tensors())
        calls = enumerate(zip(outputs, inputs, strict=True), 1)
        return [owners_of(one, list(map(Footprint.of, _given(given))), state if at == len(outputs) else {}) for at, (one, given) in calls]

    def _kept_tensors(self) -> dict[str, torch.Tensor]:
        """Returns the parameters and buffers of the model."""
        model = getattr(self.model, "_orig_mod", self.model)
        return dict([*model.named_parameters(), *model.named_buffers()]) if isinstance(model, torch.nn.Module) else {}

    def invoke(self, model: Any, inputs: Any, frame: Frame) -> Any:
        """Runs what is measured: forward or, with `backward`, forward and the gradients. Roles do not override this method, because the host's caches
        are cold when the clock starts, and each additional Python function costs one or two microseconds."""
        wanted = None if self.graphed else frame.message.get("backward")
        if wanted is None:
            with torch.no_grad():
                return model(*inputs)
        return forward_backward(model, inputs, wanted)

    def do_empty(self, frame: Frame) -> dict[str, Any]:
        """Makes the same exchange without a call, to calibrate the round trip."""
        fd = self.channel.fileno()
        self.device.prepare()
        self.channel.send({"type": "ready"}, timeout=None)
        self.channel.sock.settimeout(None)
        self.device.go(fd)
        self.device.done(fd)
        return {"type": "ok"}

    def do_rest(self, frame: Frame) -> dict[str, Any]:
        """Stops the idle compiler processes of torch.compile, because their work does not belong to the model, and nothing may run while the other
        side is timed. A later compilation restarts them. With `anew`, also frees unused memory segments before the warm-up, because the program and
        eager have different histories, and the duration of an allocation depends on the number of free blocks."""
        if frame.message.get("anew"):
            self.device.give_back()
        compilers = sys.modules.get("torch._inductor.async_compile")
        if compilers is not None:
            with contextlib.suppress(Exception):  # a program may have changed the module
                compilers.shutdown_compile_workers()
        return {"type": "ok"}

    def do_profile(self, frame: Frame) -> dict[str, Any]:
        """Makes a few calls under a profiler. If this process holds a trace, it is returned as raw bytes."""
        from verifier.profiling.calls import profiled_calls  # only for profiles; every party starts sooner without it

        tool = frame.text("tool")
        inputs, model, seed = self.inputs(frame), self.model if tool == "sanitizer" else self.traced_model(), frame.integer("rng")
        if tool in ("ncu", "sanitizer"):
            # These tools save, restore and monitor memory, but must not touch memory that belongs to another process.
            inputs = map_tensors(list(inputs), lambda tensor: tensor.clone())
            self.device.sync()
            for name in list(self.arenas):
                self.device.detach(self.arenas.pop(name))

        seed_everything(seed)  # once only: seeding takes longer than many calls

        def call() -> None:
            model(*inputs)

        return {"type": "ok", "raw": profiled_calls(call, frame.integer("iterations", 5), tool, self.device.sync)}

    def traced_model(self) -> Any:
        """Returns the model that a profiler watches."""
        return self.model

    def do_state(self, frame: Frame) -> dict[str, Any]:
        """Holds the parameters and buffers that the judge names, ready for `put`. If one is missing, returns its name instead of the specs."""
        state = self.state()
        names = frame.message["names"]
        missing = next((name for name in names if name not in state), None)
        if missing is not None:
            return {"type": "ok", "specs": None, "missing": missing}
        return {"type": "ok", **self.hold("state", [state[name] for name in names])}

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that the model keeps, by name."""
        return lasting(getattr(self.model, "_orig_mod", self.model))

    def do_peak(self, frame: Frame) -> dict[str, Any]:
        return {"type": "ok", "bytes": self.device.peak_bytes(), "held": self.device.held_bytes()}

    def policy_type(self) -> torch.dtype | None:
        """Returns the type to which models and inputs are cast, or null if they keep their own types."""
        return None if self.own_types else {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)

    def cast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Moves a value to the device and, under the bf16 and fp16 policies, casts it to that type, as KernelBench does with models and inputs."""
        dtype = self.policy_type()
        return tensor.to(device=self.device.torch_device, dtype=dtype if dtype is not None and follows_policy(tensor) else None)

    def cast_model(self, model: Any) -> Any:
        dtype = self.policy_type()
        model = model.to(self.device.torch_device)
        if dtype is None:
            return model
        # `Module.to` would also cast float8 tensors
        return model._apply(lambda tensor: tensor.to(dtype) if continuous(tensor) else tensor)


def _given(inputs: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    encode(list(inputs), found, whole=True)
    return found


def map_tensors(value: Any, change: Any) -> Any:
    """Replaces every tensor in the lists, tuples, dicts, named tuples and dataclasses of `value`; modules are copied."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, change) for item in value) if type(value) in (list, tuple) else value
    if type(value) in (dict, OrderedDict):
        return type(value)((key, map_tensors(item, change)) for key, item in value.items())
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value)
    if (dataclasses.is_dataclass(value) or isinstance(value, SimpleNamespace)) and not isinstance(value, type):
        made = copy.copy(value)
        for name, item in list(getattr(value, "__dict__", {}).items()):
            object.__setattr__(made, name, map_tensors(item, change))
        return made
    return value
