"""Saves, compares and restores values in place: tensors, containers, iterators, random number generators, objects and functions.

Forward may change such values, just as it may change buffers. They keep their identity, because other objects may refer to them.
"""

# sandboxed: reads and writes attributes of objects that tasks and programs define

from __future__ import annotations

import contextvars
import copy
import functools
import io
import logging
import random
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from verifier.float8 import wide

_PLAIN = (int, float, str, bytes, bool, complex, type(None), torch.dtype, torch.device, torch.Size, range)
# Loggers and files have state that does not belong to any model.
_WHOLE = (type, FunctionType, ModuleType, torch.nn.Module, torch.nn.Parameter, logging.Filterer, io.IOBase)
OURS = __name__.split(".")[0]  # our own package; untrusted code may have found its objects, which are not restored
STRANGERS = ("task", "program")  # the modules of untrusted source code
INDIRECT = (tuple, MethodType, functools.partial)  # immutable values that may refer to mutable ones
DEPTH = 8  # maximum depth of nested containers


@dataclass
class Saved:
    """A saved value. `content` is its mutable content, or None for an immutable value."""

    value: Any
    content: Any = None
    whole: dict[int, Any] = field(default_factory=dict)  # the objects that an iterator shares with its copies
    open: bool = False  # true while the value is being traversed, because objects may refer to each other

    def restored(self) -> Any:
        if self.open:
            return self.value
        self.open = True
        try:
            return self._restored()
        finally:
            self.open = False

    def _restored(self) -> Any:
        value, content = self.value, self.content
        if content is None:
            return value
        if isinstance(value, torch.Tensor):
            with torch.no_grad():
                if value.shape == content.shape and value.dtype == content.dtype:
                    value.copy_(content)
                else:
                    value = content.clone()
        elif isinstance(value, torch.Generator):
            value.set_state(content)
        elif _seeded(value):
            value.setstate(content)
        elif _numpy_seeded(value):
            _bits(value).state = copy.deepcopy(content)
        elif isinstance(value, contextvars.ContextVar):
            value.set(content)
        elif isinstance(value, GeneratorType):
            return value  # a Python generator cannot be rewound
        elif isinstance(value, Iterator):
            value = _copied(content, self.whole)
        elif isinstance(value, FunctionType) or _slotted(value):
            _give_back(value, {key: item.restored() for key, item in content.items()})
        elif isinstance(value, (list, deque)):
            items = [item.restored() for item in content]
            value.clear()
            value.extend(items)
        elif isinstance(value, set):
            value.clear()
            value.update(content)
        elif isinstance(value, INDIRECT):
            for item in content:
                item.restored()
        elif _array(value):
            if value.shape == content.shape:
                value[...] = content
        else:
            table = value if isinstance(value, dict) else vars(value)
            kept = {key: item.restored() for key, item in content.items()}
            for key in [key for key in table if key not in kept]:
                del table[key]
            table.update(kept)
        return value

    def differs(self, now: Any) -> bool:
        """Returns whether `now` differs from the saved value. An equal tensor at a different address counts as the same."""
        if self.open:
            return False
        self.open = True
        try:
            return self._differs(now)
        finally:
            self.open = False

    def _differs(self, now: Any) -> bool:
        value, content = self.value, self.content
        if isinstance(value, (torch.nn.Parameter, weakref.ref)):
            return False  # parameters are part of the state dict, wherever else they are referenced
        if content is None and not isinstance(value, (*_PLAIN, torch.Tensor, contextvars.ContextVar)):
            return now is not value
        if isinstance(value, torch.Tensor):
            before = value if content is None else content
            return not (isinstance(now, torch.Tensor) and now.shape == before.shape and now.dtype == before.dtype and equal(now, before))
        if isinstance(value, torch.Generator):
            return now is not value or not torch.equal(now.get_state(), content)
        if _seeded(value):
            return now is not value or bool(now.getstate() != content)
        if _numpy_seeded(value):
            return now is not value or repr(_bits(now).state) != repr(content)
        if isinstance(value, contextvars.ContextVar):
            return now is not value or _told(_current(value)) != _told(content)
        if isinstance(value, Iterator):
            return type(now) is not type(value) or _told(now) != (content if isinstance(value, GeneratorType) else _told(content))
        if isinstance(value, set):
            return bool(now != content)
        if _array(value):
            return type(now) is not type(value) or now.dtype != content.dtype or now.tobytes() != content.tobytes() or now.shape != content.shape
        if isinstance(value, INDIRECT[1:]) and content is not None:
            return type(now) is not type(value) or any(a.differs(b) for a, b in zip(content, _through(now), strict=True))
        if isinstance(value, (list, deque, tuple)) and content is not None:
            return type(now) is not type(value) or len(now) != len(content) or any(a.differs(b) for a, b in zip(content, now, strict=True))
        if content is not None:
            if type(now) is not type(value):
                return True
            table = now if isinstance(now, dict) else kept_by(now) if isinstance(now, FunctionType) or _slotted(now) else vars(now)
            return set(table) != set(content) or any(item.differs(table[key]) for key, item in content.items())
        if isinstance(value, _PLAIN):
            return type(now) is not type(value) or not (now == value or now != now and value != value)
        return now is not value


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compares values; NaN equals NaN. An exporter's tensor holds no values, so it is equal only to itself."""
    try:
        if one is other:
            return True
        one, other = wide(one), wide(other)
        return one.device == other.device and bool(torch.equal(one, other) or torch.equal(one.isnan(), other.isnan()) and torch.equal(
            one.nan_to_num(), other.nan_to_num()
        ))  # fmt: skip
    except Exception:  # an exporter's tensor holds no values
        return False


