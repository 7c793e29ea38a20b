"""The state that a model keeps outside of its state dict: counters, lists, caches and tensors as plain attributes, and variables of its source.

Forward may change it like buffers. It is saved and restored, so that calls can begin from the same state.
"""

# sandboxed: reads and writes attributes of the models that tasks and programs define

from __future__ import annotations

import inspect
import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch

_OWN = frozenset({"_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"})
_PLAIN = (int, float, str, bytes, bool, complex, type(None), torch.dtype, torch.device, torch.Size, range)
OURS = __name__.split(".")[0]  # the package whose objects a stranger's source may have found, and which are not restored
DEPTH = 8  # depth of nested containers


@dataclass
class Saved:
    """A saved value; `content` is its mutable content, null for an immutable value."""

    value: Any
    content: Any = None

    def restored(self) -> Any:
        value, content = self.value, self.content
        if isinstance(value, torch.Tensor) and content is not None:
            with torch.no_grad():
                if value.shape == content.shape and value.dtype == content.dtype:
                    value.copy_(content)
                else:
                    value = content.clone()
        elif isinstance(value, torch.Generator):
            value.set_state(content)
        elif _seeded(value):
            value.setstate(content)
        elif isinstance(value, (list, deque)):
            items = [item.restored() for item in content]
            value.clear()
            value.extend(items)
        elif isinstance(value, set):
            value.clear()
            value.update(content)
        elif isinstance(value, tuple):
            for item in content or ():
                item.restored()
        elif content is not None:
            table = value if isinstance(value, dict) else vars(value)
            kept = {key: item.restored() for key, item in content.items()}
            for key in [key for key in table if key not in kept]:
                del table[key]
            table.update(kept)
        return value

    def differs(self, now: Any) -> bool:
        """Whether `now` differs from the saved value. An equal tensor in other memory is the same."""
        value, content = self.value, self.content
        if isinstance(value, (torch.nn.Parameter, weakref.ref)):
            return False  # parameters are in the state dict, wherever else they are referenced
        if isinstance(value, torch.Tensor):
            before = value if content is None else content
            return not (isinstance(now, torch.Tensor) and now.shape == before.shape and now.dtype == before.dtype and _equal(now, before))
        if isinstance(value, torch.Generator):
            return now is not value or not torch.equal(now.get_state(), content)
        if _seeded(value):
            return now is not value or bool(now.getstate() != content)
        if isinstance(value, set):
            return bool(now != content)
        if isinstance(value, (list, deque, tuple)) and content is not None:
            return type(now) is not type(value) or len(now) != len(content) or any(a.differs(b) for a, b in zip(content, now, strict=True))
        if content is not None:
            if type(now) is not type(value):
                return True
            table = now if isinstance(now, dict) else vars(now)
            return set(table) != set(content) or any(item.differs(table[key]) for key, item in content.items())
        if isinstance(value, _PLAIN):
            return type(now) is not type(value) or not (now == value or now != now and value != value)
        return now is not value


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        return one is other or one.device == other.device and bool(torch.equal(one, other) or torch.equal(one.isnan(), other.isnan()) and torch.equal(
            one.nan_to_num(), other.nan_to_num()
        ))  # fmt: skip
    except Exception:  # a tensor of an exporter holds no values
        return False


def _seeded(value: Any) -> bool:
    """Whether a value is a generator with a state; the system's entropy has none."""
    return isinstance(value, random.Random) and not isinstance(value, random.SystemRandom)


def save(value: Any, seen: dict[int, Saved], depth: int = 0) -> Saved:
    if id(value) in seen:
        return seen[id(value)]
    saved = seen[id(value)] = Saved(value)
    if depth > DEPTH or isinstance(value, (*_PLAIN, type, FunctionType, ModuleType, torch.nn.Module, torch.nn.Parameter)):
        return saved
    if isinstance(value, torch.Tensor):
        saved.content = value.detach().clone() if type(value) is torch.Tensor and value.layout is torch.strided else None
    elif isinstance(value, torch.Generator):
        saved.content = value.get_state()
    elif _seeded(value):
        saved.content = value.getstate()
    elif isinstance(value, (list, deque, tuple)):
        saved.content = [save(item, seen, depth + 1) for item in value]
    elif isinstance(value, dict):
        saved.content = {key: save(item, seen, depth + 1) for key, item in value.items()}
    elif isinstance(value, set):
        saved.content = set(value)
    elif type(value).__module__.split(".")[0] != OURS and isinstance(getattr(value, "__dict__", None), dict) and not callable(value):
        saved.content = {key: save(item, seen, depth + 1) for key, item in vars(value).items()}
    return saved


