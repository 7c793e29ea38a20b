"""Convolutions computed directly from the image, compared with PyTorch in fp64 and run by the emulator: few channels, windows, strides, borders,
several tiles."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.conv import conv
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp

QUICK = ("depth by two", "transposed")
SMALL = DeviceFigures.h200().model_copy(update={"units": 2})  # so that a block processes several tiles

CONVS = {
    "eight channels": ("nn.Conv2d(8, 40, 3)", (2, 8, 14, 20)),
    "odd channels, padded": ("nn.Conv2d(5, 20, 3, padding=1)", (2, 5, 9, 11)),
    "three channels": ("nn.Conv2d(3, 70, 3, padding=2, bias=False)", (2, 3, 7, 36)),
    "two groups of eight": ("nn.Conv2d(12, 16, (2, 3), dilation=(3, 2))", (1, 12, 12, 9)),
    "by two": ("nn.Conv2d(4, 33, 5, stride=2, padding=2)", (2, 4, 17, 24)),
    "depth": ("nn.Conv3d(3, 18, 3, padding=1)", (1, 3, 4, 6, 12)),
    "depth by two": ("nn.Conv3d(6, 16, (3, 2, 3), stride=(2, 1, 1), padding=(0, 1, 1))", (1, 6, 7, 5, 8)),
    "transposed": ("nn.ConvTranspose2d(7, 16, 3, padding=1)", (2, 7, 6, 8)),
    "transposed depth": ("nn.ConvTranspose3d(2, 16, (2, 3, 3), dilation=2)", (1, 2, 3, 4, 4)),
}


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(conv, "LEAST_FLOPS", 1)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CONVS])
def test_convolutions(compiled, task, name):
    module, shape = CONVS[name]
    source = task("return torch.relu(self.conv(x)) + self.s", f"torch.randn{shape}", f"self.conv = {module}\nself.s = nn.Parameter(torch.randn(1))")
    found = compiled(source, figures=SMALL)
    assert [group.family for group in found.plan.groups] == ["conv"] and "multiply_window" in found.text
    found.text = as_cpp(found.text)
    found.check()


@pytest.mark.slow
def test_every_number(compiled, task):
    """Uses more threads per block, and the same unrolling as for convolutions with many channels."""
    found = compiled(task("return self.conv(x)", "torch.randn(1, 8, 10, 18)", "self.conv = nn.Conv2d(8, 16, 3)"), figures=SMALL)
    known = {number.name.rpartition(".")[2]: number for number in numbers(found.plan, found.source, Options())}
    assert set(known) == {"windowed", "direct", "window-threads"}
    for name, value in (("window-threads", 512), ("direct", 0)):
        found.text = print_program(found.plan, found.source, Options().with_knob(name, value, found.plan.own[0].id))
        assert ("multiply_window" in found.text) is (name != "direct")
        found.text = as_cpp(found.text)
        found.check()


def test_many_channels_are_unfolded(compiled, task):
    found = compiled(task("return self.conv(x)", "torch.randn(1, 64, 10, 18)", "self.conv = nn.Conv2d(64, 16, 3)"), figures=SMALL)
    assert "multiply_window" not in found.text
