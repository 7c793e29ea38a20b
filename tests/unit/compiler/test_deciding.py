"""Values on which a decision depends are rounded as PyTorch rounds them: otherwise, a 16-bit kernel decides differently for elements near a
threshold."""

import pytest
import torch

from compiler import DeviceFigures, Options, make_plan, print_program
from tests.emulator import as_cpp
from tests.unit.compiler.conftest import flat
from tests.unit.compiler.loading import load

W = "torch.rand(64, 48) + 0.5"
CASES = {
    "thresholds": ("y = x * w + 0.3\nreturn y > 0.3, (y / 0.7) < -1.1", f"torch.randn(64, 48), {W}"),
    "whole numbers": (
        "s = x.abs().amax(-1, keepdim=True) / 127\nreturn torch.round(x / s).clamp(-128, 127).to(torch.int8)",
        f"torch.randn(64, 48), {W}",
    ),
    "cut off": ("return (x * w * 40).int(), torch.div(x * w, 0.1, rounding_mode='floor').long()", f"torch.randn(64, 48), {W}"),
    "the nearest": ("return ((x[:, None] - w[None]) ** 2).sum(-1).argmin(-1)", "torch.randn(512, 8), torch.rand(64, 8)"),
    "what is left": ("return torch.remainder(x, w - 1), torch.fmod(x * 9, 0.7), x % 0.1, (x * 9) // 0.3", f"torch.randn(64, 48), {W}"),
    "a share": ("c = F.softmax(x, -1).cumsum(-1)\nreturn c < 0.6, (c * w).argmax(-1)", f"torch.randn(64, 48), {W}"),
    "in a product's tail": ("y = F.linear(x, w) * 0.37\nreturn torch.round(y * 3 + 0.1).int()", f"torch.randn(64, 48), {W}"),
    "out of range": ("y = x * 40000\nreturn torch.isnan(y - y), torch.fmax(y - y, w)", f"torch.randn(64, 48), {W}"),
    "wound up": ("y = (x * 300).float() * 1.5\nreturn (y * 0.3).floor().int(), torch.cos(x * 300)", f"torch.randn(64, 48), {W}"),
}  # fmt: skip
EVERY = [(name, device, precision) for name in CASES for device in ("cpp", "cuda") for precision in ("bf16", "fp16")]
QUICK = {("thresholds", "cuda", "bf16"), ("in a product's tail", "cuda", "bf16"), ("whole numbers", "cpp", "fp16"), ("the nearest", "cpp", "bf16"),
         ("out of range", "cpp", "fp16")}  # fmt: skip


@pytest.mark.parametrize("name, device, precision", [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in EVERY])
def test_the_same_decisions_as_pytorch(compiled, task, name, device, precision):
    body, inputs = CASES[name]
    found = compiled(task(body, inputs, arguments="x, w"), figures=DeviceFigures.h200() if device == "cuda" else None, precision=precision)
    assert found.own
    text = as_cpp(found.text) if device == "cuda" else found.text
    with torch.no_grad():
        got, wanted = flat(load(text, "program")["ModelNew"]()(*found.inputs)), flat(found.model(*found.inputs))
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype and float(((a != b) & ~(a.isnan() & b.isnan())).float().mean()) <= 0.002, (a, b)


def test_nothing_else_is_rounded_on_the_way(compiled, task):
    found = compiled(
        task("y = x * 1.01 + w\nreturn F.silu(y) * 0.5 - y.mean(-1, keepdim=True)", f"torch.randn(64, 48), {W}", arguments="x, w"), precision="bf16"
    )
    assert "(float)(bf16)" not in found.text


@pytest.mark.parametrize("device", ["cpp", "cuda"])
def test_whole_quotients_are_exact(compiled, task, device):
    """1 / 0.1 is rounded up to 10, although 10 times 0.1 is more than 1."""
    body = "return torch.div(x, y, rounding_mode='floor'), torch.div(x, y, rounding_mode='trunc'), x % y, torch.fmod(x, y), x // -0.1"
    found = compiled(task(body, "torch.arange(-70, 70).mul(0.1).repeat(9, 1), torch.randn(9, 140).round(decimals=1)", arguments="x, y"))
    found.plan = make_plan(found.capture, found.source, DeviceFigures.h200() if device == "cuda" else DeviceFigures.cpu(2))
    assert {group.space for group in found.plan.groups} == {"own kernel"}
    text = print_program(found.plan, found.source, Options())
    got = load(as_cpp(text) if device == "cuda" else text, "program")["ModelNew"]()(*found.inputs)
    for a, b in zip(got, found.model(*found.inputs), strict=True):
        assert torch.equal(a.nan_to_num(), b.nan_to_num())
