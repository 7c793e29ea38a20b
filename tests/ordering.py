"""Orders the tests for several workers: the longest start first; otherwise, one worker would still be running them after the others had finished."""

from __future__ import annotations

import pytest


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts files by the longest time that any of their tests may take (`@pytest.mark.timeout`); the order within a file is unchanged."""
    longest: dict[object, float] = {}
    for item in items:
        allowed = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0.0), float(allowed.args[0]) if allowed and allowed.args else 0.0)
    items.sort(key=lambda item: -longest[item.path])
