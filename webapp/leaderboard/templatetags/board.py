"""Template tags for leaderboard figures, in addition to those of webapp/ui/tags.py.

{{ x|dollars }} {{ x|rounded }}          $0.12 (free: $0); 1.2k, 3.40M; "–" for None
{% board_cell shown row board scale %}   a cell of the ranking in its column's format (webapp/leaderboard/columns.py)
{% interval ratio low high %}            a speedup from three columns, in the format of {% speedup %}
{% interval_drawn ratio low high scale %}
"""

from __future__ import annotations

from typing import Any

from django import template

from webapp.leaderboard.ranking import Board, BoardRow
from webapp.ui.tags import speedup_tag, whisker

register = template.Library()


@register.filter
def dollars(value: float | None) -> str:
    if value is None:
        return "–"
    if value == 0:
        return "$0"
    return f"${value:.2f}" if value >= 0.1 else f"${value:.3f}" if value >= 0.001 else "< $0.001"


@register.filter
def rounded(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value < 10_000 else f"{value / 1000:.1f}k" if value < 1e6 else f"{value / 1e6:.2f}M"


@register.inclusion_tag("leaderboard/_cell.html")
def board_cell(shown: dict[str, Any], row: BoardRow, board: Board, scale: tuple[float, float]) -> dict[str, Any]:
    """Render one cell of the table. The interval of a geometric mean is drawn next to its value."""
    column = shown["column"]
    return {
        "row": row,
        "tasks": len(board.tasks),
        "kind": column.kind,
        "label": shown["label"],
        "value": column.figure(row, board.filters.against),
        "scale": scale if column.key == "geo" else None,
    }


@register.inclusion_tag("partials/speedup.html")
def interval(ratio: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    return speedup_tag({"ratio": ratio, "low": low, "high": high})


@register.inclusion_tag("partials/whisker.html")
def interval_drawn(ratio: float | None, low: float | None, high: float | None, scale: tuple[float, float]) -> dict[str, Any]:
    return whisker({"ratio": ratio, "low": low, "high": high}, scale)
