"""Products of which only a triangle is kept, as printed for the GPU and run by the emulator."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.product import matmul
from tests.emulator import as_cpp

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})


@pytest.fixture(autouse=True)
def small_products_too(monkeypatch):
    monkeypatch.setattr(matmul, "LEAST_FLOPS", 1)


@pytest.mark.parametrize(
    "call",
    ["torch.triu(y)", pytest.param("torch.tril(y, -70)", marks=pytest.mark.slow), pytest.param("torch.triu(y, 9) + 1", marks=pytest.mark.slow)],
)
def test_tiles_outside_a_triangle_take_no_step(compiled, task, call):
    source = task(f"y = x @ self.w\nreturn {call}", "torch.randn(200, 330)", "self.w = nn.Parameter(torch.randn(330, 180))")
    found = compiled(source, figures=SMALL)
    (group,) = found.plan.groups
    whole = compiled(task("return x @ self.w", "torch.randn(200, 330)", "self.w = nn.Parameter(torch.randn(330, 180))"), figures=SMALL).plan.groups[0]
    assert "of zeros" in found.text and group.flops < 0.75 * whole.flops
    for tile in (0, 3):
        options = Options().with_knob("tile", tile, group.id).with_knob("split", 1, group.id)
        found.text = as_cpp(print_program(found.plan, source, options))
        found.check()
