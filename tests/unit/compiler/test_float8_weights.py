"""Kernels read float8 elements directly from memory and compute in float32. PyTorch creates the float8 numbers."""

import pytest
import torch

from compiler import DeviceFigures
from tests.emulator import as_cpp
from tests.unit.compiler.loading import load

TYPES = ["float8_e4m3fn", "float8_e5m2"]
CODES = "self.register_buffer('w', torch.arange(256, dtype=torch.uint8).view(torch.{}).reshape(4, 64))"
SCALED = "return torch.nn.functional.linear(x, self.w.to(x.dtype) * self.s) + 1"
WEIGHT = "self.register_buffer('w', torch.randn(96, 64).to(torch.{}))\nself.register_buffer('s', torch.rand(96, 1) + 0.1)"


def figures(target: str) -> DeviceFigures:
    return DeviceFigures.cpu(2) if target == "cpp" else DeviceFigures.h200()


@pytest.mark.parametrize("target", ["cpp", "cuda"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_code_is_read_as_pytorch_reads_it(compiled, task, dtype, target):
    made = compiled(
        task("return self.w.float() + 0 * x, self.w.to(torch.bfloat16) * 2", "torch.randn(4, 64)", CODES.format(dtype)), figures=figures(target)
    )
    assert made.own and "float8" not in " ".join(group.title for group in made.plan.own)
    text = made.text if target == "cpp" else as_cpp(made.text)
    program = made.make(load(text, "program")["ModelNew"])
    program.load_state_dict(made.model.state_dict())
    with torch.no_grad():
        for got, expected in zip(program(*made.inputs), made.model(*made.inputs), strict=True):
            assert torch.equal(got.isnan(), expected.isnan()) and torch.equal(got.nan_to_num(1.5), expected.nan_to_num(1.5))


@pytest.mark.parametrize("precision", ["fp32-strict", "bf16"])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_scaled_weight_is_unpacked_in_one_pass(compiled, task, dtype, precision):
    made = compiled(task(SCALED, "torch.randn(8, 64)", WEIGHT.format(dtype)), precision=precision)
    assert "_to_copy" not in made.text and ".to(torch.float32)" not in made.text
    made.check()


@pytest.mark.parametrize("dtype", TYPES)
def test_what_makes_float8_numbers_is_left_to_pytorch(compiled, task, dtype):
    made = compiled(task(f"return torch.softmax(x * 2, -1).to(torch.{dtype}).float() + 1", "torch.randn(8, 64)"))
    assert made.own
    made.check()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_table_of_float8_rows_is_gathered(compiled, task, dtype):
    made = compiled(task("return self.w[x].float() * 2 + 1", "torch.randint(0, 96, (32,))", WEIGHT.format(dtype)))
    made.check()
