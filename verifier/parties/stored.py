"""Reads the tensors that a program holds without running any of the program's code.

A state dict is created by methods and hooks that a program may define. In them, a program could delay the computation of its state until the state is
read, which would take no time in the timed calls.
"""

# sandboxed: reads the tables of the models that programs define

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

COMPILED = "_orig_mod"  # the name under which torch.compile's wrapper holds a module
_TABLE = torch.nn.Module.__dict__["__dict__"]
_KINDS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def stored(model: Any) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers by their state-dict names. Omits instances of subclasses, and anything that is not in a module's own tables."""
    return dict(_tensors(model, "", ())) if isinstance(model, torch.nn.Module) else {}


def _tensors(module: torch.nn.Module, path: str, outer: tuple[int, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    if id(module) in outer:  # modules may contain each other
        return
    tables = _tables(module)
    for table in tables[:2]:
        for name, value in table.items():
            if type(value) in _KINDS:
                yield path + name, value
    for name, child in tables[2].items():
        if isinstance(child, torch.nn.Module):
            yield from _tensors(child, path if name == COMPILED else f"{path}{name}.", (*outer, id(module)))


def _tables(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Returns parameters, buffers and modules."""
    own = _TABLE.__get__(module)
    if isinstance(module, torch.jit.ScriptModule) and "_c" in own:
        held = own.get("_modules")
        natives: Any = torch._C  # torch leaves these untyped
        children = {name: getattr(held, "_python_modules", {}).get(name) for name, _ in natives.ModuleDict(own["_c"]).items()}
        return [dict(natives.ParameterDict(own["_c"]).items()), dict(natives.BufferDict(own["_c"]).items()), children]
    found = [own.get(name) for name in ("_parameters", "_buffers", "_modules")]
    return [dict(dict.items(table)) if isinstance(table, dict) else {} for table in found]
