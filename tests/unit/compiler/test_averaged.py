"""Averages of convolutions computed without the convolution: the results equal PyTorch's, and the plan and the program mention the rewrite."""

import pytest

from compiler import DeviceFigures
from compiler.families.conv import conv
from tests.emulator import as_cpp

MEANS = {
    "every position": ("nn.ConvTranspose2d(4, 6, 3)", "(self.conv(x) * 0.5).mean((2, 3), keepdim=True)", (2, 4, 9, 11)),
    "borders": ("nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)", "self.conv(x).mean((2, 3))", (2, 4, 16, 16)),
    "padded": ("nn.Conv2d(4, 6, 3, padding=1, bias=False)", "F.adaptive_avg_pool2d(-self.conv(x), 1)", (2, 4, 16, 24)),
    "depth": ("nn.ConvTranspose3d(3, 5, 3, padding=1)", "self.conv(x).mean(2, keepdim=True) * self.s", (2, 3, 8, 5, 6)),
    "rows": ("nn.Conv2d(3, 5, (3, 2), stride=(1, 2))", "self.conv(x).mean(2)", (2, 3, 20, 7)),
}
POOLS = {
    "by four": ("nn.Conv2d(3, 5, 3)", "F.avg_pool2d(self.conv(x), 4).softmax(1)", (2, 3, 19, 22)),
    "by steps": ("nn.Conv2d(3, 4, 3, stride=2, padding=1)", "F.avg_pool2d(self.conv(x), (2, 3), stride=(2, 2)).softmax(1)", (2, 3, 23, 25)),
    "transposed": ("nn.ConvTranspose3d(3, 4, 3, stride=2, padding=1)", "F.avg_pool3d(self.conv(x) * self.s, 2) + 1", (2, 3, 4, 5, 6)),
}
HALVES = {"half by halves": ("nn.Conv2d(8, 16, 1, bias=False)", "F.avg_pool2d(self.conv(torch.relu(x)), 2)", (2, 8, 12, 10))}
QUICK = ("borders", "transposed")
LEFT = {
    "groups": ("nn.Conv2d(4, 6, 3, groups=2)", "self.conv(x).mean((2, 3))"),
    "not linear": ("nn.Conv2d(4, 6, 3)", "torch.relu(self.conv(x)).mean((2, 3))"),
    "steps": ("nn.Conv2d(4, 6, 3, stride=2)", "self.conv(x).mean((2, 3))"),
    "channels": ("nn.Conv2d(4, 6, 3)", "self.conv(x).mean((1, 2))"),
    "padded pool": ("nn.Conv2d(4, 6, 3)", "F.avg_pool2d(self.conv(x), 3, padding=1)"),
    "mostly border": ("nn.Conv2d(4, 6, 7, padding=3)", "self.conv(x).mean((2, 3))"),
    "dearer": ("nn.Conv2d(4, 6, 1)", "F.avg_pool2d(self.conv(x), 3, stride=1)"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in (*MEANS, *POOLS)])
def test_averages_of_convolutions(compiled, task, name):
    module, call, shape = {**MEANS, **POOLS}[name]
    found = compiled(task(f"return {call}", f"torch.randn{shape}", f"self.conv = {module}\nself.s = nn.Parameter(torch.tensor(0.7))"))
    said = "an average pool of a convolution" if name in POOLS else "the mean of a convolution"
    assert any(said in note for note in found.plan.notes) and said in found.text, found.plan.notes
    found.check()


@pytest.mark.parametrize(("precision", "name"), [("bf16", "by four"), ("fp16", "by four"), ("bf16", "half by halves")])
def test_pools_of_convolutions_in_16_bits(compiled, task, precision, name):
    module, call, shape = (POOLS | HALVES)[name]
    source = task(f"return {call}", f"torch.randn{shape}", f"self.conv = {module}")
    found = compiled(source, figures=DeviceFigures.h200(), precision=precision)
    assert any("an average pool of a convolution" in note for note in found.plan.notes)
    found.text = as_cpp(found.text)
    found.check()


@pytest.mark.parametrize("call", ["self.conv(x).mean((2, 3))", "F.avg_pool2d(self.conv(x) * self.s, 2)"])
def test_what_stays_in_16_bits(compiled, task, call):
    source = task(f"return {call}", "torch.randn(2, 4, 16, 16)", "self.conv = nn.Conv2d(4, 6, 3)\nself.s = nn.Parameter(torch.tensor(0.7))")
    assert not compiled(source, figures=DeviceFigures.h200(), precision="bf16").plan.notes


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(compiled, task, name):
    module, call = LEFT[name]
    assert not compiled(task(f"return {call}", "torch.randn(2, 4, 16, 16)", f"self.conv = {module}")).plan.notes


def test_the_larger_windows_are_a_convolution_of_our_own(compiled, task, monkeypatch):
    monkeypatch.setattr(conv, "LEAST_FLOPS", 1)
    source = task("return torch.sigmoid(F.avg_pool2d(self.conv(x), 2))", "torch.randn(2, 4, 14, 13)", "self.conv = nn.Conv2d(4, 18, 3)")
    found = compiled(source, figures=DeviceFigures.h200())
    assert [group.family for group in found.plan.groups] == ["conv"]
    found.text = as_cpp(found.text)
    found.check()
