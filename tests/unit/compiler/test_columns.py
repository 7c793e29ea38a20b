"""Reductions over long, adjacent rows that several blocks share: batch norm of features, and statistics over the first axis."""

import re

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.targets.cuda.columns import MOST_JOINED
from tests.emulator import as_cpp

H200 = DeviceFigures.h200()
NORM = "self.n = nn.BatchNorm1d(WIDTH)\nself.n.weight = nn.Parameter(torch.rand(WIDTH))\nself.n.bias = nn.Parameter(torch.rand(WIDTH))"
BODIES = {
    "batch norm": ("return torch.relu(self.n(x))", NORM),
    "moments": ("return x.mean(0), x.var(0), x.amax(0)", "pass"),
    "softmax of columns": ("return F.softmax(x, 0)", "pass"),
    "norm of columns": ("return x / x.norm(dim=0, keepdim=True).clamp(min=1e-12)", "pass"),
}


def made(compiled, task, name: str, shape: tuple[int, int], parts: int = 0):
    body, init = BODIES[name]
    found = compiled(task(body, f"torch.randn{shape} * 3 + 1", init.replace("WIDTH", str(shape[1]))), figures=H200)
    if parts:
        options = Options()
        for group in found.plan.own:
            options = options.with_knob("row-blocks", parts, group.id)
        found.text = print_program(found.plan, found.source, options)
    return found


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("parts", [3, MOST_JOINED + 6])
def test_columns_in_few_and_in_many_parts(compiled, task, name, parts):
    found = made(compiled, task, name, (1100, 40), parts)
    assert f"32 rows side by side shared by {parts} blocks" in found.text
    found.text = as_cpp(found.text)
    found.check()


def test_many_parts_are_joined_once_by_a_kernel_between(compiled, task):
    few, many = (made(compiled, task, "batch norm", (1100, 40), parts).text for parts in (MOST_JOINED, MOST_JOINED + 1))
    assert few.count("__global__") == 2 and many.count("__global__") == 3
    assert "_pass2<<<2, 512, 0" in many, "a block for each 32 rows"


def test_features_of_a_batch_are_columns_where_rows_would_not_fill_the_device(compiled, task):
    assert "rows side by side shared by" in made(compiled, task, "batch norm", (20_000, 48)).text
    assert "rows side by side shared by" not in made(compiled, task, "batch norm", (1100, 4096)).text, "there are rows enough"
    assert "rows side by side shared by" not in made(compiled, task, "batch norm", (500, 48)).text, "they are short"
    places = compiled(task("return x.argmax(0)", "torch.randn(3000, 48)"), figures=H200)
    for options in (Options(), Options().with_strategy("channels-last")):
        text = print_program(places.plan, places.source, options)
        assert "argmax" in text and "rows side by side shared by" not in text, "a double holds no place"


@pytest.mark.parametrize("precision", ["fp32-strict", "bf16"])
def test_rows_that_are_overwritten_are_read_several_elements_ahead(compiled, task, precision):
    """In-place group norm over lines of odd length, so without vectors, after a product computed by the compiler's own kernel."""
    init = "self.w = nn.Parameter(torch.randn(67, 40))\nself.n = nn.GroupNorm(2, 8)"
    found = compiled(task("return F.hardswish(self.n(F.linear(x, self.w)))", "torch.randn(3, 8, 40)", init), figures=H200, precision=precision)
    norm = next(group.id for group in found.plan.own if "norm" in group.title)
    for ahead in (4, 2):
        options = Options().with_strategy("parallel-split", norm).with_knob("row-blocks", 3, norm)
        options = options.with_knob("unroll", ahead, norm) if ahead != 4 else options
        found.text = print_program(found.plan, found.source, options)
        assert re.search(rf"_ahead\[{ahead}\];", found.text) and "shared by 3 blocks" in found.text
        found.text = as_cpp(found.text)
        found.check()
