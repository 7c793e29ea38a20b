"""The device pixels per CSS pixel at which pages are tested: those of a plain screen, a scaled one and most laptops."""

from __future__ import annotations

import pytest

RATIOS = pytest.mark.parametrize(
    "ratio", [pytest.param(ratio, marks=pytest.mark.browser_context_args(device_scale_factor=ratio)) for ratio in (1, 1.5, 2)]
)