def variables_of(source: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields a readable name, the table and the key of each variable of a source."""
    for key, value in list(source.items()):
        if not key.startswith("__") and not callable(value) and not isinstance(value, ModuleType):
            yield key, source, key


def source_of(model: torch.nn.Module) -> dict[str, Any]:
    """Returns the names of the stranger's source that defines a model."""
    home = type(model).__module__
    names = getattr(inspect.unwrap(type(model).forward), "__globals__", {})
    if names.get("__name__") == home:
        return names
    return vars(sys.modules[home]) if home in sys.modules else {}


class Variables:
    """Variables of a source as they are right after its import: a newly constructed model finds them so."""

    def __init__(self, module: Any):
        seen: dict[int, Saved] = {}
        self.kept = [(table, key, save(table[key], seen)) for _, table, key in variables_of(vars(module))]

    def restore(self) -> None:
        for table, key, saved in self.kept:
            table[key] = saved.restored()

    def __enter__(self) -> Variables:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()


class PlainState:
    """The current plain state of a model and of the module that defines it. A buffer that is not there yet, or None, belongs to it: a forward that
    makes such a tensor keeps it for later calls."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self.held: set[str] = set()  # buffers that are there
        self.held = {name for name, table, key in self._late() if table[key] is not None}
        self.source = source_of(model) if type(model).__module__ in ("task", "program") else {}
        seen: dict[int, Saved] = {}
        self.kept = {name: (table, key, save(table[key], seen)) for name, table, key in self._places()}

    def _places(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Yields a readable name, the table and the key of each value."""
        for path, module in self.model.named_modules():
            library = type(module).__module__.startswith("torch.nn.")  # modules whose private attributes are not state of the model
            for key in vars(module):
                if (
                    key not in _OWN
                    and not (library and key.startswith("_"))
                    and not key.endswith("_hooks")
                    and "_hooks_" not in key
                    and key != "forward"
                ):
                    yield f"self.{path + '.' if path else ''}{key}", vars(module), key
        yield from self._late()
        yield from variables_of(self.source)

    def _late(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """As `_places`, for buffers that were not there, or None."""
        for path, module in self.model.named_modules():
            for key in module._buffers if isinstance(module._buffers, dict) else ():  # a script's module makes none
                if (name := f"self.{path + '.' if path else ''}{key}") not in self.held:
                    yield name, module._buffers, key

    def made_buffers(self) -> list[str]:
        """Returns names of buffers that have been made since."""
        return [name for name, table, key in self._late() if table[key] is not None]

    def tensors(self) -> list[str]:
        """Returns tensors in plain attributes, as `module.name`."""
        own = [(name, saved.value) for name, (table, _, saved) in self.kept.items() if table is not self.source]
        return [name.removeprefix("self.") for name, value in own if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)]

    def changed(self) -> list[str]:
        """Returns names of values that have changed."""
        now = {name: table[key] for name, table, key in self._places()}
        found = [name for name, (_, _, saved) in self.kept.items() if name not in now or saved.differs(now[name])]
        return found + [name for name in now if name not in self.kept]

    def restore(self) -> None:
        for name, table, key in list(self._places()):
            if name not in self.kept:
                del table[key]
        for table, key, saved in self.kept.values():
            table[key] = saved.restored()

    def __enter__(self) -> PlainState:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()


def history_matters(model: torch.nn.Module, call: Callable[[torch.nn.Module, bool], list[torch.Tensor]]) -> bool:
    """Whether a call gives another result, or leaves another state dict, after an earlier call, although it began with the same one.
    `call(model, other)` returns forward's result tensors, for the inputs or for other ones, under one seed."""
    with torch.no_grad(), PlainState(model) as fresh:
        state = {name: value.clone() for name, value in model.state_dict().items()}

        def back() -> None:
            for name, value in model.state_dict().items():
                value.copy_(state[name])

        try:

            def made() -> list[torch.Tensor]:
                return [tensor.detach().clone() for tensor in [*call(model, False), *model.state_dict().values()]]

            one = made()
            back()
            fresh.restore()
            call(model, True)
            back()
            two = made()
            return len(one) != len(two) or any(a.shape != b.shape or not _equal(a, b) for a, b in zip(one, two, strict=True))
        finally:
            back()
