"""Finds the state that a model keeps outside its state dict: in plain attributes, in variables of its source, in attributes of its classes, and in
its functions (attributes, default values, variables of an enclosing function).

Forward may change this state, just as it may change buffers. It is saved and restored so that calls can start from the same state.
"""

# sandboxed: reads and writes attributes of the models that tasks and programs define

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any

import torch

from verifier.parties.saved import STRANGERS, Seen, equal, has_attributes, save

_OWN = frozenset({"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"})


def variables_of(source: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields a readable name, the table and the key of each variable of a source file."""
    for key, value in list(source.items()):
        if not key.startswith("__") and not isinstance(value, ModuleType) and (not callable(value) or has_attributes(value) or _keeps(value)):
            yield key, source, key


def _keeps(value: Any) -> bool:
    """Returns whether a value is a function of a task or program that may retain state between calls."""
    if not isinstance(value, FunctionType) or value.__module__ not in STRANGERS:
        return False
    return bool(value.__closure__ or vars(value) or value.__defaults__ or value.__kwdefaults__ or value.__name__ in value.__code__.co_names)


def _remembers(method: FunctionType) -> bool:
    """Returns whether a method of a task or program has attributes, or default values that a call may change (`def add(self, x, seen=[])`)."""
    given = [*(method.__defaults__ or ()), *(method.__kwdefaults__ or {}).values()]
    own = any(not key.startswith("__") for key in vars(method)) or any(isinstance(one, (list, dict, set)) or has_attributes(one) for one in given)
    return own and method.__module__ in STRANGERS


class Attributes(dict[str, Any]):
    """The attributes of a class as a table; writing to the table also writes to the class."""

    def __init__(self, owner: type):
        super().__init__({key: value for key, value in vars(owner).items() if not key.startswith("__")})
        self.owner = owner

    def __setitem__(self, key: str, value: Any) -> None:
        if vars(self.owner).get(key, self) is not value:
            setattr(self.owner, key, value)

    def __delitem__(self, key: str) -> None:
        delattr(self.owner, key)


def attributes_of_classes(source: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields the same as `variables_of`, for attributes of the classes that a source file defines. A method is state only if it retains something
    between calls."""
    for name, owner in list(source.items()):
        if isinstance(owner, type) and owner.__module__ == source.get("__name__") and owner.__name__ == name and not issubclass(owner, Enum):
            table = Attributes(owner)
            for key, value in table.items():
                method = callable(value) or isinstance(value, (classmethod, staticmethod)) or hasattr(type(value), "__get__")
                if not method or isinstance(value, FunctionType) and _remembers(value):
                    yield f"{name}.{key}", table, key


def source_of(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the namespace of the source that defines a model."""
    home = type(model).__module__
    names = getattr(inspect.unwrap(type(model).forward), "__globals__", {})
    if names.get("__name__") == home:
        return names
    return vars(sys.modules[home]) if home in sys.modules else {}


class Variables:
    """The variables of a source file with the values that they have right after the file is imported, which is when a model is constructed."""

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
    """Returns the tensors of a model's state dict, followed by its buffers that are not in the state dict (`persistent=False`)."""
    state = _tensors(model)
    return {**state, **{name: value for name, value in model.named_buffers(remove_duplicate=False) if name not in state}}


class PlainState:
    """The current plain state of a model and of the module that defines it. It includes buffers that do not exist yet or are None, because a forward
    that creates such a buffer keeps it for later calls."""

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
            for key in module._modules if isinstance(module._modules, dict) else ():  # the module that a name refers to, except in a script module
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
        """Yields the same as `_places`, for buffers that exist but are not in the state dict."""
        for path, module in self.model.named_modules():
            for key in module._non_persistent_buffers_set if isinstance(module._buffers, dict) else ():
                if module._buffers.get(key) is not None:
                    yield f"self.{path + '.' if path else ''}{key}", module._buffers, key

    def made_buffers(self) -> list[str]:
        """Returns the names of buffers that have been created since this state was saved."""
        return [name for name, table, key in self._late() if table[key] is not None]

    def place(self, name: str) -> tuple[dict[str, Any], str] | None:
        """Returns the table and the key of a value by its name in `changed`, or None if it no longer exists."""
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
            table[key] = buffer  # the value is not a cache that has grown; the buffer's values are restored with the state

    def __enter__(self) -> PlainState:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()


def history_matters(model: torch.nn.Module, call: Callable[[torch.nn.Module, bool], list[torch.Tensor]]) -> bool:
    """Returns whether, after an earlier call, a call that starts from the same state dict returns a different result or leaves a different state
    dict. `call(model, other)` returns forward's result tensors for the given inputs or for other ones, always with the same seed."""
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
            return len(one) != len(two) or any(a.shape != b.shape or not equal(a, b) for a, b in zip(one, two, strict=True))
        finally:
            back()


def settled(model: torch.nn.Module, names: Sequence[str], call: Callable[[torch.nn.Module, bool], Any]) -> set[str]:
    """Returns those of `names` (in the form of `PlainState.changed`) whose value is the same after every call, whatever the inputs are, such as the
    size of a cache. If every value that forward changes settles, later calls compute the same as the second call."""
    with torch.no_grad(), PlainState(model) as plain:
        state = {name: value.clone() for name, value in _tensors(model).items()}
        found: list[list[Any]] = []
        try:
            for other in (False, True, False):
                call(model, other)
                places = [plain.place(name) for name in names]
                found.append([place[0][place[1]] if place is not None else None for place in places])
        finally:
            for name, value in _tensors(model).items():
                value.copy_(state[name])
    return {name for name, *values in zip(names, *found, strict=True) if all(type(v) is type(values[0]) and v == values[0] for v in values)}
