"""Kernels under the policies bf16 and fp16: 16 bits in memory, fp32 in registers, and one rounding per stored value. The C++ versions and the CUDA
kernels (run on the CPU by tests/emulator) are compared with PyTorch in the same type and with fp64."""

import pytest
import torch

from compiler import DeviceFigures
from compiler.kernel.rounding import rounded
from tests.emulator import as_cpp

BODIES = {
    "pointwise": ("return F.gelu(x) * w + x.clamp(-1, 2) ** 2, x > 0.5", "torch.randn(24, 64), torch.randn(64)"),
    "softmax": ("return F.softmax(x, -1) * w", "torch.randn(40, 256), torch.randn(256)"),
    "long rows": ("return F.log_softmax(x, -1), x.mean(-1)", "torch.randn(3, 40000), torch.randn(1)"),
    "layer norm": ("return F.layer_norm(x, (96,), w, w) + x", "torch.randn(24, 96), torch.randn(96)"),
    "group norm": ("return F.silu(F.group_norm(x, 4, w, w)), x * w[:, None, None]", "torch.randn(2, 8, 6, 10), torch.randn(8)"),
    "columns": ("return x.sum(1), x.amax(1), (x * x).mean(1)", "torch.randn(4, 70, 40), torch.randn(1)"),
    "loss": ("return F.cross_entropy(x, (w * 9).long())", "torch.randn(64, 10), torch.rand(64)"),
    "odd sizes": ("return torch.tanh(x) + w", "torch.randn(7, 13), torch.randn(13)"),
    "fours": ("return torch.sigmoid(x) * w, x.std(-1)", "torch.randn(9, 12), torch.randn(12)"),
    "mixed types": ("y = x.float() * 0.37 + w\nreturn y, y.to(x.dtype) * 3, y.sum(-1, dtype=torch.float32)", "torch.randn(16, 80), torch.randn(80)"),
    "integers": ("return x * (w * 100).int() + torch.full_like(x, 0.1), (x > w).sum()", "torch.randn(16, 64), torch.rand(64)"),
    "scan": ("return torch.cumsum(x, -1)", "torch.randn(6, 300), torch.randn(1)"),
    "pool": ("return F.relu(F.max_pool2d(x * 2, 3, 2, 1)), F.avg_pool2d(x, 2)", "torch.randn(2, 3, 18, 20), torch.randn(1)"),
}


QUICK = {("pointwise", "cuda", "bf16"), ("softmax", "cuda", "bf16"), ("mixed types", "cpp", "bf16"), ("integers", "cpp", "fp16")}
EVERY = [(name, device, precision) for name in BODIES for device in ("cpp", "cuda") for precision in ("bf16", "fp16")]


@pytest.mark.parametrize("name, device, precision", [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in EVERY])
def test_against_pytorch(compiled, task, name, device, precision):
    body, inputs = BODIES[name]
    found = compiled(task(body, inputs, arguments="x, w"), figures=DeviceFigures.h200() if device == "cuda" else None, precision=precision)
    assert found.own
    if device == "cuda":
        found.text = as_cpp(found.text)
    found.check()


TRAINED = "self.a = nn.Conv2d(3, 8, 3, bias=False)\nself.bn = nn.BatchNorm2d(8)\nself.d = nn.Conv2d(8, 8, 3, padding=1, groups=8)"


@pytest.mark.parametrize("device", [pytest.param("cpp", marks=pytest.mark.slow), "cuda"])
def test_batch_norm_and_depthwise_convolution(compiled, task, device):
    source = task("return F.relu6(self.d(F.relu(self.bn(self.a(x)))))", "torch.randn(4, 3, 18, 18)", TRAINED)
    found = compiled(source, figures=DeviceFigures.h200() if device == "cuda" else None, precision="bf16")
    if device == "cuda":
        assert "depthwise" in [group.family for group in found.plan.groups]
        found.text = as_cpp(found.text)
    found.check()


def test_vectors_of_eight(compiled, task):
    found = compiled(task("return torch.relu(x) + 1", "torch.randn(64, 64)"), figures=DeviceFigures.h200(), precision="bf16")
    assert "*(int4*)x_i_eight = *(const int4*)(x + start)" in found.text and "#include <cuda_bf16.h>" in found.text
    assert found.text.count("bf16 out_to[8]") == 1


def test_explicit_casts_round(compiled, task):
    source = task("return (x * 1.001).to(torch.bfloat16).float() - x", "torch.rand(64, 64)")
    for figures in (None, DeviceFigures.h200()):
        found = compiled(source, figures=figures)
        assert "(float)(bf16)" in found.text
        found.text = as_cpp(found.text) if figures else found.text
        found.check()


def test_products_under_tf32_stay_with_the_library(compiled, task):
    source = task("return F.relu(self.a(x))", "torch.randn(512, 512)", "self.a = nn.Linear(512, 512)")
    plan = compiled(source, figures=DeviceFigures.h200(), precision="tf32").plan
    assert [(group.space, bool(group.reason)) for group in plan.groups] == [("library", True), ("own kernel", True)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_constants_are_rounded_as_pytorch_rounds_them(dtype):
    values = [0.1, -3.14159, 1e-8, 65519.9, 65520.0, 3.4e38, 1e39, float("inf"), 1.00390625]
    expected = torch.tensor(values).to(getattr(torch, dtype)).tolist()
    assert [rounded(value, dtype) for value in values] == expected
    assert rounded(float("nan"), dtype) != rounded(float("nan"), dtype)
