"""What an export does not show: forward seeds the random numbers, or catches an error that is the exporter's and no call's."""

# sandboxed: traces the models that tasks define

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from verifier.parties.capturing.reading import frame_file
from verifier.parties.capturing.tracing import PART_FILE
from verifier.parties.plain_state import source_of

SEEDS = ((torch, "manual_seed"), (torch, "seed"), (torch.random, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"))
EXPORTERS = ("torch.fx.", "torch._subclasses.", "torch._dynamo.", "torch._export.")  # modules of errors that no call of a model meets
NO_VALUES = "tensor subclasses"  # of the message with which `numpy` refuses an exporter's tensor


class Caught(ValueError):
    """Forward went on where a call would not have failed."""


@contextlib.contextmanager
def nothing_unseen(model: torch.nn.Module) -> Iterator[None]:
    """Raises `ValueError` (`Caught` after the export) where an export of `model` would show another computation than a call makes."""
    with unseeded(), none_caught(model):
        yield


@contextlib.contextmanager
def unseeded() -> Iterator[None]:
    """Refuses to seed: a graph draws random numbers, but has no operator that says from where on."""

    def refuse(*args: Any) -> None:
        raise ValueError("forward seeds the random numbers, which a graph cannot say")

    before = [getattr(home, name) for home, name in SEEDS]
    for home, name in SEEDS:
        setattr(home, name, refuse)
    try:
        yield
    finally:
        for (home, name), value in zip(SEEDS, before, strict=True):
            setattr(home, name, value)


@contextlib.contextmanager
def none_caught(model: torch.nn.Module) -> Iterator[None]:
    """Raises `Caught` where the source of `model` catches an exporter's error (a value is not known yet): a call takes the other branch."""
    if not any(code.co_exceptiontable for code in codes(model)):
        yield  # tracing costs a second or two
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
        raise Caught(f"line {caught[0]}: forward catches an error that only an export meets: the line needs values of tensors")


def codes(model: torch.nn.Module) -> Iterator[CodeType]:
    """Returns the code of the functions and methods of the task's source."""
    names = source_of(model)
    classes = [value for value in names.values() if isinstance(value, type) and value.__module__ == names.get("__name__")]
    for table in (names, *map(vars, classes)):
        for value in table.values():
            held = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if isinstance(held, FunctionType) and held.__globals__ is names:
                yield held.__code__
