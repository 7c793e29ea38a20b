"""Operators that move elements become loads from computed positions, within the kernels around them."""

from __future__ import annotations

import pytest
import torch

from compiler import DeviceFigures, Options, make_plan, print_program
from compiler.families.product import matmul
from tests.emulator import as_cpp

BIG = "torch.randn(6, 64, 32)"
CASES = {
    "index": ("return torch.relu(x[i]) * 2", f"{BIG}, torch.randint(-6, 6, (9,))", "x, i"),
    "index of the middle": ("return x[:, i] + 1", f"{BIG}, torch.randint(0, 64, (5, 7))", "x, i"),
    "two indices": ("return x[i, j].sigmoid()", f"{BIG}, torch.randint(0, 6, (70,)), torch.randint(-64, 64, (70,))", "x, i, j"),
    "two indices, broadcast": ("return x[i[:, None], j] * 3", f"{BIG}, torch.randint(0, 6, (4,)), torch.randint(0, 64, (70,))", "x, i, j"),
    "last of two": ("return x[..., i, j] + 1", f"{BIG}, torch.randint(0, 64, (70,)), torch.randint(0, 32, (70,))", "x, i, j"),
    "bags": ("return F.embedding_bag(i, x, mode='sum') * 2", "torch.randn(50, 32), torch.randint(0, 50, (70, 4))", "x, i"),
    "bags' means": ("return F.embedding_bag(i, x).relu()", "torch.randn(50, 32), torch.randint(0, 50, (70, 4))", "x, i"),
    "gather": ("return torch.gather(x, 1, i) * 2", f"{BIG}, torch.randint(0, 64, (5, 70, 32))", "x, i"),
    "gather of whole numbers": ("return torch.gather(x, 1, i) + 3", "torch.randint(0, 9, (64, 50)), torch.randint(0, 50, (64, 40))", "x, i"),
    "index_select": ("return torch.index_select(x, 2, i).exp()", f"{BIG}, torch.randint(0, 32, (8,))", "x, i"),
    "cat": ("return torch.cat((x, y, x), 1).relu()", f"{BIG}, torch.randn(6, 8, 32)", "x, y"),
    "stack": ("return torch.stack((x, y), -1) * 2", f"{BIG}, {BIG}", "x, y"),
    "rotary": ("a, b = x.chunk(2, -1)\nreturn x * y + torch.cat((-b, a), -1) * (1 - y)", f"{BIG}, torch.randn(64, 32)", "x, y"),
    "interleaved": ("return (torch.stack((x[..., ::2] * y, x[..., 1::2] - y), -1) + 1).flatten(-2)", f"{BIG}, torch.randn(64, 16)", "x, y"),
    "roll": ("return torch.roll(x, (-3, 70), (1, 2)) + x", BIG, "x"),
    "flip": ("return torch.flip(x, (0, 2)) * x", BIG, "x"),
    "slice_scatter": ("return torch.slice_scatter(x, y, 1, 8, 24) + 1", f"{BIG}, torch.randn(6, 16, 32)", "x, y"),
    "select_scatter": ("return torch.select_scatter(x, y, 1, -3) * 2", f"{BIG}, torch.randn(6, 32)", "x, y"),
    "a region": ("z = torch.zeros_like(x)\nz[1:3, :, 4:9] = y\nz[:2, -6:-2, :5] = y[:, :4]\nreturn z * 2", f"{BIG}, torch.randn(2, 64, 5)", "x, y"),
    "a region within regions": ("z = x.clone()\nz[1:4, 3:7, 30:] = y\nreturn z.relu()", f"{BIG}, torch.randn(3, 4, 2)", "x, y"),
    "a slice of a slice": ("z = x.clone()\nz[:, 10:30][:, 3:7] = y\nreturn z.relu()", f"{BIG}, torch.randn(4, 32)", "x, y"),
    "written": ("z = x.clone()\nz[:, 3:7] = y\nreturn z.relu()", f"{BIG}, torch.randn(4, 32)", "x, y"),
    "minus infinity": ("z = x.clone()\nz[z < 0] = -float('inf')\nreturn z.exp() * 2", BIG, "x"),
    "pad": ("return F.pad(x, (1, 2, 3, -4), value=2.5) * 2", BIG, "x"),
    "shifts": ("return ((x[:, None] >> y) & 15) * 0.5", "torch.randint(-2**31, 2**31 - 1, (4, 99)).int(), torch.arange(8)[:, None].int()", "x, y"),
    "a mean of the gathered": ("return x[i].mean(-1)", f"{BIG}, torch.randint(0, 6, (9,))", "x, i"),
    "edges": ("return F.leaky_relu(x[i] + y[j], 0.2).sum(-1)", "*torch.randn(2, 50, 32), *torch.randint(0, 50, (2, 300))", "x, y, i, j"),
    "booleans": ("return torch.where(x[i], y, -y)", "torch.rand(50, 32) > 0.5, torch.randn(70, 32), torch.randint(0, 50, (70,))", "x, y, i"),
}  # fmt: skip
AROUND = ("minus infinity",)  # the library moves the elements, with kernels around it


