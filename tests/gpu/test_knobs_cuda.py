"""Tunable parameters of printed CUDA kernels on a real GPU: the first, the last and random values of each one give correct results. Takes about two
minutes."""

import os
import random

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.planning.knobs import numbers, with_numbers
from tests.unit.compiler.conftest import PREFIX, Compiled, distance
from tests.unit.compiler.loading import load
from verifier.devices import cuda_driver

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
]
STYLES = {
    "elements": ("torch.tanh(x) * 0.5 + x", "torch.randn(300, 1000)"),
    "rows": ("torch.softmax(x * 0.5, dim=-1)", "torch.randn(300, 1300)"),
    "long rows": ("torch.softmax(x * 0.5, dim=-1)", "torch.randn(600, 70000)"),
    "lanes": ("x.amax(1) + x.sum(1)", "torch.randn(64, 12, 700)"),
    "split": ("torch.softmax(x, -1)", "torch.randn(3, 40000)"),
    "scan": ("torch.cumsum(x, -1) * 2", "torch.randn(64, 5000)"),
}


@pytest.fixture(scope="module", autouse=True)
def build_folder(tmp_path_factory):
    before = os.environ.get("STITCH_BUILD_DIR")
    os.environ["STITCH_BUILD_DIR"] = str(tmp_path_factory.mktemp("stitch-build"))
    yield
    if before is None:
        del os.environ["STITCH_BUILD_DIR"]
    else:
        os.environ["STITCH_BUILD_DIR"] = before


@pytest.mark.parametrize("style", STYLES)
def test_values_are_right(style):
    body, inputs = STYLES[style]
    source = (
        f"{PREFIX}class Model(nn.Module):\n    def forward(self, x):\n        return {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    found = Compiled(source, figures=DeviceFigures.h200())
    options = Options().with_strategy("parallel-split") if style == "split" else Options()
    known, draw = numbers(found.plan, source, options), random.Random(style)
    choices = [
        {},
        {n.name: n.values[0] for n in known},
        {n.name: n.values[-1] for n in known},
        *({n.name: draw.choice(n.values) for n in known} for _ in range(3)),
    ]
    (x,) = found.inputs
    exact, eager = found.model.double()(x.double()), found.model.float().cuda()(x.cuda()).cpu()
    for values in choices:
        program = load(print_program(found.plan, source, with_numbers(options, known, values)), "program")["ModelNew"]().cuda()
        for _ in range(2):
            got = program(x.cuda()).cpu()
            assert got.shape == eager.shape
            assert distance(got, exact) <= max(6 * distance(eager, exact), 32 * 2**-23), (style, values)
