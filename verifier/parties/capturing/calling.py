"""Turns a model's forward into a function of tensors only, by flattening arguments and results into leaves and reassembling them.

Non-tensor values are constants of the capture. Hooks are not captured, nor is a `__call__` that the model's class defines, because a program keeps
both unchanged.
"""

# sandboxed: calls the models that tasks define

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import keyword
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
CHANGED = "it changes a list or a dict in place"
NAMED = "it gives a list or a dict a second name"
SHARED = "it changes in place a tensor that also has another name"
_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format)


def shared(tensors: Iterable[torch.Tensor]) -> bool:
    """Returns whether any two of the tensors share memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout is torch.strided and tensor.numel()]
    return len(places) != len(set(places))


class Unwritable(ValueError):
    """Raised when a result of forward cannot be represented as data."""


@dataclass
class Leaf:
    """A leaf of an argument. `owner` is the argument that contains it, by position or by name. `path` is its location in that argument, as Python
    code to append to the argument's name."""

    owner: int | str
    path: str
    value: Any


@dataclass
class FlatCall:
    """A flattened call `forward(*args, **kwargs)`: its leaves, and the information needed to reassemble them."""

    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    own: str = ""  # name of the task's module
    leaves: list[Leaf] = field(default_factory=list)
    tree: Any = None  # structure of the results; known after a call
    results: list[Any] = field(default_factory=list)  # all leaves of the results; tensors by their position among the tensors
    running: bool = False  # whether forward is running
    apart: bool = False  # whether the lists and dicts among the results must be new ones, because later statements may change them
    after: Callable[[], None] | None = None  # inspects the model before the exporter restores what forward changed

    def __post_init__(self) -> None:
        owners: list[int | str] = [*range(len(self.args)), *self.kwargs]
        for owner, value in zip(owners, [*self.args, *self.kwargs.values()], strict=True):
            self.leaves += [Leaf(owner, path, leaf) for path, leaf in leaves_of(value, "")]

    @property
    def tensors(self) -> list[Leaf]:
        return [leaf for leaf in self.leaves if isinstance(leaf.value, torch.Tensor)]

    def __call__(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        waiting = iter(tensors)
        rebuilt = [rebuild(value, waiting) for value in [*self.args, *self.kwargs.values()]]
        positional, named = rebuilt[: len(self.args)], dict(zip(self.kwargs, rebuilt[len(self.args) :], strict=True))
        before = [contents(value) for value in rebuilt]
        values: list[Any] = []
        self.results = []
        self.running = True
        try:
            returned = self.forward(*positional, **named)
        finally:
            self.running = False
        if self.after is not None:
            with _disable_current_modes():
                self.after()
        if any(changed(one, value) for one, value in zip(before, rebuilt, strict=True)):
            raise ValueError(CHANGED)
        if self.apart and len(found := [*containers(rebuilt), *containers(returned)]) != len(set(found)):
            raise ValueError(NAMED)
        self.tree = described(returned, values, self.results, self.own)
        return tuple(values)

    def signature(self) -> inspect.Signature:
        """Returns one parameter per tensor, named after the argument that is, or contains, the tensor."""
        names: list[str] = []
        given = [*inspect.signature(self.forward).parameters.values()]
        positional = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        for leaf in self.tensors:
            owner = leaf.owner if isinstance(leaf.owner, str) else positional[leaf.owner] if leaf.owner < len(positional) else f"arg{leaf.owner}"
            word = owner + "".join(c if c.isalnum() and c.isascii() else "_" for c in leaf.path)
            word, base, number = word.rstrip("_") or owner, word.rstrip("_") or owner, 1
            while word in names or keyword.iskeyword(word):
                number += 1
                word = f"{base}_{number}"
            names.append(word)
        return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])


def leaves_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Flattens a value. Raises `ValueError` for an object of an unknown type, whose tensors could not be found."""
    parts = parts_of(value)
    if parts is not None:
        for accessor, item in parts:
            yield from leaves_of(item, path + accessor)
        return
    known = (torch.Tensor, *_WORDS, type(None), bool, int, float, complex, str, bytes, type, ModuleType, Enum)
    if not isinstance(value, known) and not callable(value):
        raise ValueError(f"an argument is an object of type {type(value).__name__}, whose tensors cannot be found")
    yield path, value


def parts_of(value: Any) -> list[tuple[str, Any]] | None:
    """Returns a container's items, each with the Python code that reads it. Returns None for anything else."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{one.name}", getattr(value, one.name)) for one in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, (list, tuple)):
        return [(f"[{at}]", item) for at, item in enumerate(value)]
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    return None


def contents(value: Any) -> Any:
    """Returns what a container holds, at all depths, for `changed`; anything else is returned as it is."""
    parts = parts_of(value)
    return value if parts is None else (value, [(accessor, contents(item)) for accessor, item in parts])


def containers(value: Any) -> Iterator[int]:
    """Yields the identities of the containers within a value that can be changed."""
    parts = parts_of(value)
    if parts is not None:
        if not isinstance(value, tuple):
            yield id(value)
        for _, item in parts:
            yield from containers(item)


def changed(before: Any, value: Any) -> bool:
    """Returns whether a container holds anything other than `before`, its `contents` at an earlier time. A tensor with other values is the same
    tensor."""
    parts = parts_of(value)
    if parts is None or not isinstance(before, tuple):
        return before is not value
    same = before[0] is value and [accessor for accessor, _ in before[1]] == [accessor for accessor, _ in parts]
    return not same or any(changed(one, item) for (_, one), (_, item) in zip(before[1], parts, strict=True))


