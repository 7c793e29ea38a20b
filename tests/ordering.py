"""Orders the tests for several workers: the longest start first, or one worker would be left alone with them in the end."""

from __future__ import annotations

import pytest


def longest_first(items: list[pytest.Item]) -> None:
    """Files by the longest time that one of their tests is allowed (`@pytest.mark.timeout`), the order within a file as it was."""
    longest: dict[object, float] = {}
    for item in items:
        allowed = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0.0), float(allowed.args[0]) if allowed and allowed.args else 0.0)
    items.sort(key=lambda item: -longest[item.path])
