"""The runner: a fresh process that holds the program, its inputs and its weights, but nothing that could reveal the expected results."""

# sandboxed: imports and runs programs

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import torch

from verifier.build.inline import Lookup
from verifier.build.triton_cache import cubins
from verifier.channel import Frame
from verifier.integrity.blocked import settings
from verifier.integrity.observed import Recorder, foreign_libraries, mapped_libraries, observe
from verifier.layout import decode
from verifier.parties.initialising import constructed
from verifier.parties.loading import load_source
from verifier.parties.naming import resolver
from verifier.parties.plain_state import Variables
from verifier.parties.role import Role, map_tensors
from verifier.parties.seeding import seed_everything
from verifier.parties.stored import stored
from verifier.startup import cutlass


class Runner(Role):
    lookup: Lookup
    construction: dict[str, Any] = {}
    settings: dict[str, str] = {}
    variables: Variables
    libraries: frozenset[str] = frozenset()
    recorder: Recorder | None = None
    imported = 0
    tracing = contextlib.ExitStack()

    def do_import(self, frame: Frame) -> dict[str, Any]:
        """Unpacks the builder's output so that the program's build requests only have to look it up, and then imports the program."""
        folder = os.path.join(self.home, "build" if not self.imported else f"build-{self.imported}")  # a library is loaded only once per path
        self.imported += 1
        os.makedirs(folder, exist_ok=True)
        at = 0
        for name, size in frame.message["artefacts"]:
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(frame.raw[at : at + size])
            os.chmod(path, 0o500)
            at += size
        os.environ.update({"STITCH_BUILD_DIR": folder, "STITCH_BUILD": "lookup", **frame.message["variables"]})
        cutlass.show(self.home)
        self.lookup = Lookup(folder, self.home, frame.message.get("failed", {}), frame.fds[0])
        self.lookup.install()
        self.source = frame.text("source")
        self.settings, self.libraries = settings(), mapped_libraries()
        self.module = self._loaded(self.lookup)
        self.variables = Variables(self.module)
        return {"type": "ok"}

    def _loaded(self, lookup: Lookup) -> Any:
        module = load_source("program", self.source, self.home)
        lookup.after_import(module, self.source)
        return module

    def do_construct(self, frame: Frame) -> dict[str, Any]:
        """Constructs a fresh `ModelNew` with the evaluation's seed and loads the judge's state dict in strict mode. With `partial`, the state dict
        has only some of the entries, and the others remain as constructed. With `afresh`, the source's variables are first reset to their values
        after import."""
        self.construction = frame.message
        self.previous, self.earlier, self.model = [], [], None
        self.last.clear()
        if frame.message.get("afresh"):
            self.variables.restore()
        self.model, refused = self._construct(self.module)
        self.device.sync()  # the weights must have been copied from the arena before the judge writes there again
        self.device.trim(frame.integer("need"))
        return {"type": "ok", "refused": refused}

    def _construct(self, module: Any) -> tuple[Any, str]:
        message = self.construction
        self.own_types = bool(message["own_types"])
        given = decode(message["init"]["tree"], self.take(message["init"]), resolve=resolver(module))
        init = map_tensors(given, lambda tensor: tensor.clone())
        seed, vary = int(message["seed"]), message.get("vary")
        model = self._construct_seeded(module, init, seed, vary)
        refused = ""
        if message.get("state") is not None:
            values = [tensor.clone() for tensor in self.take(message["state"])]
            try:
                own = model.state_dict() if message.get("partial") else {}
                model.load_state_dict({**own, **dict(zip(message["names"], values, strict=True))}, strict=True)
            except (RuntimeError, AttributeError, TypeError) as error:
                refused = str(error)[:1000]
                model = self._construct_seeded(module, init, seed, vary)  # the failed load may have changed part of it
        return model, refused

    def _construct_seeded(self, module: Any, init: Any, seed: int, vary: int | None) -> Any:
        model = constructed(lambda: module.ModelNew(*init), self.device.torch_device, lambda: seed_everything(seed), vary)
        model = self.cast_model(model)
        model.train(self.mode == "train")
        return model

    def do_entries(self, frame: Frame) -> dict[str, Any]:
        """Returns the program's own state dict or, with `held`, its parameters and buffers, in which the judge searches for the task's weights."""
        state = self.state() if frame.message.get("held") else self.model.state_dict()
        state = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        return {"type": "ok", "names": list(state), **self.hold("entries", list(state.values()))}

    def do_names(self, frame: Frame) -> dict[str, Any]:
        """Returns the names of the program's parameters and buffers."""
        return {"type": "ok", "names": list(self.state())}

    def state(self) -> dict[str, torch.Tensor]:
        return stored(self.model)  # none of the program's methods may create the state when it is read

    def do_cubins(self, frame: Frame) -> dict[str, Any]:
        """Returns what Triton compiled for this program."""
        return cubins()

    def do_observe(self, frame: Frame) -> dict[str, Any]:
        """Observes a few calls, and everything that runs concurrently with them or after them. Returns fields of `Evidence`."""
        inputs = self.inputs(frame)
        foreign = foreign_libraries(self.libraries, self.home, os.environ["STITCH_BUILD_DIR"])
        model = self.traced_model()

        seen = observe(self.device, lambda: self.invoke(model, inputs, frame), lambda: seed_everything(frame.integer("rng")), self.settings)
        return {"type": "ok", "evidence": seen | {"foreign": foreign}}

    def do_record(self, frame: Frame) -> dict[str, Any]:
        """Starts recording the device work of the following calls on a GPU, or ends the recording and returns fields of `Evidence`."""
        if frame.message.get("on"):
            self.recorder = Recorder(self.device)
            self.invoke = self.recorder.around(self.invoke)  # type: ignore[method-assign]  # nothing of it is there while the program is timed
            return {"type": "ok"}
        del self.invoke
        recorder, self.recorder = self.recorder, None
        assert recorder is not None
        return {"type": "ok", "evidence": recorder.end()}

    def traced_model(self) -> Any:
        """Returns the model to profile. On the CPU, the program is imported again with its libraries traced; on a GPU, this is not necessary, because
        the profiler records kernels."""
        from verifier.profiling.own_calls import loaded_extensions, trace_module, traced_calls  # as in role.py: only for profiles

        if self.device.torch_device != "cpu":
            return self.model
        folder = self.lookup.folder
        lookup = Lookup(folder, self.home, self.lookup.failed, self.lookup.wish, trace_module)
        lookup.given = self.lookup.given
        lookup.install()
        before = frozenset(sys.modules)
        self.tracing.close()
        self.tracing.enter_context(traced_calls(folder))  # kept open, because a library loaded during a call also belongs to the program
        module = self._loaded(lookup)
        for extension in loaded_extensions(before, folder):
            trace_module(extension)
        model, _ = self._construct(module)
        return model
