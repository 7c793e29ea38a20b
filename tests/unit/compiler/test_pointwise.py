"""Pointwise operators in one kernel: type promotion, broadcasts, views, integers, booleans, NaN."""

import pytest
import torch

from compiler import DeviceFigures
from compiler.kernel.functions import OF_ONE
from tests.emulator import as_cpp
from tests.unit.compiler.loading import load

BYTE = "torch.randint(0, 256, (1500,), dtype=torch.uint8)"
CASES = {
    "arithmetic": ("return (x + 2) * y - x / (y + 1.5) - 3 * x", "torch.rand(6, 40), torch.rand(6, 40) ", "x, y"),
    "alpha": ("return torch.add(x, y, alpha=0.3) - torch.sub(x, y, alpha=2)", "torch.rand(2048), torch.rand(2048)", "x, y"),
    "broadcast rows and columns": ("return x * y + z", "torch.rand(33, 65), torch.rand(65), torch.rand(33, 1)", "x, y, z"),
    "broadcast the middle": ("return x * y - z", "torch.rand(4, 5, 60), torch.rand(5, 1), torch.rand(4, 1, 60)", "x, y, z"),
    "outer": ("return x[:, None] * y[None, :] + x[:, None]", "torch.rand(70), torch.rand(50)", "x, y"),
    "transposed": ("return x.t() * 2 + y", "torch.rand(50, 70), torch.rand(70, 50)", "x, y"),
    "permuted": ("return x.permute(2, 0, 1).exp() + 1", "torch.rand(20, 30, 8)", "x"),
    "slices": ("a, b = x.chunk(2, dim=1)\nreturn torch.sigmoid(a) * b + x[:, 3:43]", "torch.rand(64, 80)", "x"),
    "select": ("return x[:, 1] * x[:, 0] + x.select(2, 4).sum()", "torch.rand(32, 3, 40)", "x"),
    "integers": ("return (x * 3 - y) & 7, x // 1 + y, x + 0.5", "torch.randint(-50, 50, (1500,)), torch.randint(0, 9, (1500,))", "x, y"),
    "bytes that overflow": (
        "return (x + x).to(torch.int16) * 3, -x + 0.5, (x * y).float(), ~x < 9, (z * 3).int(), (z - w).abs().float(), (f * 400).to(torch.uint8)",
        f"{BYTE}, {BYTE}, {BYTE}.view(torch.int8), {BYTE}.view(torch.int8), torch.randn(1500)",
        "x, y, z, w, f",
    ),
    "whole numbers divided": (
        'return x // 7 + torch.div(x, 4, rounding_mode="trunc"), x % 5 - torch.fmod(x, 3), (x.int() // 3) % 9',
        "torch.randint(-50, 50, (1500,))",
        "x",
    ),
    "mixed types": ("return x * y + z.float(), (y > 2) & z", "torch.rand(1500), torch.randint(0, 5, (1500,)), torch.rand(1500) > 0.5", "x, y, z"),
    "comparisons": ("return torch.where((x > y) | (x == 0), x, -y) + (x <= y)", "torch.rand(40, 40), torch.rand(40, 40)", "x, y"),
    "clamps": (
        "return x.clamp(-0.2, 0.3) + x.clamp_min(0.1) * torch.maximum(x, y) - torch.minimum(x, y)",
        "torch.randn(1500), torch.randn(1500)",
        "x, y",
    ),
    "powers": ("return x**2 + x**3 + x**0.5 + x**-1 + x**1.7 + torch.rsqrt(x)", "torch.rand(1500) + 0.1", "x"),
    "functions": ("return torch.tanh(x) + torch.erf(x) + torch.log1p(x.abs()) + torch.expm1(x) + x.sin() * x.cos()", "torch.randn(3000) * 3", "x"),
    "hyperbolic functions and their inverses": ("return torch.asinh(x) + torch.acosh(x * x + 1), x.sinh() + x.cosh()", "torch.randn(3000) * 3", "x"),
    "logs": ("return torch.log(x) + torch.exp(x) + torch.sqrt(x) + x.reciprocal()", "torch.rand(3000) * 8 + 0.01", "x"),
    "powers of integers and of numbers": (
        "return i**2 + i**3 - i**4, 2**x + torch.pow(0.3, x), 1.5**i",
        "torch.randint(-9, 9, (1500,)), torch.randn(1500)",
        "i, x",
    ),
    "decimals": ("return torch.round(x, decimals=2), torch.round(x * 900, decimals=-2) + x.round(decimals=0)", "torch.randn(3000) * 5", "x"),
    "rounding": ("return x.floor() + x.ceil() * 2 + x.round() * 3 + x.trunc() * 4 + x.sign()", "torch.randn(3000) * 5", "x"),
    "activations": (
        'return F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + F.softplus(x) + F.mish(x) + F.elu(x) + F.leaky_relu(x, 0.2)',
        "torch.randn(64, 100) * 4",
        "x",
    ),
    "hard activations": ("return F.hardswish(x) + F.hardsigmoid(x) + F.hardtanh(x) + F.relu6(x) + F.logsigmoid(x)", "torch.randn(64, 100) * 4", "x"),
    "filled tensors": ("return torch.where(x > 0.5, torch.zeros_like(x), torch.full_like(x, 2.5)) + torch.ones_like(x)", "torch.rand(60, 60)", "x"),
    "masked": ('return x.masked_fill(y, float("-inf")), x.masked_fill(~y, 0.0)', "torch.rand(60, 60), torch.rand(60, 60) > 0.3", "x, y"),
    "dict and nesting": ('z = x.exp()\nreturn {"a": z, "b": [z + 1, (x * 2,)]}', "torch.rand(2000)", "x"),
    "several readers": ("a = x * 2\nb = a.exp()\nreturn a, b, a + b, (a + b).sum()", "torch.rand(50, 50)", "x"),
    "a plain number": ("return x * scale + 1", "torch.rand(1500), 2.5", "x, scale"),
    "a view of an input": ("return x.view(50, 30), x.exp()", "torch.rand(1500)", "x"),
}


