"""Captures of the tasks in these tests, each made only once, because the result of `torch.export` depends only on the task."""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

import torch

from tests import kept
from verifier.graph import Capture
from verifier.parties.capturing.capture import capture


def captured(model: Callable[[], torch.nn.Module], inputs: list, source: str, mode: str, precision: str) -> Capture:
    """Captures a task as `capture` does. Random numbers drawn afterwards are the same whether the capture was made now or read from the cache."""
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
    """Avoids work that every export would repeat: PyTorch queries its dispatcher six times for all operators, although no test creates any, collects
    their decompositions and registers twelve thousand kernels for them, and the garbage collector traverses all modules that export has imported."""
    importlib.import_module("torch.export._trace")
    utils = importlib.import_module("torch._export.utils")
    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)
    utils._check_valid_to_preserve = cache(utils._check_valid_to_preserve)  # it reads an operator's schema
    register_quickly(importlib.import_module("torch._ops").OperatorBase)
    exporting = importlib.import_module("verifier.parties.capturing.exporting.export")
    decompositions = dict(exporting.decompositions())
    exporting.decompositions = decompositions.copy
    program = importlib.import_module("torch.export.exported_program")
    rules = importlib.import_module("torch._subclasses.fake_impls").op_implementations_dict
    program._override_composite_implicit_decomp = overridden_quickly(program._override_composite_implicit_decomp, rules)
    gc.collect()
    gc.freeze()


def register_quickly(operator: type) -> None:
    """Skips the three annotations that PyTorch's `py_impl` evaluates per call, which takes longer than everything else that it does for a dispatch
    key."""
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


def overridden_quickly(whole: Callable[[Mapping], AbstractContextManager], rules: dict) -> Callable[[Mapping], AbstractContextManager]:
    """PyTorch's `whole` registers the kernels one by one and drops them after each export. Once it has done so for the same decompositions and
    starting from the same tables, this replacement restores the resulting tables instead. `rules`: the shape rules, one of which it registers for
    each operator."""
    asked: dict = {}  # maps each operator to its decomposition
    before: dict = {}  # maps each operator to its kernels and its rule
    during: dict = {}

    def state(operators: Mapping) -> dict:
        return {operator: (dict(operator.py_kernels), rules.get(operator)) for operator in operators}

    def put(tables: dict) -> None:
        for operator, (kernels, rule) in tables.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
            if rule is None:
                rules.pop(operator, None)
            else:
                rules[operator] = rule

    @contextmanager
    def override(decompositions: Mapping) -> Iterator[None]:
        nonlocal asked, before, during
        found = state(decompositions)
        if decompositions == asked and found == before:
            put(during)
            try:
                yield
            finally:
                put(before)
            return
        with whole(decompositions):
            asked, before, during = dict(decompositions), found, state(decompositions)
            yield

    return override
