"""Renders a result as a small SVG badge for a README, with the headline speedup and the device. The badge contains no script, style sheet or external
content."""

from __future__ import annotations

from html import escape

from webapp.leaderboard.models import Result
from webapp.leaderboard.shown.headlines import left_out, of_result
from webapp.ui.figures import short_device

LABEL = "Stitchwork"
COLOURS = {"ok": "#2c7a3f", "idle": "#5f6673", "warn": "#9a6700", "bad": "#b3261e"}  # white text on each of them has a contrast ratio of at least 4.5
LETTER, MARGIN, HEIGHT = 6.6, 7, 20  # in pixels: average letter width in 11 px Verdana, margin on both sides of a text, and height of the badge
MOST = 80  # characters of the message


def badge_of(result: Result) -> str:
    """Return the badge for a result with any outcome."""
    if left_out(result):
        return badge(f"result {result.verdict}", "warn")
    found = of_result(result)
    if found.first is None:
        return badge("no confirmed program", "idle")
    figure = found.first
    slower = figure.high is not None and figure.high < 1
    said = f"{figure.ratio:.2f}× vs {found.against}, {short_device(result.setup.device_name)}"
    return badge(said + (" (provisional)" if found.provisional else ""), "ok" if found.useful else "bad" if slower else "idle")


def badge(message: str, tone: str) -> str:
    """Return the SVG with this message; `tone` is a key of COLOURS."""
    message = message if len(message) <= MOST else message[: MOST - 1] + "…"
    left, right = (round(len(text) * LETTER + 2 * MARGIN) for text in (LABEL, message))
    whole = left + right

    def text(words: str, x: float, room: float) -> str:
        return f'<text x="{x:g}" y="14" textLength="{room:g}" lengthAdjust="spacingAndGlyphs">{escape(words)}</text>'

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{HEIGHT}" viewBox="0 0 {whole} {HEIGHT}" role="img" '
        f'aria-label="{escape(f"{LABEL}: {message}")}"><title>{escape(f"{LABEL}: {message}")}</title>'
        f'<rect width="{left}" height="{HEIGHT}" fill="#333840"/><rect x="{left}" width="{right}" height="{HEIGHT}" fill="{COLOURS[tone]}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{text(LABEL, MARGIN, left - 2 * MARGIN)}{text(message, left + MARGIN, right - 2 * MARGIN)}</g></svg>\n"
    )