@pytest.mark.parametrize("name", CASES)
def test_moved_elements_are_loads_of_a_kernel(compiled, task, name):
    body, inputs, arguments = CASES[name]
    found = compiled(task(body, inputs, arguments=arguments))
    assert name in AROUND or {group.space for group in found.plan.groups} == {"own kernel"}, found.plan.groups
    found.check()


def test_an_index_outside_reads_nothing(compiled, task):
    found = compiled(task("return x[i] * 2", f"{BIG}, torch.randint(0, 6, (9,))", arguments="x, i"))
    names: dict = {"__name__": "program"}
    exec(compile(found.text, "program.py", "exec"), names)
    x, i = found.inputs[0], torch.tensor([0, 6, -7, 2, 3, 10**12, -1, 0, 5])
    got = names["ModelNew"]()(x, i)
    assert torch.equal(got[[0, 3, 4, 6, 7, 8]], 2 * x[[0, 2, 3, 5, 0, 5]]) and got[[1, 2, 5]].isnan().all()


@pytest.mark.parametrize("name", ["two indices, broadcast", "cat", "slice_scatter", "a region", "pad", "rotary"])
def test_the_same_in_cuda(compiled, task, name):
    body, inputs, arguments = CASES[name]
    found = compiled(task(body, inputs, arguments=arguments))
    plan = make_plan(found.capture, found.source, DeviceFigures.h200())
    found.text = as_cpp(print_program(plan, found.source, Options()))
    found.check()


def test_a_region_is_one_pass_over_the_whole(compiled, task):
    body, inputs, arguments = CASES["a region"]
    found = compiled(task(f"{body}, x.softmax(-1)", inputs, arguments=arguments))
    group = next(group for group in found.plan.groups if "set region" in group.kinds)
    assert len(found.plan.groups) == 2 and len(group.kinds) == 3 and "torch.full" not in found.text
    found.text = print_program(found.plan, found.source, Options().with_strategy("leave-to-library", group.id))
    assert "torch.slice_scatter(" in found.text
    found.check()


COMPUTED_AROUND = {
    "in a product's tail": (
        "return F.linear(x, y) * F.embedding(i, z)",
        "torch.randn(64, 96), torch.randn(48, 96), torch.randn(20, 48), torch.randint(0, 20, (64,))",
    ),
    "in a running sum's tail": (
        "return torch.cumsum(x, -1) + torch.gather(z, 1, i) * y",
        "torch.randn(9, 50), torch.randn(50), torch.randn(9, 200), torch.randint(0, 200, (9, 50))",
    ),
}


@pytest.mark.parametrize("name", COMPUTED_AROUND)
def test_a_place_that_has_no_name_is_computed_first(compiled, task, name, monkeypatch):
    """`inside ? i : 0` is an operand of the index arithmetic, even if a family's kernel prints it."""
    monkeypatch.setattr(matmul, "LEAST_FLOPS", 1)
    body, inputs = COMPUTED_AROUND[name]
    found = compiled(task(body, inputs, arguments="x, y, z, i"))
    found.plan = make_plan(found.capture, found.source, DeviceFigures.h200())
    assert len(found.plan.own) == 1, found.plan.groups
    found.text = as_cpp(print_program(found.plan, found.source, Options()))
    found.check()
