"""Contrast of the design tokens in both schemes: WCAG AA, 4.5:1 for text and 3:1 for the borders of controls."""

from __future__ import annotations

import re

import pytest

from webapp.environment import ROOT

DEFINED = re.findall(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", (ROOT / "static/css/tokens.css").read_text())
TOKENS = {name: {"light": light, "dark": dark} for name, light, dark in DEFINED}
GROUNDS = ("surface", "page", "sunken", "raised", "hover")
CODE = [name for name in TOKENS if name.startswith("code-")]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme):
    pairs = [(text, ground) for text in ("text", "text-2", "text-3", "accent", "ok", "warn", "bad") for ground in GROUNDS]
    pairs += [(text, f"{tone}-soft") for tone in ("accent", "ok", "warn", "bad") for text in (tone, "text")]
    pairs += [("text-2", f"{tone}-soft") for tone in ("accent", "bad", "warn")] + [("on-accent", "accent"), ("on-accent", "accent-strong")]
    pairs += [(colour, ground) for colour in [*CODE, "text"] for ground in ("surface", "sunken", "added", "removed")]
    bad = {pair: round(ratio, 2) for pair in pairs if (ratio := contrast(*(TOKENS[name][scheme] for name in pair))) < 4.5}
    assert not bad


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_controls_and_series_stand_out(scheme):
    names = ["control-line", *(name for name in TOKENS if name.startswith("series-"))]
    pairs = [(name, ground) for name in names for ground in ("surface", "page")]
    bad = {pair: round(ratio, 2) for pair in pairs if (ratio := contrast(*(TOKENS[name][scheme] for name in pair))) < 3}
    assert not bad