@pytest.mark.parametrize("name", CASES)
def test_pointwise(compiled, task, name):
    body, inputs, arguments = CASES[name]
    found = compiled(task(body, inputs, arguments=arguments))
    assert found.own
    found.check()


def test_nan_and_infinity(compiled, task):
    found = compiled(task("return F.relu(x) + x.clamp(-1, 1), torch.exp(x), torch.tanh(x), torch.erf(x), torch.sigmoid(x)", "torch.rand(2000)"))
    x = (torch.randn(2000) * 30).clamp(-80, 80)  # exp stays finite in single precision
    x[::7] = float("nan")
    x[::11] = float("inf")
    x[::13] = float("-inf")
    found.check([x])


SPECIAL = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.75, -1e-30, 2e-39, 90.0, -3e38])
OF_TWO = "torch.logaddexp(x, y), torch.copysign(x, y), torch.fmax(x, y), torch.fmin(x, y), torch.copysign(x, -0.0), torch.signbit(y), torch.pow(2, x)"


def same_as_eager(found, *inputs, signs=True):
    """Compares a program with eager. `signs`: whether to compare the signs of zeros too."""
    text = as_cpp(found.text) if "__global__" in found.text else found.text
    for at, (a, b) in enumerate(zip(load(text, "program")["ModelNew"]()(*inputs), found.model(*inputs), strict=True)):
        apart = ~torch.isclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) | (signs & (a.signbit() != b.signbit()) & ~a.isnan())
        assert not apart.any(), (at, [x[apart][:8] for x in inputs], a[apart][:8], b[apart][:8])


@pytest.mark.parametrize("figures", [None, DeviceFigures.h200()], ids=["cpp", "cuda"])
def test_every_function_at_special_values(compiled, task, figures):
    calls = [f"torch.{name}(x)" for name in (*OF_ONE, "rsqrt", "reciprocal", "atanh", "signbit", "isnan", "isinf")]
    found = compiled(task(f"return {', '.join(calls)}", "torch.randn(3000)"), figures=figures)
    assert len(found.plan.own) == len(found.plan.groups), [group.reason for group in found.plan.groups]
    same_as_eager(found, torch.cat([SPECIAL, torch.randn(3000 - len(SPECIAL))]), signs=False)


@pytest.mark.parametrize("figures", [None, DeviceFigures.h200()], ids=["cpp", "cuda"])
def test_every_pair_of_special_values(compiled, task, figures):
    found = compiled(task(f"return {OF_TWO}", "torch.randn(2000), torch.randn(2000)", arguments="x, y"), figures=figures)
    assert len(found.plan.own) == len(found.plan.groups), [group.reason for group in found.plan.groups]
    pairs = torch.cat([torch.cartesian_prod(SPECIAL, SPECIAL), torch.randn(2000 - len(SPECIAL) ** 2, 2)])
    same_as_eager(found, *pairs.t().contiguous())


def test_non_contiguous_input(compiled, task):
    found = compiled(task("return (x * 2 + 1).sigmoid()", "torch.rand(60, 50)"))
    found.check([torch.rand(50, 60).t()])


def test_wrong_shape_is_refused_in_words(compiled, task):
    found = compiled(task("return x.exp() * 2", "torch.rand(60, 50)"))
    program = load(found.text, "program")["ModelNew"]()
    with pytest.raises(ValueError, match=r"x: made for \(60, 50\)"):
        program(torch.rand(60, 51))


def test_double_precision_is_left_to_pytorch(compiled, task):
    found = compiled(task("return x.double().exp() * 2", "torch.rand(2000)"))
    assert not found.own
    assert "float64 is left to PyTorch" in " ".join(group.reason for group in found.plan.groups)
    found.check()


def test_other_shapes_of_the_task_run_eagerly(compiled, task):
    source = task("return x.exp() * 2 + 1", "torch.rand(60, 50)") + "\n\ndef get_input_variants():\n    return [[torch.rand(7, 50)]]\n"
    found = compiled(source)
    found.check()
    program = load(found.text, "program")["ModelNew"]()
    x = torch.rand(7, 50)
    assert torch.equal(program(x), x.exp() * 2 + 1)


def test_linear_tail_is_written_over_the_product(compiled, task):
    found = compiled(task("return F.relu(self.fc(x)) * 2 + 1", "torch.rand(64, 32)", init="self.fc = nn.Linear(32, 128)"))
    assert "torch.empty" not in found.text.partition("class ModelNew")[2]
    found.check()


def test_mutated_input(compiled, task):
    source = task("x.mul_(2)\nreturn x.exp() + 1", "torch.rand(40, 40)")
    found = compiled(source)
    x = torch.rand(40, 40)
    expected = x * 2
    got = load(found.text, "program")["ModelNew"]()(x)
    assert torch.equal(x, expected)
    assert torch.allclose(got, expected.exp() + 1)
