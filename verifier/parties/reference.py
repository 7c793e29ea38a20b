"""The reference role: runs the task to obtain its inputs, its eager results, its fp64 results and its graph. A second process in this role serves as
a timed baseline."""

# sandboxed: imports and runs tasks

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TextIO

import torch

from verifier.channel import Channel, Frame
from verifier.devices.base import PartyDevice
from verifier.float8 import TYPES, wide
from verifier.layout import LayoutError, Spec, encode
from verifier.own_types import chooses_types
from verifier.parties.dropping import Dropping
from verifier.parties.gradients import reachable
from verifier.parties.initialising import constructed
from verifier.parties.loading import load_source, unusable
from verifier.parties.oracle import Rough, Wide, default_double, widen
from verifier.parties.owning import owners, strides
from verifier.parties.permit import Permit
from verifier.parties.plain_state import PlainState, Variables, lasting
from verifier.parties.role import Role, map_tensors
from verifier.parties.seeding import generators, seed_everything
from verifier.parties.widening import WideCopies

CPU_FLOPS = 500_000_000_000  # number of operations, including convolutions, that a CPU can finish in an fp64 run within the oracle's time limit
LARGE = 1 << 30  # size of an input in bytes above which its new values are not passed on
PRINT_LIMIT = 64 * 1024  # maximum number of bytes that a task may print during admission


