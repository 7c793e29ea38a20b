"""The floor of operations under fp32-strict: a policy is an error bound, so tensor cores count, with the number of products that they need to meet
it."""

from types import SimpleNamespace

import pytest

from verifier.devices.base import Ceiling
from verifier.timing.roofline import floor_ms


def device(**rates: float | None) -> SimpleNamespace:
    return SimpleNamespace(ceiling=lambda precision: Ceiling(1e12, rates[precision.replace("-", "_")], "made up"))


@pytest.mark.parametrize(
    ("rates", "precision", "milliseconds"),
    [
        ({"fp32_strict": 10e12, "tf32": 90e12}, "fp32-strict", 100.0),  # 30 with three products
        ({"fp32_strict": 10e12, "tf32": 90e12}, "tf32", 100 / 3),
        ({"fp32_strict": 40e12, "tf32": 90e12}, "fp32-strict", 75.0),
        ({"fp32_strict": 10e12, "tf32": None}, "fp32-strict", 300.0),
    ],
)
def test_floor(rates, precision, milliseconds):
    assert floor_ms(device(**rates), 1, int(3e12), precision) == (pytest.approx(milliseconds), "")
