"""Answers type checks in the task's source as in a plain call while a model is exported.

An exporter's numbers and tensors have their own classes. Otherwise, the source would silently take the branch for values that are neither floats nor
tensors."""

# sandboxed: traces the models that tasks define

from __future__ import annotations

import ast
import builtins
import contextlib
import dis
import linecache
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from verifier.parties.capturing.exporting.stand_ins import STANDS_FOR, StandIn, stand_in
from verifier.parties.capturing.exporting.unseen import codes
from verifier.parties.capturing.reading import frame_file
from verifier.parties.capturing.tracing import PART_FILE
from verifier.parties.plain_state import source_of

EXPORTERS: tuple[Any, ...] = (FakeTensor, FunctionalTensor)  # the classes of an exporter's tensors
TEXTS = ("__str__", "__repr__", "__format__")
SHOWING = frozenset({"print", "debug", "info", "warning", "log"})
IN_TEXT = "it writes the value of a tensor into a text"
ATTRIBUTE = "it reads an attribute of a number that is read from a tensor"


@contextlib.contextmanager
def types_told(model: torch.nn.Module) -> Iterator[None]:
    """Gives the source of `model` versions of `isinstance`, `type`, `getattr`, `hasattr` and `__class__` for which an exporter's numbers and tensors
    are treated like those of a plain call. Raises `ValueError` if the source writes such a number or a tensor into a text."""
    names, files = source_of(model), {frame_file(model), PART_FILE}
    told: dict[str, Any] = {"isinstance": _isinstance, "type": stand_in(builtins.type, _type_for(names)), "getattr": _getattr, "hasattr": _hasattr}
    if any(step.opname == "MATCH_CLASS" for code in codes(model) for step in dis.get_instructions(code)):
        told |= {kind.__name__: stand_in(kind, kind) for kind in (float, int, bool)}
    placed = [name for name in told if name not in names]
    names.update({name: told[name] for name in placed})
    try:
        with untold(files), classes_told(model, files):
            yield
    finally:
        for name in placed:
            del names[name]


def _isinstance(value: Any, kinds: Any) -> bool:
    return isinstance(STANDS_FOR.get(type(value), value), kinds)


def _type_for(names: dict[str, Any]) -> Callable[..., Any]:
    def kind(value: Any, *rest: Any, **kwargs: Any) -> Any:
        if rest or kwargs:
            return type(value, *rest, **kwargs)
        if isinstance(value, EXPORTERS):
            return _class_of(value)
        found = type(STANDS_FOR.get(type(value), value))
        own = names.get(found.__name__)  # the source compares with its `float`, which is replaced while numbers stay on the device
        return own if isinstance(own, StandIn) and own.stands_for is found else found

    return kind


def _class_of(tensor: torch.Tensor) -> type:
    return torch.nn.Parameter if isinstance(tensor, torch.nn.Parameter) else torch.Tensor


@contextlib.contextmanager
def classes_told(model: torch.nn.Module, files: set[str]) -> Iterator[None]:
    """Answers `tensor.__class__` in `files` with the class of a plain call. A class cannot be given a property of this name, so all reads of an
    exporter's tensors are watched, but only if the source asks for the class of anything but `self`."""
    if not any(asks_class(code) for code in codes(model)):
        yield
        return

    def read(self: Any, key: str) -> Any:
        if key == "__class__" and sys._getframe(1).f_code.co_filename in files:
            return _class_of(self)
        return object.__getattribute__(self, key)

    for kind in EXPORTERS:
        kind.__getattribute__ = read
    try:
        yield
    finally:
        for kind in EXPORTERS:
            del kind.__getattribute__


def asks_class(code: CodeType) -> bool:
    """Returns whether a function reads `__class__` of anything but `self`, by which modules name themselves."""
    steps = list(dis.get_instructions(code))
    read = [before for before, step in zip(steps, steps[1:], strict=False) if step.argval == "__class__" and step.opname.startswith("LOAD_ATTR")]
    return "__class__" in code.co_consts or any(before.argval != "self" for before in read)


def _getattr(value: Any, name: str, *default: Any) -> Any:
    stands = STANDS_FOR.get(type(value))
    if stands is None:
        return getattr(value, name, *default)
    if hasattr(stands, name):
        raise ValueError(ATTRIBUTE)
    return getattr(stands, name, *default)


def _hasattr(value: Any, name: str) -> bool:
    return hasattr(STANDS_FOR.get(type(value), value), name)


@contextlib.contextmanager
def untold(files: set[str]) -> Iterator[None]:
    """Raises `ValueError` where a file of `files` writes an exporter's number or a tensor into a text, because the text would show a symbol. Allows
    it in statements that only print or log it."""
    shown = {(file, line) for file in files for line in printing("".join(linecache.getlines(file)))}

    def refusing(before: Callable[..., str]) -> Callable[..., str]:
        def write(self: Any, *rest: Any) -> str:
            frame = sys._getframe(1)
            if frame.f_code.co_filename in files:
                if (frame.f_code.co_filename, frame.f_lineno) in shown:
                    return "(a tensor)" if isinstance(self, torch.Tensor) else "(a number)"  # an exporter's number has no format such as `.3f`
                raise ValueError(IN_TEXT)
            return before(self, *rest)

        return write

    before = [(kind, name, vars(kind).get(name)) for kind in (*STANDS_FOR, torch.Tensor) for name in TEXTS]
    before += [(kind, name, vars(kind)[name]) for kind in EXPORTERS for name in TEXTS if name in vars(kind)]
    for kind, name, _ in before:
        setattr(kind, name, refusing(getattr(kind, name)))
    try:
        yield
    finally:
        for kind, name, own in before:
            if own is None:
                delattr(kind, name)
            else:
                setattr(kind, name, own)


def printing(source: str) -> set[int]:
    """Returns the lines of statements that only print or log."""
    try:
        tree = ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError:  # a source that was written to no file
        return set()
    calls = [(item, item.value.func) for item in ast.walk(tree) if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call)]
    shown = [item for item, function in calls if ast.unparse(function).rpartition(".")[2] in SHOWING]
    return {line for item in shown for line in range(item.lineno, (item.end_lineno or item.lineno) + 1)}
