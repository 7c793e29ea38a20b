"""Printed Triton programs compiled for sm_90 by Triton itself, which needs no GPU: no errors, no spills, tensor cores where intended."""

import sys

import pytest

from compiler import DeviceFigures, Options, make_plan, print_program
from compiler.planning.plan import CompilerPlan
from tests.unit.compiler.triton_on_cpu import available, imported

pytestmark = pytest.mark.skipif(not available(), reason="scripts/triton installs Triton for tests; `make test` calls it")
TASKS = {
    "long-softmax": ("return F.softmax(torch.tanh(x), 1)", "torch.randn(64, 100000)", "pass"),
    "product-with-a-tail": (
        "return F.gelu(F.linear(x, self.w, self.b))",
        "torch.randn(2048, 1024)",
        "self.w = nn.Parameter(torch.randn(2048, 1024))\nself.b = nn.Parameter(torch.randn(2048))",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_compiles_for_an_h200_without_spills(task, compiled, name, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    body, inputs, init = TASKS[name]
    source, plan = planned(compiled, task(body, inputs, init))
    said: list[str] = []
    with imported():
        from bench.triton_compile import check

        problems = check(source, print_program(plan, source, Options()), name, said.append)
        del sys.modules["bench.triton_compile"]
    assert problems == []
    assert ("wgmma" in " ".join(said)) is (name == "product-with-a-tail"), said


def planned(compiled, source: str) -> tuple[str, CompilerPlan]:
    found = compiled(source)
    return source, make_plan(found.capture, source, DeviceFigures.h200(), language="triton")