class Reference(Role):
    mutated: list[str] | None = None  # names of parameters and buffers that forward changes; known after the first run
    transient: dict[str, torch.Tensor] = {}  # buffers that the state dict does not contain, as constructed
    before: dict[str, torch.Tensor] = {}
    init: Any = ()  # the constructor's arguments
    plain: PlainState | None = None  # state outside the state dict, as constructed and before the last run
    plain_before: PlainState | None = None
    replays = False  # whether torch.compile uses its own CUDA graphs

    def __init__(self, channel: Channel, home: str, device: PartyDevice, frame: Frame, permit: Permit | None = None):
        super().__init__(channel, home, device, frame)
        self.permit = permit  # only for a baseline, which releases it while it compiles
        self.wide = WideCopies()

    def do_put(self, frame: Frame) -> dict[str, Any]:
        """Hands over held tensors and drops the references to them, because every copy counts if inputs take up gigabytes."""
        answer = super().do_put(frame)
        del self.held[frame.text("what")]
        self.device.trim(frame.integer("need"))
        return answer

    def do_trim(self, frame: Frame) -> dict[str, Any]:
        self.wide.clear()
        return super().do_trim(frame)

    def do_load(self, frame: Frame) -> dict[str, Any]:
        """Imports the task and constructs `Model` with a seed. With `watch`, writing files or printing endlessly raises an error that names the
        line."""
        if frame.message.get("watch"):
            watch(self.home)
        self.source = frame.text("source")
        self.own_types = chooses_types(self.source)
        self.step = "import"
        self.module = load_source("task", self.source, self.home)
        self.step = "get_init_inputs"
        init = self.module.get_init_inputs()
        if not isinstance(init, (list, tuple)):
            raise LayoutError(f"get_init_inputs returns {type(init).__name__!r}; it must return a list")
        described = self.hold("init", list(init), whole=True)
        self.step = "constructor"
        self.init = init
        model = self.model = self._constructed(frame.integer("seed"))
        if why := unusable(model):
            raise LayoutError(why)
        self.plain = self.plain_before = PlainState(model)
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        state = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
        self.names = list(state)
        self._keep_transient()
        self.held["state"] = [value.detach() for value in state.values()]
        first: dict[tuple[int, tuple[int, ...]], str] = {}
        entries = []
        for name, value in state.items():
            alias = first.setdefault((value.data_ptr(), tuple(value.shape)), name) if value.numel() else name
            entries.append({"name": name, "parameter": name in parameters, "alias": alias if alias != name else None})
        specs = [Spec.of(value).model_dump(exclude_none=True) for value in state.values()]
        return {"type": "ok", "init": described, "state": entries, "specs": specs}

    def _keep_transient(self) -> None:
        self.transient = {name: value.detach().clone() for name, value in lasting(self.model).items() if name not in self.names}

    def _constructed(self, seed: int, vary: int | None = None) -> torch.nn.Module:
        model = constructed(lambda: self.module.Model(*self.init), self.device.torch_device, lambda: seed_everything(seed), vary)
        if not isinstance(model, torch.nn.Module):
            raise LayoutError("`Model` must be a subclass of torch.nn.Module")
        cast: torch.nn.Module = self.cast_model(model)
        cast.train(self.mode == "train")
        return cast

    def do_redraw(self, frame: Frame) -> dict[str, Any]:
        """Constructs `Model` again with another seed, and holds its state. With `vary`, values that initialisers set to constants are random too."""
        self.step = "constructor"
        self.model = self._constructed(frame.integer("seed"), frame.message.get("vary"))
        self._keep_transient()
        self.wide.clear()
        state = self.model.state_dict()
        self.held["state"] = [state[name].detach() for name in self.names]
        self.device.sync()
        return {"type": "ok", "specs": [Spec.of(value).model_dump(exclude_none=True) for value in self.held["state"]]}

    def do_compile(self, frame: Frame) -> dict[str, Any]:
        """Compiles a baseline other than eager. The compilation takes place in its first timed call and is never part of a score."""
        if frame.text("baseline") == "cuda-graph":
            from verifier.devices.cuda_graph import Graphed  # only for this baseline; other parties start sooner without it

            self.model, self.graphed = Graphed(self.model, frame.message.get("backward")), True
            return {"type": "ok"}
        modes = {"compile": None, "compile-max-autotune": "max-autotune", "compile-reduce-overhead": "reduce-overhead"}
        mode = modes[frame.text("baseline")]
        if self.permit is not None and mode != "max-autotune":
            from verifier.parties.compiling import Compiling  # as above

            with contextlib.suppress(ImportError, AttributeError):  # the baseline is then frozen while another judge measures
                Compiling(self.permit, self.device.sync)
        with self.permit.away() if self.permit is not None else contextlib.nullcontext(), contextlib.suppress(ImportError):
            importlib.import_module("torch._inductor.compile_fx")  # takes seconds, which would otherwise be part of the first call
        self.replays = mode is not None and self.device.torch_device != "cpu"
        compiled = torch.compile(self.model, mode=mode)
        self.model = Owning(compiled, self.model) if self.replays else compiled
        return {"type": "ok"}

    def do_take_state(self, frame: Frame) -> dict[str, Any]:
        target = getattr(self.model, "_orig_mod", self.model)
        state = target.state_dict()
        target.load_state_dict({**state, **dict(zip(frame.message["names"], self.take(frame.message), strict=True))}, strict=True)
        if self.plain is not None:
            self.plain.restore()
        now = lasting(target)
        for name, value in self.transient.items():
            if name in now and now[name].shape == value.shape:
                now[name].copy_(value)
        self.device.sync()
        return {"type": "ok"}

    def do_inputs(self, frame: Frame) -> dict[str, Any]:
        self.step = "get_inputs"
        variant = frame.message.get("variant")
        make = self.module.get_inputs if variant is None else lambda: self.module.get_input_variants()[int(variant)]
        self.held.pop("inputs", None)
        inputs = self.drawn(make, frame.integer("seed"))
        if not isinstance(inputs, (list, tuple)):
            raise LayoutError(f"get_inputs returns {type(inputs).__name__!r}; it must return a list")
        inputs = map_tensors(list(inputs), self.cast)
        variants = getattr(self.module, "get_input_variants", None)
        count = len(variants()) if callable(variants) and variant is None and frame.message.get("count") else 0
        return {"type": "ok", "variants": min(count, 8), **self.hold("inputs", inputs, whole=True)}

    def drawn(self, make: Callable[[], Any], seed: int) -> Any:
        """Calls the task's own input function, on the device if possible, because a GPU instantly draws gigabytes that would take a single host
        thread several seconds."""
        if self.device.torch_device != "cpu":
            with contextlib.suppress(RuntimeError, TypeError), torch.device(self.device.torch_device):
                seed_everything(seed)
                return make()
        seed_everything(seed)  # the function uses host tensors, or the device is out of memory
        return make()

    def do_run(self, frame: Frame) -> dict[str, Any]:
        """Makes one eager call in fp32 (or the policy's type), which changes the state as the task intends. Also reports which inputs and state
        entries the call changed, which outputs are views of inputs, and whether it drew random numbers."""
        self.step = "forward"
        untouched = self.inputs(frame)
        inputs = map_tensors(untouched, lambda tensor: tensor.clone(memory_format=torch.preserve_format))
        given: list[torch.Tensor] = []
        copies: list[torch.Tensor] = []
        encode(list(inputs), given, whole=True)
        encode(list(untouched), copies, whole=True)
        state = lasting(self.model)
        names = [*self.names, *self.transient] if self.mutated is None else self.mutated
        self.before = {name: state[name].detach().clone() for name in names if name in state}
        self.plain_before = PlainState(self.model)
        seed_everything(frame.integer("rng"))
        seeded = generators()
        how = frame.message.get("dropping")
        mode = Dropping(str(how)) if how is not None else None
        with self.measured() as taken, mode or contextlib.nullcontext():
            output = self.invoke(self.model, inputs, frame)
            self.device.sync()
        drew = generators() != seeded
        state = lasting(self.model)
        if self.mutated is None:
            moved = [name for name, value in self.before.items() if name in state and not same(value, state[name])]
            self.mutated = [name for name in moved if name in self.names or state[name].shape == self.before[name].shape]  # not a cache that grows
            self.before = {name: self.before[name] for name in self.mutated}
        described = self.hold("outputs", output)
        changed = [index for index, (now, then) in enumerate(zip(given, copies, strict=True)) if not same(now, then)]
        compared = [index for index in changed if given[index].nbytes <= LARGE]
        self.held["changed"] = [given[index] for index in compared]
        kept = dict([*self.model.named_parameters(), *self.model.named_buffers()])
        if gone := [name for name in self.mutated if name not in state]:
            raise LayoutError(f"forward changes the buffer {gone[0]!r} in one call and removes it in another")
        self.held["state_after"] = [state[name].detach() for name in self.mutated]
        return {
            "type": "ok",
            **described,
            "aliased": owners(self.held["outputs"], given, kept),
            "layout": strides(self.held["outputs"]),
            "changed_inputs": changed,
            "compared_inputs": compared,
            "changed_specs": [Spec.of(tensor).model_dump(exclude_none=True) for tensor in self.held["changed"]],
            "mutated": self.mutated,
            "remembers": self.plain_before.changed()[:64],
            "drew": drew,
            "orders": mode is not None and mode.orders,
            "taken": taken,
            "state_specs": [Spec.of(tensor).model_dump(exclude_none=True) for tensor in self.held["state_after"]],
        }

    @contextlib.contextmanager
    def measured(self) -> Iterator[list[int]]:
        """Measures peak device memory while the context is open and yields a list with that single entry; the list is empty if the device does not
        track memory."""
        taken: list[int] = []
        before = self.device.held_bytes()
        self.device.peak_bytes(reset=True)
        yield taken
        if before is not None:
            taken.append((self.device.peak_bytes() or before) - before)

    def do_gradients(self, frame: Frame) -> dict[str, Any]:
        """Returns which outputs carry gradients, and which inputs and parameters receive them. Leaves the state unchanged."""
        self.step = "forward"
        before = copy.deepcopy(self.model.state_dict())
        seed_everything(frame.integer("rng"))
        with PlainState(self.model):
            found = reachable(self.model, map_tensors(self.inputs(frame), lambda tensor: tensor.clone()))
        self.model.load_state_dict(before)
        self.device.sync()
        return {"type": "ok", **found}

    def do_oracle(self, frame: Frame) -> dict[str, Any]:
        """Makes the same call in fp64 on a copy of the model, starting from the current state. It runs on the device, or on the CPU if there is too
        little device memory. `rough` is a seed; if it is given, every operator's result is perturbed as much as the policy's plain arithmetic would
        perturb it, or `times` as much. `exact` supplies fp64 values for the entries that forward changes, in order."""
        self.step = "forward"
        taken: list[int] = []
        rough = frame.message.get("rough")
        where = str(frame.message.get("where") or self.device.torch_device)
        if where != "cpu":
            try:
                with self.measured() as taken:
                    output, state = self._precise(frame, rough, where)
            except torch.OutOfMemoryError:
                if rough is not None or self._flops(frame) > CPU_FLOPS:
                    raise
                where = "cpu"
        if where == "cpu":
            self.wide.clear()
            self.device.trim()
            output, state = self._precise(frame, rough, where)
        self.device.sync()
        described = self.hold("oracle", output)
        del output
        self.device.trim()
        self.held["oracle_state"] = [state[name].detach() for name in self.mutated or []]
        specs = [Spec.of(tensor).model_dump(exclude_none=True) for tensor in self.held["oracle_state"]]
        return {"type": "ok", **described, "state_specs": specs, "where": where, "taken": taken}

    def _precise(self, frame: Frame, rough: int | None, where: str) -> tuple[Any, dict[str, torch.Tensor]]:
        def moved(tensor: torch.Tensor) -> torch.Tensor:
            return widen(tensor.to(where))

        given = self.inputs(frame)
        model = self.wide.copy(self.model, where, self.mutated)
        exact = frame.message.get("exact")
        if exact is not None:
            state = lasting(model)
            for name, value in zip(self.mutated or [], self.take(exact), strict=True):
                state[name].copy_(value)
        inputs = map_tensors(given, moved)
        times = float(frame.message.get("times") or 1.0)
        mode = Wide() if rough is None else Rough(int(rough), self._storage(given), self.precision == "tf32", times)
        seed_everything(frame.integer("rng"))
        with Variables(self.module), default_double(), mode:
            output = self.invoke(model, inputs, frame)
        return output, lasting(model)

    def _flops(self, frame: Frame) -> int:
        """Counts the operations of matrix products, convolutions and attention in one call. Leaves the state unchanged."""
        from torch.utils.flop_counter import FlopCounterMode

        self.device.trim()
        state = lasting(self.model)
        before = {name: value.clone() for name, value in state.items() if self.mutated is None or name in self.mutated}
        inputs = map_tensors(self.inputs(frame), lambda tensor: tensor.clone())
        with PlainState(self.model), FlopCounterMode(display=False) as counter:
            self.invoke(self.model, inputs, frame)
        with torch.no_grad():
            for name, value in before.items():
                state[name].copy_(value)
        return int(counter.get_total_flops())

    def _storage(self, given: Any) -> torch.dtype:
        """Returns the type in which a plain implementation stores values between operators: the least precise type among inputs and
        weights. Float8 numbers are converted before anything is computed with them."""
        tensors: list[torch.Tensor] = []
        encode(list(given), tensors, whole=True)
        kinds = {tensor.dtype for tensor in [*tensors, *self.model.parameters()] if tensor.is_floating_point()} - TYPES
        return max(kinds, key=lambda kind: torch.finfo(kind).eps, default=torch.float32)

    def do_rollback(self, frame: Frame) -> dict[str, Any]:
        """Undoes the changes that the last run made to the state, including state outside the state dict."""
        if self.plain_before is not None:
            self.plain_before.restore()
        state = lasting(self.model)
        with torch.no_grad():
            for name, value in self.before.items():
                state[name].copy_(value)
        return {"type": "ok"}

    def do_call(self, frame: Frame) -> dict[str, Any]:
        self.before_call()
        return super().do_call(frame)

    def before_call(self) -> None:
        self.step = "forward"
        if self.replays:
            torch.compiler.cudagraph_mark_step_begin()  # allows its CUDA graphs to overwrite the previous call's outputs

    def do_capture(self, frame: Frame) -> dict[str, Any]:
        from verifier.parties.capturing.capture import capture  # imports torch's exporter, which takes seconds and serves only captures

        inputs = map_tensors(self.inputs(frame), separate)
        result = capture(self.model, list(inputs), self.source, self.mode)
        self.device.sync()
        return {"type": "ok", "raw": result.model_dump_json().encode()}

    def do_step(self, frame: Frame) -> dict[str, Any]:
        return {"type": "ok", "step": getattr(self, "step", "")}


