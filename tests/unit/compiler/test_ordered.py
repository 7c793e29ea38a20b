"""Sorted rows, their positions and their maxima, in C++ and as printed for the GPU and run by the emulator."""

import pytest
import torch

from compiler import DeviceFigures, Options, print_program
from tests.emulator import as_cpp

H200 = DeviceFigures.h200()
ORDERS = {
    "values": ("return torch.sort(x, dim=-1).values * 2", "torch.randn(7, 5, 70)"),
    "descending": ("return torch.sort(torch.relu(x) + 1, descending=True)[0]", "torch.randn(9, 300)"),
    "places": ("return torch.argsort(x, dim=1)", "torch.randn(50, 33)"),
    "largest": ("return torch.topk(x, 5).values.exp()", "torch.randn(40, 100)"),
    "where-the-largest": ("return torch.topk(x + 1, 3, dim=-1)[1]", "torch.randn(6, 1100)"),
    "smallest": ("return torch.topk(x, 4, largest=False).values", "torch.randn(33, 64)"),
    "stable": ("return torch.sort(x.round(), dim=-1, stable=True, descending=True).indices", "torch.randn(12, 90)"),
    "one-row": ("return torch.sort(x, 0).values", "torch.randn(2048)"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(compiled, task, name):
    source = task(*ORDERS[name])
    on_cpu = compiled(source)
    assert [group.family for group in on_cpu.plan.groups] == ["order"], [group.reason for group in on_cpu.plan.groups]
    on_cpu.check()
    found = compiled(source, figures=H200)
    assert [group.family for group in found.plan.groups] == ["order"] and found.text.count("__global__") == 1
    for block in (64, 256):
        found.text = as_cpp(print_program(found.plan, found.source, Options().with_knob("block", block, found.plan.own[0].id)))
        found.check()


@pytest.mark.parametrize("figures", [None, H200])
def test_equal_elements_zeros_infinities_and_nan(compiled, task, figures):
    inputs = "torch.tensor([0.0, -0.0, 1.0, float('nan'), float('inf'), -float('inf'), 1.0, -2.0]).repeat(3, 5)"
    for body in ("return torch.sort(x, dim=1, stable=True).indices", "return torch.sort(x, dim=1, stable=True, descending=True).indices"):
        found = compiled(task(body, inputs), figures=figures)
        found.text = as_cpp(found.text) if figures else found.text
        found.check()
    found = compiled(task("return 1 / torch.sort(x, dim=1, stable=True).values", inputs), figures=figures)  # the sign of a zero is visible
    found.text = as_cpp(found.text) if figures else found.text
    found.check()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("y = torch.sort(x)\nreturn y.values, y.indices", "both"),
        ("return torch.sort(x, dim=0).values", "side by side"),
        ("return torch.sort(x.bfloat16()).values", "float32"),
        ("return torch.topk(x, 2, sorted=False).values", "no order"),
        ("return torch.sort(x.repeat(1, 700)).values", "2048"),
    ],
)
def test_what_is_left_to_the_library_and_why(compiled, task, body, why):
    found = compiled(task(body, "torch.randn(8, 6)"), figures=H200)
    assert "order" not in [group.family for group in found.plan.groups]
    assert any(why in group.reason for group in found.plan.groups), [group.reason for group in found.plan.groups]
    assert torch.is_tensor(found.inputs[0])
