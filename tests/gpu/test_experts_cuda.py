"""Grouped products on a real GPU: they are correct for any routing, do not wait for the host, and can be recorded into a CUDA graph. Takes about a
minute."""

import pytest
import torch

from compiler import DeviceFigures
from tests.gpu.test_knobs_cuda import build_folder, pytestmark  # noqa: F401
from tests.unit.compiler.conftest import Compiled, distance
from tests.unit.compiler.loading import load
from tests.unit.compiler.test_experts import PICKED, source

SMALL, LARGE = "EXPERTS, CHOSEN, WIDTH, INNER = 4, 2, 16, 24", "EXPERTS, CHOSEN, WIDTH, INNER = 8, 2, 256, 392"
ROWS = {
    "random": lambda x: x,
    "all to the same experts": torch.zeros_like,
    "few": lambda x: torch.cat((x[:3], x[:1].expand(len(x) - 3, -1))),
}


@pytest.mark.parametrize("precision", ["fp32-strict", "bf16"])
@pytest.mark.parametrize("name", ["places of a mask", "experts that have rows", "one expert a row", "numbers that are no expert's"])
def test_any_routing(name, precision):
    text = source(PICKED[name], "700, 256").replace(SMALL, LARGE)
    assert LARGE in text
    found = Compiled(text, figures=DeviceFigures.h200(), precision=precision)
    assert "grouped-product" in [group.family for group in found.plan.groups]
    program = found.make(load(found.text, "program")["ModelNew"]).cuda()
    program.load_state_dict(found.model.state_dict())
    times, least = (6, 32 * 2**-23) if precision == "fp32-strict" else (2, torch.finfo(torch.bfloat16).eps)
    for changed in ROWS.values():
        x = changed(found.inputs[0])
        with torch.no_grad():
            eager, exact, given = found.twin().cuda()(x.cuda()), found.twin().double()(x.double()), x.cuda()
        program(given)  # builds the kernels and stacks the weights
        torch.cuda.set_sync_debug_mode("error")
        try:
            got = program(given)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for a, b, c in zip(*(one if isinstance(one, tuple) else (one,) for one in (got, eager, exact)), strict=True):
            assert not a.is_floating_point() or distance(a.cpu(), c) <= max(times * distance(b.cpu(), c), least)


def test_recorded():
    found = Compiled(source(PICKED["places of a mask"], "700, 16"), figures=DeviceFigures.h200())
    program, x = found.make(load(found.text, "program")["ModelNew"]).cuda(), found.inputs[0].cuda()
    expected = program(x)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        got = program(x)
    x.copy_(x.flip(0))  # a different routing
    graph.replay()
    assert torch.allclose(got, expected.flip(0), atol=1e-5)
