"""Encodes arguments other than tensors and plain values as data: dataclasses, named tuples and modules, as well as classes and functions by name.

It adds these tree nodes to those of `layout`: ``{"o": {...}}`` an object of a class with its fields, ``{"g": [module, name]}`` a class, a function
or a member of an enumeration, ``{"p": tree}`` a parameter, ``{"m": [[key, value], ...]}`` a dict with keys of any plain type,
``{"device": "cpu"}``. A class of the task's own source has an empty module name; the receiver takes the class of that name from its own source.
Nothing is unpickled, and the judge resolves no names.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import torch

OWN = ("task", "program")  # module names under which untrusted sources are loaded
PER_MODULE = ("training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
Again = Callable[[Any], Any]
Resolve = Callable[[str, str], Any]


class NotNamed(ValueError):
    """Raised for a class or function that cannot be found by name."""


def encoded(value: Any, again: Again) -> dict[str, Any] | None:
    """Encodes an object as a tree, or returns null if it has none of the supported types. Raises `NotNamed`."""
    if isinstance(value, enum.Enum):
        return {"g": _member(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.nn.Parameter):
        return {"p": [again(value.detach()), value.requires_grad]}
    if isinstance(value, torch.nn.Module):
        return _object("module", type(value), _module_fields(value), again)
    if isinstance(value, functools.partial):
        return _object("partial", functools.partial, {"func": value.func, "args": list(value.args), "keywords": value.keywords}, again)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _object("tuple", type(value), dict(zip(value._fields, value, strict=True)), again)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)} | dict(getattr(value, "__dict__", {}))
        return _object("fields", type(value), fields, again)
    if isinstance(value, set) and all(isinstance(item, str) for item in value):
        return {"o": {"kind": "set", "class": _name(set), "names": [], "items": [again(item) for item in sorted(value)]}}
    if isinstance(value, Mapping) and type(value) in (dict, OrderedDict):
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return None
        pairs = [[again(key), again(item)] for key, item in value.items()]
        return {"m": pairs} if type(value) is dict else {"o": {"kind": "ordered", "class": _name(OrderedDict), "names": [], "items": [{"m": pairs}]}}
    if isinstance(value, types.SimpleNamespace):
        return _object("fields", type(value), dict(vars(value)), again)
    if isinstance(value, type) or callable(value) and hasattr(value, "__qualname__"):
        return {"g": _name(value)}
    return None


def _member(value: enum.Enum) -> list[str]:
    """Returns the name of an enumeration member, which is read like an attribute of its class."""
    home, name = _name(type(value))
    if value.name is None or "|" in value.name:
        raise NotNamed(f"{value} is a combination of members of {name}, which has no name")
    return [home, f"{name}.{value.name}"]


def _object(kind: str, cls: type, fields: Mapping[str, Any], again: Again) -> dict[str, Any]:
    return {"o": {"kind": kind, "class": _name(cls), "names": list(fields), "items": [again(item) for item in fields.values()]}}


def _module_fields(module: torch.nn.Module) -> dict[str, Any]:
    fields = {name: value for name, value in vars(module).items() if name in PER_MODULE or not name.startswith("_")}
    return {name: dict(value) if isinstance(value, dict) else value for name, value in fields.items()}


def _name(value: Any) -> list[str]:
    home, name = getattr(value, "__module__", None) or "torch", value.__qualname__
    if "<" in name:
        raise NotNamed(f"{name} is defined inside a function or is a lambda, so it has no name elsewhere")
    if home in OWN:
        return ["", name]
    if isinstance(value, types.BuiltinFunctionType) or home.startswith("torch._C"):
        places = {"torch": torch, "torch.nn.functional": torch.nn.functional}
        home = next((place for place, holder in places.items() if getattr(holder, name.split(".")[-1], None) is value), home)
        name = name.split(".")[-1] if home.startswith("torch") and "_C" not in home else name
    return [home, name]


def decoded(kind: str, body: Any, again: Again, resolve: Resolve | None) -> Any:
    """Decodes a tree produced by `encoded`. Raises `KeyError` or `ValueError` if it is malformed. Without `resolve`, names are left unresolved."""
    if kind == "device" and isinstance(body, str):
        return torch.device(body)
    if kind == "p":
        tensor = again(body[0])
        return torch.nn.Parameter(tensor, requires_grad=bool(body[1])) if isinstance(tensor, torch.Tensor) else tensor
    if kind == "m":
        return {again(key): again(value) for key, value in body}
    if kind == "g":
        return resolve(*body) if resolve is not None else ".".join(filter(None, body))
    names, items = [str(name) for name in body["names"]], [again(item) for item in body["items"]]
    fields = dict(zip(names, items, strict=False))
    if body["kind"] == "set":
        return set(items)
    if body["kind"] == "ordered":
        return OrderedDict(items[0])
    if resolve is None:
        return tuple(items) if body["kind"] == "tuple" else fields
    if body["kind"] == "partial":
        return functools.partial(fields["func"], *fields["args"], **fields["keywords"])
    return _made(body["kind"], body["class"], fields, resolve)


def _made(kind: str, name: list[str], fields: dict[str, Any], resolve: Resolve) -> Any:
    try:
        cls = resolve(*name)
    except (AttributeError, ImportError, ValueError):
        cls = None
    if kind == "tuple":
        return (cls or namedtuple(name[1].split(".")[-1], list(fields)))(**fields)
    if kind == "module":
        if not (isinstance(cls, type) and issubclass(cls, torch.nn.Module)):
            raise ValueError(f"there is no class {name[1]!r} for an argument of the constructor")
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made.__dict__.update(fields)
        return made
    if cls is None or not isinstance(cls, type):
        return types.SimpleNamespace(**fields)
    made = object.__new__(cls)
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made
