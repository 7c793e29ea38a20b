"""The runner: a fresh process that holds the program, its inputs and weights, and nothing else that could tell it the answer."""

# sandboxed: imports and runs programs

from __future__ import annotations

import os
import sys
from typing import Any

from verifier.build.inline import install_lookup
from verifier.build.triton_cache import cubins
from verifier.channel import Frame
from verifier.integrity.blocked import settings
from verifier.integrity.observed import foreign_libraries, mapped_libraries, observe
from verifier.layout import decode
from verifier.parties.initialising import constructed
from verifier.parties.loading import load_source
from verifier.parties.naming import resolver
from verifier.parties.plain_state import Variables
from verifier.parties.role import Role, map_tensors, seed_everything


class Runner(Role):
    construction: dict[str, Any] = {}
    settings: dict[str, str] = {}
    variables: Variables
    libraries: frozenset[str] = frozenset()

    def do_import(self, frame: Frame) -> dict[str, Any]:
        """Unpacks what the builder made, so that the program's build requests only look it up; then imports the program."""
        folder = os.path.join(self.home, "build")
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
        install_lookup(folder)
        self.source = frame.text("source")
        self.settings, self.libraries = settings(), mapped_libraries()
        self.module = load_source("program", self.source, self.home)
        self.variables = Variables(self.module)
        return {"type": "ok"}

    def do_construct(self, frame: Frame) -> dict[str, Any]:
        """A fresh `ModelNew` under the evaluation's seed, with the task's state dict loaded strictly where its names fit."""
        self.construction = frame.message
        self.previous, self.earlier, self.model = [], [], None
        self.variables.restore()
        self.model, refused = self._construct(self.module)
        self.device.sync()  # weights are taken out of the arena before the judge writes there again
        self.device.trim(frame.integer("need"))
        return {"type": "ok", "refused": refused}

    def _construct(self, module: Any) -> tuple[Any, str]:
        message = self.construction
        init = map_tensors(decode(message["init"]["tree"], self.take(message["init"]), resolve=resolver(module)), lambda tensor: tensor.clone())
        model = self._construct_seeded(module, init, int(message["seed"]))
        refused = ""
        if message.get("state") is not None:
            values = [tensor.clone() for tensor in self.take(message["state"])]
            try:
                model.load_state_dict(dict(zip(message["names"], values, strict=True)), strict=True)
            except (RuntimeError, AttributeError, TypeError) as error:
                refused = str(error)[:1000]
                model = self._construct_seeded(module, init, int(message["seed"]))  # a failed load has changed part of it
        return model, refused

    def _construct_seeded(self, module: Any, init: Any, seed: int) -> Any:
        model = constructed(lambda: module.ModelNew(*init), self.device.torch_device, lambda: seed_everything(seed))
        model = self.cast_model(model)
        model.train(self.mode == "train")
        return model

    def do_cubins(self, frame: Frame) -> dict[str, Any]:
        """What Triton compiled for this program."""
        return cubins()

    def do_observe(self, frame: Frame) -> dict[str, Any]:
        """What ran during a few calls, and beside and after them: the fields of `Evidence`."""
        inputs = self.inputs(frame)
        foreign = foreign_libraries(self.libraries, self.home, os.environ["STITCH_BUILD_DIR"])
        model = self.traced_model()

        seen = observe(self.device, lambda: self.invoke(model, inputs, frame), lambda: seed_everything(frame.integer("rng")), self.settings)
        return {"type": "ok", "evidence": seen | {"foreign": foreign}}

    def traced_model(self) -> Any:
        """On the CPU the program is imported once more, with its libraries traced; on a GPU the profiler sees kernels without help."""
        from verifier.profiling.own_calls import loaded_extensions, trace_module, traced_calls

        if self.device.torch_device != "cpu":
            return self.model
        folder = os.environ["STITCH_BUILD_DIR"]
        install_lookup(folder, trace_module)
        before = frozenset(sys.modules)
        with traced_calls(folder):
            module = load_source("program", self.source, self.home)
        for extension in loaded_extensions(before, folder):
            trace_module(extension)
        model, _ = self._construct(module)
        return model
