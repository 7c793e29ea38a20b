"""The state that a model keeps outside its state dict: counters, lists, caches and tensors as plain attributes, variables of its source, attributes
of its classes, and what its functions keep (attributes, default values, variables of an enclosing function).

Forward may change this state as it changes buffers. It is saved and restored, so that calls can start from the same state.
"""

# sandboxed: reads and writes attributes of the models that tasks and programs define

from __future__ import annotations

import contextvars
import copy
import functools
import inspect
import io
import logging
import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

_OWN = frozenset({"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"})
_PLAIN = (int, float, str, bytes, bool, complex, type(None), torch.dtype, torch.device, torch.Size, range)
# Loggers and files have state that is no model's.
_WHOLE = (type, FunctionType, ModuleType, torch.nn.Module, torch.nn.Parameter, logging.Filterer, io.IOBase)
OURS = __name__.split(".")[0]  # the package whose objects a stranger's source may have found; they are not restored
STRANGERS = ("task", "program")  # the modules of strangers' sources
INDIRECT = (tuple, MethodType, functools.partial)  # values that cannot change, but what they refer to can
DEPTH = 8  # depth of nested containers


@dataclass
class Saved:
    """A saved value; `content` is its mutable content, null for an immutable value."""

    value: Any
    content: Any = None
    whole: dict[int, Any] = field(default_factory=dict)  # for an iterator: what its copies share with it
    open: bool = False  # true while it is gone through: objects may refer to each other

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
            return value  # nothing can bring it back
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
            return False  # parameters are in the state dict, wherever else they are referenced
        if content is None and not isinstance(value, (*_PLAIN, torch.Tensor, contextvars.ContextVar)):
            return now is not value
        if isinstance(value, torch.Tensor):
            before = value if content is None else content
            return not (isinstance(now, torch.Tensor) and now.shape == before.shape and now.dtype == before.dtype and _equal(now, before))
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


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        return one is other or one.device == other.device and bool(torch.equal(one, other) or torch.equal(one.isnan(), other.isnan()) and torch.equal(
            one.nan_to_num(), other.nan_to_num()
        ))  # fmt: skip
    except Exception:  # an exporter's tensor holds no values
        return False


def _seeded(value: Any) -> bool:
    """Returns whether a value is a generator with a state; one that uses the system's entropy has none."""
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
    """Returns the value of a context variable; null if it has none."""
    try:
        return variable.get()
    except LookupError:
        return None


def _copied(value: Any, whole: dict[int, Any]) -> Any:
    """Returns a copy of an iterator; `whole` holds what it must not copy, by identity."""
    try:
        return copy.deepcopy(value, dict(whole))
    except Exception:  # a stranger's iterator, or one over what cannot be copied
        return value


def _told(value: Any) -> str:
    """Returns what tells an iterator, or the value of a context variable, from the same at another time."""
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return "" if frame is None else repr((frame.f_lasti, frame.f_locals))
    try:
        return repr(value.__reduce__() if isinstance(value, Iterator) else value)
    except Exception:  # a stranger's iterator
        return ""


def _slotted(value: Any) -> bool:
    """Returns whether a value is an object of a stranger's class that has places instead of a table of attributes."""
    return type(value).__module__ in STRANGERS and bool(_places_of(value)) and not hasattr(value, "__dict__") and not isinstance(value, tuple)


def _places_of(value: Any) -> list[str]:
    slots = [getattr(base, "__slots__", ()) for base in type(value).__mro__]
    return [name for found in slots for name in ([found] if isinstance(found, str) else found) if not name.startswith("__")]


def kept_by(value: Any) -> dict[str, Any]:
    """Returns what a function keeps from call to call (its attributes, its default values, and the variables of the function that encloses it), or
    the attributes of an object that has places for them."""
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
    """What has been saved, by identity, and what belongs to the model itself: copies of an iterator over layers yield the model's own layers."""

    def __init__(self, model: torch.nn.Module | None = None):
        super().__init__()
        own = [] if model is None else [*model.modules(), *model.parameters(), *model.buffers()]
        self.whole = {id(one): one for one in own}