def _seeded(value: Any) -> bool:
    """Returns whether a value is a generator with a state. A generator that uses the system's entropy has none."""
    return isinstance(value, random.Random) and not isinstance(value, random.SystemRandom)


def _through(value: Any) -> tuple[Any, ...]:
    """Returns what a bound method or a partial function refers to."""
    return (value.__self__,) if isinstance(value, MethodType) else (value.func, value.args, value.keywords)


def _array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _numpy_seeded(value: Any) -> bool:
    return type(value).__module__.startswith("numpy.random") and type(value).__name__ in ("Generator", "RandomState")


def _bits(generator: Any) -> Any:
    """Returns the part of numpy's generator that holds its state."""
    return getattr(generator, "bit_generator", None) or generator._bit_generator


def _current(variable: contextvars.ContextVar[Any]) -> Any:
    """Returns the value of a context variable; None if it has none."""
    try:
        return variable.get()
    except LookupError:
        return None


def _copied(value: Any, whole: dict[int, Any]) -> Any:
    """Returns a copy of an iterator. `whole` maps identities to the objects that must not be copied."""
    try:
        return copy.deepcopy(value, dict(whole))
    except Exception:  # an iterator of untrusted code, or one over objects that cannot be copied
        return value


def _told(value: Any) -> str:
    """Returns a string that differs if an iterator, or the value of a context variable, has changed."""
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return "" if frame is None else repr((frame.f_lasti, frame.f_locals))
    try:
        return repr(value.__reduce__() if isinstance(value, Iterator) else value)
    except Exception:  # an iterator of untrusted code
        return ""


def _slotted(value: Any) -> bool:
    """Returns whether a value is an object of an untrusted class that has slots instead of a dict of attributes."""
    return type(value).__module__ in STRANGERS and bool(_places_of(value)) and not hasattr(value, "__dict__") and not isinstance(value, tuple)


def _places_of(value: Any) -> list[str]:
    slots = [getattr(base, "__slots__", ()) for base in type(value).__mro__]
    return [name for found in slots for name in ([found] if isinstance(found, str) else found) if not name.startswith("__")]


def kept_by(value: Any) -> dict[str, Any]:
    """Returns what a function keeps from call to call (its attributes, its default values and the variables of its enclosing function), or the
    attributes that an object keeps in slots."""
    if not isinstance(value, FunctionType):
        return {name: getattr(value, name) for name in _places_of(value) if hasattr(value, name)}
    found = {f".{name}": kept for name, kept in vars(value).items()}
    found["defaults"] = (value.__defaults__, value.__kwdefaults__)
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _give_back(value: Any, kept: dict[str, Any]) -> None:
    if not isinstance(value, FunctionType):
        for name, item in kept.items():
            object.__setattr__(value, name, item)
        return
    vars(value).clear()
    vars(value).update({key[1:]: item for key, item in kept.items() if key.startswith(".")})
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        if name in kept:
            cell.cell_contents = kept[name]


class Seen(dict[int, Saved]):
    """The values saved so far, by identity. `whole` holds what belongs to the model itself, because copies of an iterator over layers must yield the
    model's own layers."""

    def __init__(self, model: torch.nn.Module | None = None):
        super().__init__()
        own = [] if model is None else [*model.modules(), *model.parameters(), *model.buffers()]
        self.whole = {id(one): one for one in own}


def save(value: Any, seen: Seen, depth: int = 0) -> Saved:
    """Saves a value and what it refers to, down to `DEPTH`. A value that `seen` contains is not saved again."""
    if id(value) in seen:
        return seen[id(value)]
    saved = seen[id(value)] = Saved(value)
    if isinstance(value, FunctionType) and value.__module__ in STRANGERS and depth <= DEPTH:
        saved.content = {key: save(item, seen, depth + 1) for key, item in kept_by(value).items()}
        return saved
    if depth > DEPTH or isinstance(value, (*_PLAIN, *_WHOLE)):
        return saved
    if isinstance(value, torch.Tensor):
        saved.content = value.detach().clone() if type(value) is torch.Tensor and value.layout is torch.strided else None
    elif isinstance(value, torch.Generator):
        saved.content = value.get_state()
    elif _seeded(value):
        saved.content = value.getstate()
    elif _numpy_seeded(value):
        saved.content = copy.deepcopy(_bits(value).state)
    elif isinstance(value, contextvars.ContextVar):
        saved.content = _current(value)
    elif isinstance(value, GeneratorType):
        saved.content = _told(value)
    elif isinstance(value, Iterator):
        saved.content, saved.whole = _copied(value, seen.whole), seen.whole
    elif _slotted(value):
        saved.content = {key: save(item, seen, depth + 1) for key, item in kept_by(value).items()}
    elif isinstance(value, INDIRECT[1:]):
        saved.content = [save(item, seen, depth + 1) for item in _through(value)]
    elif _array(value):
        saved.content = value.copy()
    elif isinstance(value, (list, deque, tuple)):
        saved.content = [save(item, seen, depth + 1) for item in value]
    elif isinstance(value, dict):
        saved.content = {key: save(item, seen, depth + 1) for key, item in value.items()}
    elif isinstance(value, set):
        saved.content = set(value)
    elif has_attributes(value):
        saved.content = {key: save(item, seen, depth + 1) for key, item in vars(value).items()}
    return saved


def has_attributes(value: Any) -> bool:
    """Returns whether a value is a plain object whose attributes are state. A callable object counts only if the task or program defines its
    class."""
    if type(value).__module__.split(".")[0] == OURS or not isinstance(getattr(value, "__dict__", None), dict):
        return False
    return type(value).__module__ in STRANGERS or not callable(value)
