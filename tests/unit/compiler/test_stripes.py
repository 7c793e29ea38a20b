"""Reductions over the lines of planes using bulk copies, run by the emulator: unaligned lines, several plane axes, NaN, positions, tails."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.kernel import stripes
from tests.emulator import as_cpp

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})  # chosen so that two planes fill the device

KERNELS = {
    "sum": "return x.sum(1, keepdim=True)",
    "mean-and-most": "return torch.sigmoid(x.mean(1)), x.amax(1) + 1",
    "place-of-the-least": "return torch.argmin(x.round(), 1)",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "sum" else pytest.mark.slow) for name in KERNELS])
def test_lines_of_planes(compiled, task, name):
    found = compiled(task(KERNELS[name], "torch.randn(2, 28, 1027)"), figures=SMALL)
    assert "bulk_wait(" in found.text and "float* const stage = memory" in found.text
    found.text = as_cpp(found.text)
    found.check()


@pytest.mark.slow
def test_several_axes_of_planes_and_nan(compiled, task):
    source = task("x = torch.where(x > 3, x * float('nan'), x)\nreturn x[:, 1].amax(1)", "torch.randn(2, 3, 64, 1100)")
    found = compiled(source, figures=SMALL)
    group = found.plan.own[0].id
    for options in (Options(), Options().with_knob("block", 512, group)):
        text = print_program(found.plan, source, options)
        assert "bulk_wait(" in text
        found.text = as_cpp(text)
        found.check()


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("x.sum(1)", (2, 28, 1000)),  # fewer columns than threads
        ("x.sum(1)", (1, 28, 1027)),  # half of the device would get no plane
        ("x[:, :, 1:].sum(1)", (2, 28, 1028)),  # lines with gaps between them
        ("torch.softmax(x, 1)", (2, 28, 1027)),  # several passes
        ("x.sum(1)", (2, 29, 1027)),  # the stages do not divide the lines evenly
    ],
)
def test_what_is_left_to_other_kernels(compiled, task, call, shape):
    found = compiled(task(f"return {call}", f"torch.randn{shape}"), figures=SMALL)
    assert found.plan.own and "bulk_wait(" not in found.text


def test_stages_of_unaligned_lines_are_aligned(compiled, task):
    """Four is the smallest number of 4095-float lines whose total is a multiple of 16 bytes; a multiprocessor holds three such stages."""
    found = compiled(task("return x.sum(1)", "torch.empty(2, 64, 4095)"), figures=SMALL)
    assert "step * 16380, 65520" in found.text and 3 * 65520 <= 227 << 10
    assert SMALL.unit_cache_bytes >= stripes.STAGES * stripes.STAGE_BYTES


def test_a_second_load_that_moves_the_pointer(compiled, task):
    """The sum's columns begin at float 4 and those of the neighbouring line at float 1027: the pointer absorbs part of each offset, and the sum's
    lines stay aligned."""
    found = compiled(task("return x[:, 4:].sum(1) + x[:, 1]", "torch.randn(2, 32, 1027)"), figures=SMALL)
    found.text = as_cpp(found.text)
    found.check()


def test_a_parameter_with_a_name_that_the_kernel_has_for_itself(compiled, task):
    found = compiled(
        task("return x.sum(1) + self.memory", "torch.randn(2, 28, 1027)", init="self.memory = nn.Parameter(torch.randn(1027))"), figures=SMALL
    )
    assert "float memory[]" in found.text and "__restrict__ memory_" in found.text
    found.text = as_cpp(found.text)
    found.check()
