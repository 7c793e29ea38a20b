"""Sums and maxima at computed positions are stored by the kernels that compute their terms, using atomics; on the CPU, this is tested through
tests/emulator."""

from __future__ import annotations

import pytest
import torch

from compiler import DeviceFigures, Options, print_program
from tests.emulator import as_cpp

ROWS, INDEX = "torch.randn(300, 32)", "torch.randint(0, 20, (300,))"
CASES = {
    "index_add": ("return torch.zeros_like(z).index_add(0, i, x * y)", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "onto a tensor": ("return z.index_add(0, i, x * y, alpha=-2) * 2", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "onto what is computed": ("return (z * 2).index_add(0, i, x * y)", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "along the last axis": ("return z.index_add(-1, i, x + y)", "torch.randn(40, 300), torch.randn(40, 300), torch.randn(40, 20), " + INDEX),
    "in the middle": ("return z.index_add(1, i, x.exp())", f"torch.randn(3, 300, 8), torch.randn(1), torch.randn(3, 20, 8), {INDEX}"),
    "scatter_add": (
        "return torch.zeros_like(z).scatter_add(1, i, x * y)",
        "*torch.randn(2, 60, 30), torch.randn(60, 8), torch.randint(0, 8, (60, 30))",
    ),
    "one index a row": ("return z.scatter_add(0, i[:, None].expand_as(x), x.sigmoid())", f"{ROWS}, torch.randn(1), torch.randn(20, 32), {INDEX}"),
    "the largest": ("return torch.full_like(z, -1.5).scatter_reduce(0, i[:, None].expand_as(x), x * y, 'amax')",
                    f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "the smallest": ("return torch.full_like(z, float('inf')).index_reduce(0, i, x * y, 'amin')", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "index_put": ("return z.index_put((i, i // 2), x[:, 0] * y[:, 0], accumulate=True)", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "from the end": ("return z.index_put((i - 20,), x * y, accumulate=True)", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "a sum for each row": ("return torch.zeros_like(z[:, 0]).index_add(0, i, (x * y).sum(-1))", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "whole numbers": ("return torch.zeros(20, dtype=torch.long, device=x.device).index_add(0, i, (x[:, 0] > y[:, 0]).long())",
                      "torch.randn(3000, 2), torch.randn(3000, 2), torch.randn(1), torch.randint(0, 20, (3000,))"),
    "a mean": ("return z.scatter_reduce(0, i[:, None].expand_as(x), x * y, 'mean')", f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}"),
    "a mean of the terms": ("return z.scatter_reduce(0, i[:, None].expand_as(x), x * y, 'mean', include_self=False)",
                            f"{ROWS}, {ROWS}, torch.randn(30, 32), {INDEX}"),
    "the largest of the terms": ("return z.index_reduce(0, i, x * y, 'amax', include_self=False)", f"{ROWS}, {ROWS}, torch.randn(30, 32), {INDEX}"),
    "a softmax over segments": (
        "s = (x * y).sum(-1)\ntop = torch.full((20,), float('-inf'), dtype=x.dtype, device=x.device)\n"
        "top = top.scatter_reduce(0, i, s, 'amax')\ne = (s - top[i]).exp()\n"
        "total = torch.zeros_like(top).index_add(0, i, e)\nw = e / total[i]\nreturn torch.zeros_like(z).index_add(0, i, x * w[:, None]).relu()",
        "torch.randn(1200, 32), torch.randn(1200, 32), torch.randn(20, 32), torch.randint(0, 20, (1200,))",
    ),
}  # fmt: skip


def in_cuda(compiled, task, name, precision="fp32-strict"):
    body, inputs = CASES[name]
    found = compiled(task(body, inputs, arguments="x, y, z, i"), figures=DeviceFigures.h200(), precision=precision)
    found.source_text = found.text
    found.text = as_cpp(found.text)
    return found


@pytest.mark.parametrize("name", CASES)
def test_terms_join_where_they_are_computed(compiled, task, name):
    found = in_cuda(compiled, task, name)
    assert "join_" in found.source_text
    assert any("atomic-sums" in group.strategies and len(group.kinds) > 1 for group in found.plan.groups)
    found.check()


@pytest.mark.parametrize("name", ["onto a tensor", "the largest", "a mean of the terms", "a softmax over segments"])
def test_16_bits_are_summed_in_fp32(compiled, task, name):
    found = in_cuda(compiled, task, name.replace("onto a tensor", "onto what is computed"), "bf16")
    assert "join_" in found.source_text and "join_sum(bf16" not in found.source_text
    found.check()


def test_as_many_kernels_as_a_softmax_over_segments_has_passes(compiled, task):
    groups = in_cuda(compiled, task, "a softmax over segments").plan.groups
    assert [group.space for group in groups] == ["own kernel"] * 3 + ["pytorch"]  # the last one has too few elements here


def test_terms_are_counted_once(compiled, task):
    lines = [f"z.scatter_reduce(0, i[:, None].expand_as(x), x, '{how}', include_self=False)" for how in ("mean", "amax", "amin")]
    found = compiled(
        task(f"return {', '.join(lines)}", "torch.randn(3000, 4), torch.randn(700, 4), torch.randint(0, 700, (3000,))", arguments="x, z, i")
    )
    kinds = [kind for group in found.plan.groups for kind in group.kinds]
    assert (kinds.count("scatter add"), kinds.count("scatter reduce")) == (2, 2) and "torch.full([700, 1], 0" in found.text
    found.check()


def test_extremes_of_numbers_that_order_otherwise(compiled, task):
    extremes = (("-float('inf')", "amax"), ("float('inf')", "amin"))
    lines = [f"torch.full((6,), {start}, device=x.device).scatter_reduce(0, i, x * y, '{how}')" for start, how in extremes]
    source = task(f"return {', '.join(lines)}", "torch.randn(2000), torch.randn(2000), torch.randint(0, 6, (2000,))", arguments="x, y, i")
    found = compiled(source, figures=DeviceFigures.h200())
    names: dict = {"__name__": "program"}
    exec(compile(as_cpp(found.text), "program.py", "exec"), names)
    x = torch.tensor([-0.0, -1.0, -2.0, 3.0, float("nan"), -float("nan"), 1.0, -3.0, float("inf"), -float("inf")] * 200)
    i = torch.tensor([0, 1, 1, 1, 2, 3, 2, 3, 4, 4] * 200)
    for a, b in zip(names["ModelNew"]()(x, torch.ones(2000), i), found.model(x, torch.ones(2000), i), strict=True):
        assert torch.equal(a.nan_to_num(7e30), b.nan_to_num(7e30)) and torch.equal(a.isnan(), b.isnan())


def test_a_place_outside_joins_nothing(compiled, task):
    found = in_cuda(compiled, task, "onto a tensor")
    names: dict = {"__name__": "program"}
    exec(compile(found.text, "program.py", "exec"), names)
    x, y, z, i = found.inputs
    outside = i.clone()
    outside[:3] = torch.tensor([20, -1, 10**12])
    assert torch.allclose(names["ModelNew"]()(x, y, z, outside), found.model(x[3:], y[3:], z, i[3:]), atol=1e-4)


LEFT = {
    "an order that counts": "return z.index_put((i,), x * y)",
    "onto what may be no number": "return z.scatter_reduce(0, i[:, None].expand_as(x), x * y, 'amax')",
    "products": "return z.scatter_reduce(0, i[:, None].expand_as(x), x * y, 'prod')",
    "the same in every run": "torch.use_deterministic_algorithms(True, warn_only=True)\nreturn z.index_add(0, i, x * y)",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_with_the_library(compiled, task, name):
    source = task(LEFT[name], f"{ROWS}, {ROWS}, torch.randn(20, 32), {INDEX}", arguments="x, y, z, i")
    if name == "the same in every run":
        source = source.replace("        torch.use_deterministic_algorithms(True, warn_only=True)\n", "")
        source = source.replace("class Model", "# torch.use_deterministic_algorithms(True)\nclass Model")
    found = compiled(source, figures=DeviceFigures.h200())
    assert "join_" not in found.text and "own kernel" in {group.space for group in found.plan.groups}
    found.text = as_cpp(found.text)
    found.check()


def test_a_value_that_nobody_else_reads_is_added_to_where_it_is(compiled, task):
    inputs = "torch.randn(300, 64), torch.randn(300, 64), torch.randn(20, 64), torch.randint(0, 20, (300,))"
    found = compiled(task("return (z * 2).index_add(0, i, x * y)", inputs, arguments="x, y, z, i"), figures=DeviceFigures.h200())
    assert len(found.plan.own) == 2 and "clone(memory_format" not in found.text
    found.text = as_cpp(found.text)
    found.check()


def test_given_back_alone(compiled, task):
    """The library does the addition, but a kernel still computes the terms."""
    found = in_cuda(compiled, task, "index_add")
    (group,) = found.plan.groups
    text = print_program(found.plan, found.source, Options().choose("atomic-sums", group.id, False))
    assert "join_" not in text and "index_add_(" in text and "kernels.mul_all(" in text
    found.text = as_cpp(text)
    found.check()


def test_on_the_cpu_the_library_adds_up(compiled, task):
    body, inputs = CASES["index_add"]
    found = compiled(task(body, inputs, arguments="x, y, z, i"))
    assert [group.space for group in found.plan.groups] == ["own kernel", "pytorch"]
    found.check()
