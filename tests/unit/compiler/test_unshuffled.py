"""Convolutions with few channels and long strides, rewritten to strides of one: the results equal PyTorch's, and the plan and the program mention the
rewrite."""

import pytest

from compiler import DeviceFigures
from compiler.families.conv import conv
from compiler.graph import unshuffled
from tests.emulator import as_cpp

TAKEN = {
    "padded": ("nn.Conv2d(3, 6, 11, stride=4, padding=2)", (2, 3, 31, 35)),
    "cut off": ("nn.Conv2d(3, 6, 5, stride=4, bias=False)", (2, 3, 24, 23)),
    "each axis its own": ("nn.Conv2d(2, 5, (3, 7), stride=(1, 3), padding=(1, 0))", (2, 2, 9, 22)),
    "1d": ("nn.Conv1d(1, 4, 10, stride=5, padding=3)", (3, 1, 57)),
    "3d": ("nn.Conv3d(3, 4, 4, stride=3, padding=1)", (1, 3, 8, 9, 7)),
}
LEFT = {
    "side by side already": ("nn.Conv2d(4, 6, 7, stride=4)", 4),
    "short steps": ("nn.Conv2d(3, 6, 7, stride=2)", 3),
    "no overlap": ("nn.Conv2d(3, 6, 4, stride=4)", 3),
    "dilated": ("nn.Conv2d(3, 6, 7, stride=4, dilation=2)", 3),
    "groups": ("nn.Conv2d(3, 6, 7, stride=4, groups=3)", 3),
    "transposed": ("nn.ConvTranspose2d(3, 6, 7, stride=4)", 3),
}


@pytest.fixture
def any_size(monkeypatch):
    monkeypatch.setattr(unshuffled, "LEAST_FLOPS", 1)


@pytest.mark.parametrize("name", TAKEN)
def test_remainders_become_channels(compiled, task, any_size, name):
    module, shape = TAKEN[name]
    found = compiled(task("return torch.relu(self.conv(x) * 2)", f"torch.randn{shape}", f"self.conv = {module}"))
    assert found.plan.notes == [unshuffled.NOTE] and unshuffled.NOTE in found.text
    found.check()


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(compiled, task, any_size, name):
    module, channels = LEFT[name]
    found = compiled(task("return torch.relu(self.conv(x))", f"torch.randn(2, {channels}, 33, 32)", f"self.conv = {module}"))
    assert unshuffled.NOTE not in found.plan.notes


def test_small_ones_stay(compiled, task):
    source = task("return self.conv(x)", "torch.randn(2, 3, 31, 35)", "self.conv = nn.Conv2d(3, 6, 11, stride=4)")
    assert unshuffled.NOTE not in compiled(source).plan.notes


def test_the_new_convolution_is_our_own(compiled, task, any_size, monkeypatch):
    monkeypatch.setattr(conv, "LEAST_FLOPS", 1)
    source = task("return torch.relu(self.conv(x))", "torch.randn(2, 3, 31, 35)", "self.conv = nn.Conv2d(3, 18, 11, stride=4, padding=2)")
    found = compiled(source, figures=DeviceFigures.h200())
    assert [group.family for group in found.plan.own if group.family] == ["conv"], [group.reason for group in found.plan.groups]
    found.text = as_cpp(found.text)
    found.check()