def save(value: Any, seen: Seen, depth: int = 0) -> Saved:
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
    elif _has_attributes(value):
        saved.content = {key: save(item, seen, depth + 1) for key, item in vars(value).items()}
    return saved


def _has_attributes(value: Any) -> bool:
    """Returns whether a value is a plain object whose attributes are state. One that can be called is, if the stranger's source defines its class."""
    if type(value).__module__.split(".")[0] == OURS or not isinstance(getattr(value, "__dict__", None), dict):
        return False
    return type(value).__module__ in STRANGERS or not callable(value)


def variables_of(source: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields a readable name, the table and the key of each variable of a source."""
    for key, value in list(source.items()):
        if not key.startswith("__") and not isinstance(value, ModuleType) and (not callable(value) or _has_attributes(value) or _keeps(value)):
            yield key, source, key


def _keeps(value: Any) -> bool:
    """Returns whether a value is a function in a stranger's source that may retain state between calls."""
    if not isinstance(value, FunctionType) or value.__module__ not in STRANGERS:
        return False
    return bool(value.__closure__ or vars(value) or value.__defaults__ or value.__kwdefaults__ or value.__name__ in value.__code__.co_names)


class Attributes(dict[str, Any]):
    """The attributes of a class as a table, which writes what is written to it to the class."""

    def __init__(self, owner: type):
        super().__init__({key: value for key, value in vars(owner).items() if not key.startswith("__")})
        self.owner = owner

    def __setitem__(self, key: str, value: Any) -> None:
        if vars(self.owner).get(key, self) is not value:
            setattr(self.owner, key, value)

    def __delitem__(self, key: str) -> None:
        delattr(self.owner, key)


def attributes_of_classes(source: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields the same as `variables_of`, for attributes of the classes that a source defines. Methods are not state."""
    for name, owner in list(source.items()):
        if isinstance(owner, type) and owner.__module__ == source.get("__name__") and owner.__name__ == name and not issubclass(owner, Enum):
            table = Attributes(owner)
            for key, value in table.items():
                if not callable(value) and not isinstance(value, (classmethod, staticmethod)) and not hasattr(type(value), "__get__"):
                    yield f"{name}.{key}", table, key


def source_of(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the namespace of the stranger's source that defines a model."""
    home = type(model).__module__
    names = getattr(inspect.unwrap(type(model).forward), "__globals__", {})
    if names.get("__name__") == home:
        return names
    return vars(sys.modules[home]) if home in sys.modules else {}


class Variables:
    """Variables of a source in the state right after its import, in which a newly constructed model finds them."""

    def __init__(self, module: Any):
        seen = Seen()
        self.kept = [(table, key, save(table[key], seen)) for _, table, key in variables_of(vars(module))]

    def restore(self) -> None:
        for table, key, saved in self.kept:
            table[key] = saved.restored()

    def __enter__(self) -> Variables:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def lasting(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the tensors of a model's state dict, and then its buffers that no state dict contains (`persistent=False`)."""
    state = _tensors(model)
    return {**state, **{name: value for name, value in model.named_buffers(remove_duplicate=False) if name not in state}}


class PlainState:
    """The current plain state of a model and of the module that defines it. A buffer that does not exist yet, or is None, is part of it: a forward
    that creates such a tensor keeps it for later calls."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self.held: set[str] = set()  # buffers that exist
        self.held = {name for name, table, key in self._late() if table[key] is not None}
        self.source = source_of(model) if type(model).__module__ in STRANGERS else {}
        seen = Seen(model)
        self.buffers = [(name, table, key, table[key]) for name, table, key in self._transient()]
        self.kept = {name: (table, key, save(table[key], seen)) for name, table, key in self._places()}

    def _places(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Yields a readable name, the table and the key of each value."""
        for path, module in self.model.named_modules():
            library = type(module).__module__.startswith("torch.nn.")  # modules whose private attributes are not part of the model's state
            for key in vars(module):
                if (
                    key not in _OWN
                    and not (library and key.startswith("_"))
                    and not key.endswith("_hooks")
                    and "_hooks_" not in key
                    and key != "forward"
                ):
                    yield f"self.{path + '.' if path else ''}{key}", vars(module), key
            for key in module._modules if isinstance(module._modules, dict) else ():  # which module a name holds; not so for a script module
                yield f"self.{path + '.' if path else ''}{key}", module._modules, key
        yield from self._late()
        yield from variables_of(self.source)
        yield from attributes_of_classes(self.source)

    def _late(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Yields the same as `_places`, for buffers that did not exist or were None."""
        for path, module in self.model.named_modules():
            for key in module._buffers if isinstance(module._buffers, dict) else ():  # a script module creates none
                if (name := f"self.{path + '.' if path else ''}{key}") not in self.held:
                    yield name, module._buffers, key

    def _transient(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Yields the same as `_places`, for buffers that exist and that no state dict contains."""
        for path, module in self.model.named_modules():
            for key in module._non_persistent_buffers_set if isinstance(module._buffers, dict) else ():
                if module._buffers.get(key) is not None:
                    yield f"self.{path + '.' if path else ''}{key}", module._buffers, key

    def made_buffers(self) -> list[str]:
        """Returns the names of buffers that have been created since."""
        return [name for name, table, key in self._late() if table[key] is not None]

    def place(self, name: str) -> tuple[dict[str, Any], str] | None:
        """Returns the table and the key of a value that `changed` names; null for one that is gone."""
        return next(((table, key) for found, table, key in self._places() if found == name), None)

    def tensors(self) -> list[str]:
        """Returns tensors in plain attributes, as `module.name`."""
        own = [(name, saved.value) for name, (_, _, saved) in self.kept.items() if name.startswith("self.")]
        return [name.removeprefix("self.") for name, value in own if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)]

    def changed(self) -> list[str]:
        """Returns the names of values that have changed."""
        now = {name: table[key] for name, table, key in self._places()}
        found = [name for name, (_, _, saved) in self.kept.items() if name not in now or saved.differs(now[name])]
        grown = [name for name, table, key, value in self.buffers if table.get(key) is None or table[key].shape != value.shape]
        return found + [name for name in now if name not in self.kept] + grown

    def restore(self) -> None:
        for name, table, key in list(self._places()):
            if name not in self.kept:
                del table[key]
        for table, key, saved in self.kept.values():
            table[key] = saved.restored()
        for _, table, key, buffer in self.buffers:
            table[key] = buffer  # not a cache that has grown; its values are restored with the state

    def __enter__(self) -> PlainState:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()


def history_matters(model: torch.nn.Module, call: Callable[[torch.nn.Module, bool], list[torch.Tensor]]) -> bool:
    """Returns whether a call that starts from the same state dict gives a different result, or leaves a different state dict, after an earlier call.
    `call(model, other)` returns forward's result tensors, for the given inputs or for other ones, under one seed."""
    with torch.no_grad(), PlainState(model) as fresh:
        state = {name: value.clone() for name, value in _tensors(model).items()}

        def back() -> None:
            for name, value in _tensors(model).items():
                value.copy_(state[name])

        try:

            def made() -> list[torch.Tensor]:
                return [tensor.detach().clone() for tensor in [*call(model, False), *_tensors(model).values()]]

            one = made()
            back()
            fresh.restore()
            call(model, True)
            back()
            two = made()
            return len(one) != len(two) or any(a.shape != b.shape or not _equal(a, b) for a, b in zip(one, two, strict=True))
        finally:
            back()
