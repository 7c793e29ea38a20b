"""Captures of the tasks of these tests, each made once: what `torch.export` gives follows from the task alone."""

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
    """As `capture` gives it. The random numbers that are drawn afterwards are the same whether it had to be made or was kept."""
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
    """A key of what a capture follows from besides its task: PyTorch, Python, and the package that captures."""
    name = capture.__module__
    package = Path(inspect.getfile(capture)).parents[name.count(".") - 1]
    texts = [path.read_text() for path in sorted(package.rglob("*.py"))]
    here = [Path(__file__).read_text(), Path(__file__).with_name("conftest.py").read_text()]
    return kept.key(torch.__version__, torch.__config__.show(), sys.version, *here, *texts)[:16]


@cache
def prepare() -> None:
    """What each export would pay for: PyTorch asks its dispatcher six times for all operators, of which no test makes one, collects their
    decompositions, registers twelve thousand kernels for them, and the collector of garbage goes through all modules that export has imported."""
    importlib.import_module("torch.export._trace")
    utils = importlib.import_module("torch._export.utils")
    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)
    utils._check_valid_to_preserve = cache(utils._check_valid_to_preserve)  # it reads an operator's schema
    register_quickly(importlib.import_module("torch._ops").OperatorBase)
    exporting = importlib.import_module("verifier.parties.capturing.exporting")
    decompositions = dict(exporting.decompositions())
    exporting.decompositions = decompositions.copy
    program = importlib.import_module("torch.export.exported_program")
    rules = importlib.import_module("torch._subclasses.fake_impls").op_implementations_dict
    program._override_composite_implicit_decomp = overridden_quickly(program._override_composite_implicit_decomp, rules)
    gc.collect()
    gc.freeze()


def register_quickly(operator: type) -> None:
    """PyTorch's `py_impl` evaluates three annotations a call, which takes longer than all else that it does for a dispatch key."""
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
    """PyTorch's `whole` registers the kernels one by one, and drops them behind each export. Once it has done so for the same decompositions and from
    the same tables, these tables are put there as they were then. `rules`: those for shapes, of which it registers one for each operator."""
    asked: dict = {}  # operator to its decomposition
    before: dict = {}  # operator to its kernels and its rule
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