class Owning:
    """A compiled model that replays CUDA graphs and copies its outputs to separate memory. The next replay would overwrite the outputs of this one,
    which no program is allowed to do, so the copy is part of the model's cost."""

    def __init__(self, compiled: Any, model: torch.nn.Module):
        self._compiled = compiled
        self._orig_mod = model

    def __call__(self, *inputs: Any) -> Any:
        return map_tensors(self._compiled(*inputs), lambda tensor: tensor.clone())


def rehearse_kernels(device: PartyDevice) -> None:
    """Runs common kernels once on a few numbers before the judge is ready, because a GPU loads each kernel on first use."""
    values = torch.randn(1024, device=device.torch_device)
    same(values, values.clone())
    same(values.double(), values.double() + 1)
    device.sync()


def separate(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy with its own memory. PyTorch's exporter mistakes inputs of different types in one arena for views of each other, and rejects a
    forward that writes to one of them."""
    return tensor if tensor.is_neg() or tensor.is_conj() else tensor.clone()


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Compares values, effectively bitwise: NaN equals NaN."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    left, right = wide(left), wide(right)
    if torch.equal(left, right):
        return True
    return left.is_floating_point() and torch.equal(left.isnan(), right.isnan()) and torch.equal(left.nan_to_num(), right.nan_to_num())


class LimitedWriter(io.TextIOBase):
    """A standard output stream that raises an error at the source line whose output exceeds the limit."""

    def __init__(self, stream: TextIO):
        self.stream = stream
        self.written = 0

    def write(self, text: str) -> int:
        self.written += len(text)
        if self.written > PRINT_LIMIT:
            raise OSError(f"the task prints more than {PRINT_LIMIT // 1024} KiB")
        return self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()


_SYSTEM_EVENTS = ("os.system", "subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
_WRITING_EVENTS = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.rmtree")


def watch(home: str) -> None:
    """Raises friendly errors, with a line number, for actions that the sandbox would refuse or contain anyway. This is not a security measure in
    itself."""
    sys.stdout = LimitedWriter(sys.stdout)
    sys.stderr = LimitedWriter(sys.stderr)
    task = os.path.join(home, "task.py")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        writes = event in _WRITING_EVENTS or bool(opened)
        network = event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto") or event == "socket.__new__"
        process = event in _SYSTEM_EVENTS
        if not (writes or network or process) or not called_by(task):
            return
        if writes:
            raise PermissionError("a task must not write to the file system")
        raise PermissionError("a task must not use the network" if network else "a task must not start processes")

    sys.addaudithook(hook)


def called_by(path: str, depth: int = 12) -> bool:
    """Returns whether one of the innermost Python frames belongs to `path`."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and depth:
        if frame.f_code.co_filename == path:
            return True
        frame, depth = frame.f_back, depth - 1
    return False
