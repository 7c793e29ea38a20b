"""Captures of the tasks in these tests, each made only once: the result of `torch.export` depends on the task alone."""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from tests import kept
from verifier.graph import Capture
from verifier.parties.capturing.capture import capture


def captured(model: Callable[[], torch.nn.Module], inputs: list, source: str, mode: str, precision: str) -> Capture:
    """Captures like `capture`. Random numbers drawn afterwards are the same whether the capture was made or cached."""
    place = kept.folder("captures-" + code()) / (kept.key(source, mode, precision) + ".json")

    def make(scratch: Path) -> None:
        prepare()
        with torch.random.fork_rng(devices=[]):
            found = capture(model(), inputs, source, mode)
        assert found.graph is not None, found.reason
        scratch.write_text(found.model_dump_json())

    return Capture.model_validate_json(kept.made(place, make).read_text())


@cache
def code() -> str:
    """Returns a key that covers everything a capture depends on besides its task: PyTorch, Python, and the capturing package."""
    name = capture.__module__
    package = Path(inspect.getfile(capture)).parents[name.count(".") - 1]
    texts = [path.read_text() for path in sorted(package.rglob("*.py"))]
    here = [Path(__file__).read_text(), Path(__file__).with_name("conftest.py").read_text()]
    return kept.key(torch.__version__, torch.__config__.show(), sys.version, *here, *texts)[:16]


@cache
def prepare() -> None:
    """Spares each export some costs: PyTorch asks its dispatcher six times for all operators, although no test defines one; it registers twelve
    thousand kernels for them; and the garbage collector visits all modules that export has imported."""
    importlib.import_module("torch.export._trace")
    utils = importlib.import_module("torch._export.utils")
    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)
    register_quickly(importlib.import_module("torch._ops").OperatorBase)
    gc.collect()
    gc.freeze()


def register_quickly(operator: type) -> None:
    """PyTorch's `py_impl` evaluates three annotations per call, which takes longer than everything else that it does for a dispatch key."""
    whole, python = operator.py_impl, torch._C.DispatchKey.Python

    def py_impl(self, key):
        def register(kernel):
            if not isinstance(key, torch._C.DispatchKey) or key == python or key in self.py_kernels:
                return whole(self, key)(kernel)
            self.py_kernels[key] = kernel
            self._dispatch_cache.clear()
            return kernel

        return register

    operator.py_impl = py_impl
