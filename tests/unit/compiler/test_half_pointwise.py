"""Convolutions with one-element windows in bf16 and fp16, computed as products of the weights and each image, run by the emulator and compared with
PyTorch."""

import pytest

from compiler import DeviceFigures, Options
from compiler.families.conv import half_pointwise
from tests.emulator import as_cpp
from tests.unit.compiler.test_half_product import SMALL


@pytest.fixture(autouse=True)
def whatever_the_library_does(monkeypatch):
    monkeypatch.setattr(half_pointwise, "worthwhile", lambda *_: True)


@pytest.fixture
def emulated(compiled):
    def run(source: str, options: Options | None = None, figures: DeviceFigures = SMALL, precision: str = "bf16"):
        found = compiled(source, figures=figures, options=options, precision=precision)
        assert "half-pointwise" in [group.family for group in found.plan.groups], [group.reason for group in found.plan.groups]
        assert "_turn<<<" not in found.text
        found.text = as_cpp(found.text)
        return found

    return run


TASKS = {
    "with bias and tail": ("torch.relu(self.conv(x)) * self.s", "nn.Conv2d(16, 24, 1)", (2, 16, 4, 10)),
    "one image": ("self.conv(x) + x", "nn.Conv2d(24, 24, 1, bias=False)", (1, 24, 6, 8)),
    "four by four": ("torch.relu(self.conv(x))", "nn.Conv2d(16, 24, 1)", (3, 16, 2, 6)),
    "deep": ("F.silu(self.conv(x))", "nn.Conv2d(200, 20, 1)", (3, 200, 4, 4)),
    "many outputs": ("self.conv(x)", "nn.Conv2d(12, 150, 1)", (2, 12, 8, 8)),
    "a line": ("self.conv(x)", "nn.Conv1d(16, 8, 1)", (4, 16, 40)),
    "a volume": ("self.conv(x).sigmoid()", "nn.Conv3d(8, 16, 1)", (2, 8, 4, 4, 6)),
}
QUICK = ("with bias and tail", "one image")


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TASKS])
def test_against_pytorch(emulated, task, name, precision):
    call, module, shape = TASKS[name]
    source = task(f"return {call}", f"torch.randn{shape}", f"self.conv = {module}\nself.s = nn.Parameter(torch.tensor(0.7))")
    emulated(source, precision=precision).check()


@pytest.mark.parametrize("tile", [pytest.param(number, marks=() if number in (0, 6) else pytest.mark.slow) for number in range(14)])
def test_every_tile(emulated, task, tile):
    source = task("return torch.relu(self.conv(x))", "torch.randn(2, 72, 6, 12)", "self.conv = nn.Conv2d(72, 40, 1)")
    emulated(source, Options(knobs={"tile": tile})).check()


def test_it_writes_where_a_concatenation_wants_it(emulated, task):
    source = task(
        "return torch.cat([torch.relu(self.a(x)), self.b(x)], 1)", "torch.randn(2, 16, 8, 8)",
        "self.a = nn.Conv2d(16, 24, 1)\nself.b = nn.Conv2d(16, 8, 1)",
    )  # fmt: skip
    found = emulated(source)
    assert "torch.cat(" not in found.text
    found.check()


OTHER = {
    "steps": ("nn.Conv2d(16, 24, 1, stride=2)", (2, 16, 8, 8)),
    "border": ("nn.Conv2d(16, 24, 1, padding=1)", (2, 16, 8, 8)),
    "groups": ("nn.Conv2d(16, 32, 1, groups=2)", (2, 16, 8, 8)),
    "window": ("nn.Conv2d(16, 24, 3)", (2, 16, 8, 8)),
    "positions that are no whole copies": ("nn.Conv2d(16, 24, 1)", (2, 16, 5, 7)),
}


@pytest.mark.parametrize("name", OTHER)
def test_others_are_left(compiled, task, name):
    module, shape = OTHER[name]
    source = task("return torch.relu(self.conv(x))", f"torch.randn{shape}", f"self.conv = {module}")
    assert "half-pointwise" not in [group.family for group in compiled(source, figures=SMALL, precision="bf16").plan.groups]
