"""Moves cases from `make test` to `make test-all` if they repeat what another case of the same test covers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], kept: int) -> list[Any]:
    """Returns the parameters `cases`, with all but the first `kept` marked `slow`."""
    return [case if number < kept else pytest.param(case, marks=pytest.mark.slow) for number, case in enumerate(cases)]
