"""Arguments of operators as the captured graph holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def refs(value: Any) -> Iterator[str]:
    """Names of the tensors among an operator's arguments."""
    if isinstance(value, dict):
        if "ref" in value:
            yield value["ref"]
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs(item)


def plain(value: Any) -> Any:
    """A JSON argument as a Python value: `{"float": "inf"}` becomes the number."""
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    return value
