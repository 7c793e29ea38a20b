"""Detects behaviour that an export hides: a forward that seeds random number generators, draws random numbers with Python, changes PyTorch's
defaults, reads the clock, or catches an error that only the exporter raises."""

# sandboxed: traces the models that tasks define

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from verifier.parties.capturing.reading import frame_file
from verifier.parties.capturing.tracing import PART_FILE
from verifier.parties.plain_state import source_of

SEEDS = ((torch, "manual_seed"), (torch, "seed"), (torch.random, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"))
DEFAULTS = ((torch, "set_default_dtype"), (torch, "set_default_tensor_type"), (torch, "set_default_device"))
QUESTIONS = (
    (torch.compiler, "is_compiling"),
    (torch.compiler, "is_dynamo_compiling"),
    (torch.compiler, "is_exporting"),
    (torch._utils, "is_compiling"),
    (torch.jit, "is_tracing"),
)
EXPORTERS = ("torch.fx.", "torch._subclasses.", "torch._dynamo.", "torch._export.")  # modules that define errors that a call of a model cannot raise
READINGS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "process_time_ns", "thread_time",
            "thread_time_ns")  # fmt: skip
CLOCKS = (*READINGS, "localtime", "gmtime", "ctime")
RANDOM = "forward draws random numbers with Python or numpy, which a graph would freeze at the capture (torch.rand can be captured)"
DEFAULT = "forward changes the default type or device of new tensors, which a graph cannot express (give dtype= and device= instead)"
CLOCK = "forward reads the clock, which a graph would freeze at the capture"
VERSION = "it reads how often a tensor was changed in place (`_version`), which a program does not keep"
NO_VALUES = "tensor subclasses"  # part of the error message when `.numpy()` is called on an exporter's tensor


class Caught(ValueError):
    """Raised if forward continued after an error that a real call would not raise."""


@contextlib.contextmanager
def nothing_unseen(model: torch.nn.Module) -> Iterator[None]:
    """Raises `ValueError` (or `Caught`, after the export) if the computation in an export of `model` may differ from a real call."""
    with unseeded(), unasked(model), as_called(model), data_traced(model), uncounted(model), none_caught(model):
        yield


@contextlib.contextmanager
def as_called(model: torch.nn.Module) -> Iterator[None]:
    """Makes the source of `model` take the branches of a plain call: when it checks whether it is being compiled, exported or traced, the result is
    always false. In libraries, these checks return what the exporter has set."""
    files = {frame_file(model), PART_FILE}

    def answering(function: Any) -> Any:
        def answer() -> Any:
            return False if sys._getframe(1).f_code.co_filename in files else function()

        return answer

    asked = [(home, name) for home, name in QUESTIONS if hasattr(home, name)]
    instead = {id(getattr(home, name)): answering(getattr(home, name)) for home, name in asked}
    swaps = [(vars(home), name, instead[id(getattr(home, name))]) for home, name in asked]
    table = source_of(model)
    with replaced(swaps + [(table, key, instead[id(held)]) for key, held in table.items() if id(held) in instead]):
        yield


@contextlib.contextmanager
def data_traced(model: torch.nn.Module) -> Iterator[None]:
    """Replaces `tensor.data` in the source of `model` with `tensor.detach()`, which is equivalent without gradients. Otherwise, an exporter would
    treat `data` as a constant."""
    files = {frame_file(model), PART_FILE}
    before: Any = torch.Tensor.data

    def read(tensor: torch.Tensor) -> torch.Tensor:
        here: torch.Tensor = tensor.detach() if sys._getframe(1).f_code.co_filename in files else before.__get__(tensor)
        return here

    def write(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if sys._getframe(1).f_code.co_filename in files:
            raise ValueError("it gives a tensor other memory (`.data = ...`), which a graph cannot express (`.copy_(...)` can be captured)")
        before.__set__(tensor, value)

    torch.Tensor.data = property(read, write)  # type: ignore[assignment]  # replaced while the model is exported
    try:
        yield
    finally:
        del torch.Tensor.data  # uncovers the original in the base class


@contextlib.contextmanager
def uncounted(model: torch.nn.Module) -> Iterator[None]:
    """Raises an error if the source of `model` reads the version of a tensor. An exporter's tensors and those of a program are changed in place at
    other times than those of the model."""
    if not mentions(model, "_version"):
        yield
        return
    files = {frame_file(model), PART_FILE}
    before: Any = torch.Tensor._version

    def read(tensor: torch.Tensor) -> Any:
        if sys._getframe(1).f_code.co_filename in files:
            raise ValueError(VERSION)
        return before.__get__(tensor)

    torch.Tensor._version = property(read)  # type: ignore[assignment]  # replaced while the model is exported
    try:
        yield
    finally:
        del torch.Tensor._version  # uncovers the original in the base class


@contextlib.contextmanager
def unseeded() -> Iterator[None]:
    """Raises an error if forward seeds a generator or sets a default. A graph can draw random numbers and create tensors, but no operator sets the
    state of a generator or the default type."""

    def refusing(why: str) -> Callable[..., None]:
        def refuse(*args: Any) -> None:
            raise ValueError(why)

        return refuse

    seeds = refusing("forward seeds the random numbers, which a graph cannot express")
    # one function for each default, because the exporter's tables distinguish functions by identity
    defaults = [(vars(home), name, refusing(DEFAULT)) for home, name in DEFAULTS]
    with replaced([*((vars(home), name, seeds) for home, name in SEEDS), *defaults]):
        yield


class ClockReading:
    """A number that the source read from the clock. It can be subtracted, printed and kept, as a measurement of time is; any other use is refused and
    added to `asked`, because a result may depend on it."""

    __slots__ = ("asked", "line")

    def __init__(self, asked: list[str], line: int):
        self.asked, self.line = asked, line

    def _refuse(self, *_: Any) -> Any:
        self.asked.append(f"line {self.line}: {CLOCK}")
        raise ValueError(CLOCK)

    def _moved(self, other: Any = 0, *_: Any) -> Any:
        return self if type(other) in (int, float, ClockReading, type(None)) else self._refuse()

    def __format__(self, form: str) -> str:
        return "(a time)"

    def __repr__(self) -> str:
        return "(a time)"

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = _moved
    __neg__ = __abs__ = __round__ = _moved
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __hash__ = __bool__ = __int__ = __float__ = __index__ = _refuse


@contextlib.contextmanager
def unasked(model: torch.nn.Module) -> Iterator[None]:
    """Raises an error if the source of `model` requests random numbers from Python or numpy, the time or the system's entropy, because the graph
    would keep the values that the export received. Times are refused where a result may depend on them. Requests by libraries are allowed, unless
    they draw from Python's or numpy's global generator."""
    files, asked = {frame_file(model), PART_FILE}, list[str]()
    readings = [getattr(time, name) for name in READINGS]

    def refusing(function: Any, why: str) -> Any:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_code.co_filename not in files:
                return function(*args, **kwargs)
            if function in readings and frame.f_code.co_filename != PART_FILE:
                return ClockReading(asked, frame.f_lineno)
            asked.append(f"line {frame.f_lineno}: {why}")
            raise ValueError(why)

        return refuse

    swaps: list[tuple[Any, str, Any]] = []
    instead: dict[int, Any] = {}  # identity of a function or class -> its replacement
    for home, name, why in _asking():
        before = getattr(home, name)
        instead[id(before)] = _clocks(before, refusing) if isinstance(before, type) else refusing(before, why)
        swaps.append((vars(home), name, instead[id(before)]))
    for table in (source_of(model), *(vars(module) for module in model.modules())):
        swaps += [(table, key, instead[id(held)]) for key, held in table.items() if id(held) in instead]
    drawn = states()
    try:
        with replaced(swaps):
            yield
    except Exception as error:
        if ClockReading.__name__ in str(error):  # neither an operator nor the result of forward accepts one
            raise ValueError(CLOCK).with_traceback(error.__traceback__) from None
        raise
    if asked:
        raise ValueError(asked[0])
    if drawn != states():
        raise ValueError(RANDOM)


def states() -> str:
    """Returns the states of Python's generator and, if numpy is imported, of numpy's."""
    numpy = sys.modules.get("numpy")
    return repr((random.getstate(), [part.tolist() if hasattr(part, "tolist") else part for part in numpy.random.get_state()] if numpy else ()))


def _asking() -> Iterator[tuple[Any, str, str]]:
    """Yields the functions whose results differ from call to call, each with its module and the reason why it is refused."""
    for name, value in list(vars(random).items()):
        if getattr(value, "__self__", None) is random._inst:
            yield random, name, RANDOM
    if (numpy := sys.modules.get("numpy")) is not None:
        for name in numpy.random.__all__:
            if getattr(getattr(numpy.random, name), "__self__", None) is numpy.random.mtrand._rand or name == "default_rng":
                yield numpy.random, name, RANDOM
    yield datetime, "datetime", CLOCK
    yield datetime, "date", CLOCK
    for home, names, why in (
        (time, CLOCKS, CLOCK),
        (os, ("urandom",), RANDOM),
        (uuid, ("uuid1", "uuid4"), RANDOM),
        (secrets, secrets.__all__, RANDOM),
    ):
        for name in names:
            if not isinstance(getattr(home, name), type):
                yield home, name, why


def _clocks(kind: type, refusing: Callable[[Any, str], Any]) -> type:
    """Returns a version of a date class that raises an error when the current time is requested."""
    names = [name for name in ("now", "utcnow", "today") if hasattr(kind, name)]
    return type(kind.__name__, (kind,), {name: staticmethod(refusing(getattr(kind, name), CLOCK)) for name in names})


@contextlib.contextmanager
def replaced(swaps: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replaces values in tables, given as (table, key, new value), and restores the old ones on exit."""
    before = [table[key] for table, key, _ in swaps]
    for table, key, value in swaps:
        table[key] = value
    try:
        yield
    finally:
        for (table, key, _), value in zip(swaps, before, strict=True):
            table[key] = value


@contextlib.contextmanager
def none_caught(model: torch.nn.Module) -> Iterator[None]:
    """Raises `Caught` if the source of `model` catches an error of the exporter, such as that a value is unknown. A real call would take the other
    branch."""
    if not any(code.co_exceptiontable for code in codes(model)):
        yield  # nothing can be caught, and tracing would take a second or two
        return
    files, caught = {frame_file(model), PART_FILE}, []

    def within(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "exception" and (arg[0].__module__.startswith(EXPORTERS) or NO_VALUES in str(arg[1])):
            caught.append(frame.f_lineno)
        return within

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        return within if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)
    if caught:
        raise Caught(f"line {caught[0]}: forward catches an error that only an export raises: the line needs tensor values")


def codes(model: torch.nn.Module) -> Iterator[CodeType]:
    """Yields the code objects of the functions and methods in the task's source, and of the functions that these define."""
    names = source_of(model)
    classes = [value for value in names.values() if isinstance(value, type) and value.__module__ == names.get("__name__")]
    for table in (names, *map(vars, classes)):
        for value in table.values():
            held = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value.fget if isinstance(value, property) else value
            if isinstance(held, (FunctionType, functools._lru_cache_wrapper)):
                held = inspect.unwrap(held)  # what decorators such as `torch.inference_mode` and `functools.cache` wrap
            if isinstance(held, FunctionType) and held.__globals__ is names:
                yield from with_inner(held.__code__)


def with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yields a code object and those of the functions, lambdas and classes within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_inner(constant)


def mentions(model: torch.nn.Module, word: str) -> bool:
    """Returns whether a function in the source of a model reads an attribute of this name, or uses the name as a text."""
    return any(word in code.co_names or word in code.co_consts for code in codes(model))
