"""Collects the source of the library classes that make up a model, so that program authors know the names and layouts of its parameters."""

# sandboxed: reads the classes that tasks use

from __future__ import annotations

import inspect

import torch

MOST = 24_000  # characters in total
FAMILIAR = ("torch", "builtins")  # modules whose code does not need to be shown


def library_code(model: torch.nn.Module, task: str) -> dict[str, str]:
    """Returns the source of the classes of all modules, except torch's own and those in the `task` module, by qualified name, outermost first. Omits
    classes without source and any class that would exceed `MOST`."""
    found: dict[str, str] = {}
    left = MOST
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        home = kind.__module__
        if home == task or home.partition(".")[0] in FAMILIAR:
            continue
        try:
            source = inspect.getsource(kind)
        except (OSError, TypeError):
            continue
        if len(source) <= left:
            found[f"{home}.{kind.__qualname__}"] = source
            left -= len(source)
    return found