def rebuild(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """Rebuilds `value`, replacing its tensors with `tensors` in the order of its leaves."""
    if isinstance(value, torch.Tensor):
        return next(tensors)
    parts = parts_of(value)
    if parts is None:
        return value
    items = [rebuild(item, tensors) for _, item in parts]
    if dataclasses.is_dataclass(value):
        made = copy.copy(value)
        for one, item in zip(dataclasses.fields(value), items, strict=True):
            object.__setattr__(made, one.name, item)
        return made
    if isinstance(value, tuple):
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items) if type(value) in (tuple, torch.Size) else tuple(items)
    if isinstance(value, Mapping):
        table: Any = copy.copy(value)
        for key, item in zip(value, items, strict=True):
            table[key] = item
        return table
    return items


def described(value: Any, values: list[Any], results: list[Any], own: str = "") -> Any:
    """Returns the structure of the results as the graph stores it, with positions in `results`. Appends the tensors and numbers of the call to
    `values`."""
    if isinstance(value, (torch.Tensor, *_NUMBERS)):
        values.append(value)
        results.append({"out": len(values) - 1})
        return len(results) - 1
    if value is None or isinstance(value, (bool, int, float, str, complex, *_WORDS)):
        results.append(value)
        return len(results) - 1
    if isinstance(value, tuple) and hasattr(value, "_fields") or dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = parts_of(value) or []
        items = [described(item, values, results, own) for _, item in parts]
        return {"made": {**_class(value, own), "names": [accessor[1:] for accessor, _ in parts], "items": items}}
    if type(value).__module__ == "torch.return_types":
        return {"made": {**_class(value, own), "names": None, "items": [described(item, values, results, own) for item in value]}}
    if isinstance(value, (list, tuple)):
        items = [described(item, values, results, own) for item in value]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Mapping):
        if type(value) is dict and all(isinstance(key, str) for key in value) and set(value) not in ({"tuple"}, {"made"}):
            return {key: described(item, values, results, own) for key, item in value.items()}
        if type(value) in (dict, OrderedDict) and all(isinstance(key, (str, int, bool)) for key in value):
            return {"made": {**_class(value, own), "keys": list(value), "items": [described(item, values, results, own) for item in value.values()]}}
    raise Unwritable(f"forward returns an object of type {type(value).__name__}, which cannot be written as data")


def _class(value: Any, own: str) -> dict[str, str]:
    """Returns a class by name; `module` is empty for a class in the task's own source."""
    name, home = type(value).__qualname__, type(value).__module__
    if "<" in name:
        raise Unwritable(f"forward returns an object of the class {type(value).__name__}, which is made inside a function")
    return {"class": name, "module": "" if home == own else home}


def forward_arguments(model: torch.nn.Module, inputs: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments that forward receives when the model is called with `inputs`. They may differ from `inputs` because of the model's own
    `__call__` or a hook."""
    plain = type(model).__call__ is torch.nn.Module.__call__ and not model._forward_pre_hooks
    if plain:
        return tuple(inputs), {}

    class Seen(BaseException):
        pass

    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def spy(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))
        raise Seen

    try:
        twin = copy.deepcopy(model)
    except Exception:  # an attribute that cannot be copied, such as a dict whose `__getattr__` raises KeyError
        twin = copy.copy(model)
    twin.forward = spy
    with contextlib.suppress(Seen):
        twin(*inputs)
    if not seen:
        raise ValueError("the model's own __call__ does not call forward")
    order = [name for name in inspect.signature(model.forward).parameters if name in seen[0][1]]
    return seen[0][0], {name: seen[0][1][name] for name in [*order, *(name for name in seen[0][1] if name not in order)]}


@contextlib.contextmanager
def called_as(model: torch.nn.Module, flat: Callable[..., Any], signature: inspect.Signature) -> Iterator[None]:
    """Makes `model(*tensors)` equivalent to `flat(*tensors)` while the context is open."""

    def forward(*tensors: Any) -> Any:
        return flat(*tensors)

    forward.__signature__ = signature  # type: ignore[attr-defined]  # what inspect reads first
    own, had = type(model), "forward" in model.__dict__
    before = model.__dict__.get("forward")
    hooks = {name: model.__dict__[name] for name in _HOOKS if name in model.__dict__}
    for name in hooks:
        model.__dict__[name] = OrderedDict()
    if own.__call__ is not torch.nn.Module.__call__:
        model.__class__ = type(own.__name__, (own,), {"__call__": torch.nn.Module.__call__, "__module__": own.__module__})
    model.__dict__["forward"] = forward
    try:
        yield
    finally:
        model.__class__ = own
        model.__dict__.update(hooks)
        del model.__dict__["forward"]
        if had:
            model.__dict__["forward"] = before


def plain_value(value: Any) -> Any:
    """Returns a constant argument as a JSON value. Values that JSON cannot express become `{"code": ...}` with Python code, or with an empty string
    if no code expresses them either."""
    if isinstance(value, Enum):
        return {"code": ""}
    if value is None or isinstance(value, (bool, int, str)) or isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, float) and not math.isnan(value):
        return {"code": f"float({str(value)!r})"}
    if isinstance(value, torch.device):
        return {"code": f"torch.{value!r}"}
    return {"code": str(value) if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, complex, bytes)) else ""}
