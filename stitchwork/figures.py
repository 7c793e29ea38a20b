"""Formats figures as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def interval(speedup: dict[str, Any] | None) -> str:
    """Returns `2.41x [2.36, 2.47]`, or "-" if nothing was measured. The point estimate may be named `ratio` or `speedup`."""
    if not speedup:
        return "-"
    ratio = speedup.get("ratio", speedup.get("speedup"))
    return f"{ratio:.2f}x [{speedup['low']:.2f}, {speedup['high']:.2f}]"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.1f} us" if value < 1 else f"{value:.3f} ms"


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f} s" if value < 90 else f"{value / 60:.0f} min"


def ago(when: str | None) -> str:
    if not when:
        return "-"
    passed = (datetime.now(UTC) - datetime.fromisoformat(when.replace("Z", "+00:00"))).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if passed >= size:
            return f"{passed / size:.0f} {unit} ago"
    return "now" if passed < 10 else f"{passed:.0f} s ago"
