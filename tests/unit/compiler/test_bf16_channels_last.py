"""Images with their channels innermost: which values get this layout, the programs compared with PyTorch, and channel statistics computed by many
blocks."""

import pytest

from compiler import DeviceFigures, Options, moves, print_program
from compiler.graph.network import Network
from tests.emulator import as_cpp
from tests.unit.compiler.test_moves import report

LAYERS = (
    "self.a, self.b = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.Conv2d(16, 16, 3, padding=1)\nself.bn = nn.BatchNorm2d(16)\n"
    "self.d = nn.Conv2d(16, 16, 3, padding=1, groups=16)\nself.g = nn.GroupNorm(4, 32)\nself.fc = nn.Linear(32, 5)"
)
BODY = (
    "y = F.relu(self.bn(self.a(x)))\nz = F.relu6(self.d(self.b(y))) + y\nz = torch.cat([z, F.max_pool2d(y, 3, 1, 1)], 1)\n"
    "z = F.silu(self.g(z)) * torch.sigmoid(z.mean((2, 3), keepdim=True))\nreturn self.fc(z.mean((2, 3))), F.avg_pool2d(z, 2)"
)
LAST = Options().with_strategy("channels-last")


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp32-strict", marks=pytest.mark.slow)])
@pytest.mark.parametrize("device", ["cuda", pytest.param("cpp", marks=pytest.mark.slow)])
def test_against_pytorch(compiled, task, device, precision):
    source = task(BODY, "torch.randn(4, 3, 34, 34)", LAYERS)
    found = compiled(source, figures=DeviceFigures.h200() if device == "cuda" else None, precision=precision, options=LAST)
    assert "memory_format=torch.channels_last" in found.text.split("def forward")[1]
    if device == "cuda":
        assert "over_groups<Sum, 16, 32>" in found.text and 'extern "C" int batch_norm' in found.text
        found.text = as_cpp(found.text)
    found.check()


def test_chosen_values(compiled, task):
    body = "y = self.a(x)\nz = F.relu(y)\nu = self.b(z).view(2, 16, 100)\nreturn u, z[:, 2:5], y.chunk(2, 1)"
    found = compiled(task(body, "torch.randn(2, 3, 10, 10)", LAYERS))
    network = Network(found.capture.graph, images_last=True)
    assert network.last == {"relu", "conv2d_1"}  # sliced images keep their layout
    assert network.layouts["relu"].strides == (1600, 1, 160, 16) and network.layouts["view"].strides == (1600, 1, 16)
    assert not Network(found.capture.graph).last


@pytest.mark.parametrize("precision", ["bf16", "fp32-strict"])
def test_offered_where_the_library_turns_images_around(compiled, task, precision):
    source = task("return F.relu(self.b(F.relu(self.bn(self.a(x)))))", "torch.randn(4, 3, 34, 34)", LAYERS)
    found = compiled(source, figures=DeviceFigures.h200(), precision=precision)
    offered = [move for move in moves(found.plan, Options(), report(1.0, 1.1), None) if move.strategy == "channels-last"]
    assert bool(offered) == (precision == "bf16")
    assert all("channels-last" in print_program(found.plan, source, move.options).split('"""')[1] for move in offered)


@pytest.mark.slow
def test_statistics_of_channels_in_uneven_parts(compiled, task):
    body = "return self.n(self.a(x))"
    found = compiled(
        task(body, "torch.randn(3, 3, 41, 43)", "self.a, self.n = nn.Conv2d(3, 37, 1), nn.BatchNorm2d(37)"), figures=DeviceFigures.h200(),
        precision="bf16", options=LAST,
    )  # fmt: skip
    assert "mine < 37" in found.text and "blocks of 512 threads" in found.text
    found.text = as_cpp(print_program(found.plan, found.source, LAST))
    found.check()
