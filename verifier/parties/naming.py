"""Finds the classes and functions that arguments name, in the source of a task or program and in libraries."""

# sandboxed: reads what tasks and programs define

from __future__ import annotations

import importlib
from typing import Any

from verifier.objects import Resolve

LIBRARIES = frozenset({"torch", "collections", "math", "builtins", "numpy", "operator", "einops", "functools", "transformers", "timm", "torchvision"})


def resolver(module: Any) -> Resolve:
    """Returns a resolver for names in libraries and in `module`, the source of a task or program."""

    def resolve(home: str, name: str) -> Any:
        if home and home.split(".")[0] not in LIBRARIES:
            raise ImportError(f"an argument is of {home}")
        found = importlib.import_module(home) if home else module
        for part in name.split("."):
            found = getattr(found, part)
        return found

    return resolve
