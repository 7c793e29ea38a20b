"""Leaves cases to `make test-all` that try again what another case of the same test has tried in `make test`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], kept: int) -> list[Any]:
    """Returns the parameters `cases`, of which all but the first `kept` are marked `slow`."""
    return [case if number < kept else pytest.param(case, marks=pytest.mark.slow) for number, case in enumerate(cases)]
