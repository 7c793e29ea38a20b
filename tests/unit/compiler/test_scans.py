"""Running sums, running products and products with vectors, as printed for the GPU and run by the emulator: every direction, axis and tunable
parameter."""

import pytest
import torch

from compiler import DeviceFigures, Options, print_program
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp
from tests.unit.compiler.loading import load

H200 = DeviceFigures.h200()
SMALL = H200.model_copy(update={"units": 1})
SCANS = {
    "sum": ("return torch.cumsum(x, 1)", (3, 1300)),
    "sum-odd": ("return torch.cumsum(x, -1)", (5, 1301)),
    "product": ("return torch.cumprod(x, 1)", (3, 1300)),
    "reverse": ("return torch.cumsum(x.flip(1), dim=1).flip(1)", (3, 1300)),
    "reverse-odd": ("return torch.cumprod(x.flip(1), dim=1).flip(1) + 1", (3, 517)),
    "exclusive": ("s = torch.cumsum(x.narrow(1, 0, x.size(1) - 1), dim=1)\nreturn torch.cat((torch.zeros_like(x[:, :1]), s), dim=1)", (3, 1300)),
    "masked": ("return torch.relu(torch.cumsum(x * (x > 0.2), dim=1) * 0.5) + x", (3, 700)),
    "first-axis": ("return torch.cumsum(x * 2, dim=0) + 1", (90, 65)),
    "middle": ("return torch.cumprod(x.flip(1), dim=1).flip(1)", (2, 40, 65)),
    "one-row": ("return torch.cumsum(x, 1) * 2", (1, 600)),
    "one-plane": ("return torch.cumsum(x, 1) + 1", (1, 9, 70)),
    "vector": ("return torch.cumsum(x, 0)", (2100,)),
}  # fmt: skip
QUICK = ("reverse", "masked", "exclusive", "one-row", "one-plane")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SCANS])
def test_scans(compiled, task, name):
    body, shape = SCANS[name]
    inputs = f"torch.rand{shape} + 0.5" if "cumprod" in body else f"torch.randn{shape}"
    found = compiled(task(body, inputs), figures=SMALL)
    assert [group.family for group in found.plan.groups] == ["scan"]
    assert found.text.count("__global__") == 1 and "torch.flip" not in found.text and "torch.cat" not in found.text
    known = numbers(found.plan, found.source, Options())
    for at in (0, 1) if shape[-1] > 100 else (0,):  # several tiles, and a single tile
        options = Options()
        for number in known:
            knob = number.name.rpartition(".")[2]
            options = options.with_knob(knob, {"block": (128, 256), "groups": (1, 2), "unroll": (4, 1)}[knob][at], found.plan.own[0].id)
        found.text = as_cpp(print_program(found.plan, found.source, options))
        found.check()


def test_flips_that_others_read_stay(compiled, task):
    found = compiled(task("y = x.flip(1)\nreturn torch.cumsum(y, dim=1).flip(1), y", "torch.randn(3, 640)"), figures=H200)
    assert [group.family for group in found.plan.groups if group.family] == ["scan"] and len(found.plan.groups) == 3


VECTORS = {
    "column": ("return torch.matmul(x, self.w)", (2003, 520), "torch.randn(520, 1)"),
    "linear": ("return torch.tanh(F.linear(x, self.w, self.b)) * 2", (3, 700, 400), "torch.randn(1, 400)"),
    "one-row": ("return F.relu(F.linear(x, self.w, self.c))", (1, 1001), "torch.randn(300, 1001)"),
}
QUICK = ("reverse", "masked", "exclusive", "one-row", "one-plane")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "linear" else pytest.mark.slow) for n in VECTORS])
def test_products_with_a_vector(compiled, task, name):
    body, shape, weight = VECTORS[name]
    init = f"self.w = nn.Parameter({weight})\nself.b = nn.Parameter(torch.randn(1))\nself.c = nn.Parameter(torch.randn(300))"
    found = compiled(task(body, f"torch.randn{shape}", init), figures=H200)
    assert [group.family for group in found.plan.groups] == ["matvec"], [group.reason for group in found.plan.groups]
    for rows, chunks in ((1, 1), (4, 8)):
        options = Options().with_knob("rows", rows, "g1").with_knob("row-blocks", chunks, "g1").with_knob("block", 128, "g1")
        found.text = as_cpp(print_program(found.plan, found.source, options))
        found.check()


def test_a_mask_may_come_as_numbers_of_the_inputs_type(compiled, task):
    found = compiled(task("return torch.cumsum(x * mask, dim=1)", "torch.randn(3, 70), torch.rand(3, 70) > 0.5", arguments="x, mask"))
    found.check()
    program, (x, mask) = load(found.text, "program")["ModelNew"](), found.inputs
    with torch.no_grad():
        assert torch.equal(program(x, mask.float()), program(x, mask)), "KernelBench hands over every input in one type"
        with pytest.raises(ValueError, match=r"mask: made for torch\.bool, got torch\.float32 with values that are none"):
            program(x, mask * 0.5)
    assert "def exact" not in compiled(task("return torch.cumsum(x, dim=1)", "torch.randn(3, 70)")).text
