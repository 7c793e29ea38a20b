"""Figures of the leaderboard, besides those of webapp/ui/tags.py.

{{ x|dollars }} {{ x|rounded }}          $0.12 (free: $0); 1.2k, 3.40M; "–" for None
{% interval ratio low high %}            a speedup of three columns, as {% speedup %} shows one
{% interval_drawn ratio low high scale %}
"""

from __future__ import annotations

from django import template

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


@register.inclusion_tag("partials/speedup.html")
def interval(ratio: float | None, low: float | None, high: float | None) -> dict:
    return speedup_tag({"ratio": ratio, "low": low, "high": high})


@register.inclusion_tag("partials/whisker.html")
def interval_drawn(ratio: float | None, low: float | None, high: float | None, scale: tuple[float, float]) -> dict:
    return whisker({"ratio": ratio, "low": low, "high": high}, scale)
