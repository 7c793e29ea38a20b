"""Convolutions in bf16 and fp16 compared with PyTorch, run by the emulator: in both layouts, by phases, in groups, with tails, with a split depth."""

from types import SimpleNamespace

import pytest

from compiler import DeviceFigures, Options
from compiler.families.conv import half_conv, half_pointwise
from compiler.graph.layout import Layout
from compiler.kernel.builder import Refused
from tests.emulator import as_cpp
from tests.unit.compiler.test_half_product import SMALL, tile_of
from tests.unit.compiler.test_tensor_cores import CONVS

LAST = Options().with_strategy("channels-last")
GAPS = "transposed-gaps"  # the library computes its empty phases


@pytest.fixture(autouse=True)
def whatever_the_library_does(monkeypatch):
    monkeypatch.setattr(half_conv, "worthwhile", lambda *_: True)
    monkeypatch.setattr(half_pointwise, "read_pointwise", lambda *_: None)  # including windows of one element


@pytest.fixture
def emulated(compiled):
    def run(source: str, options: Options | None = None, figures: DeviceFigures = SMALL, precision: str = "bf16"):
        found = compiled(source, figures=figures, options=options, precision=precision)
        assert "half-conv" in [group.family for group in found.plan.groups], [group.reason for group in found.plan.groups]
        assert "_window" in found.text
        found.text = as_cpp(found.text)
        return found

    return run


QUICK = {"2d-taps-outermost"}


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CONVS if name != GAPS])
def test_images_channel_by_channel(emulated, task, name):
    module, shape = CONVS[name]
    emulated(task("return self.conv(x)", f"torch.randn{shape}", f"self.conv = {module}")).check()


TWO = {
    "plain": "nn.Conv2d(16, 24, 3, padding=1)",
    "strided": "nn.Conv2d(16, 24, (3, 2), stride=(2, 1), dilation=(1, 2), padding=(0, 1))",
    "pointwise": "nn.Conv2d(16, 40, 1, bias=False)",
    "groups": "nn.Conv2d(16, 32, 3, groups=2)",
    "odd channels": "nn.Conv2d(16, 19, 3)",
    "transposed": "nn.ConvTranspose2d(16, 24, 2, stride=2)",
    "transposed in uneven phases": "nn.ConvTranspose2d(16, 24, 3, stride=2, padding=1)",
}


@pytest.mark.parametrize("name", [name if name == "groups" else pytest.param(name, marks=pytest.mark.slow) for name in TWO])
def test_images_with_channels_innermost(emulated, task, name):
    """The image for the second convolution already has its channels innermost."""
    init = f"self.a = nn.Conv2d(3, 16, 3, padding=1)\nself.b = {TWO[name]}"
    found = emulated(task("return torch.relu(self.b(torch.relu(self.a(x))))", "torch.randn(2, 3, 9, 10)", init), LAST)
    assert "memory_format=torch.channels_last" in found.text
    found.check()


@pytest.mark.slow
@pytest.mark.parametrize("tile", [(128, 256, True), (128, 64, True), (64, 128, True), (64, 64, False), (16, 64, False)])
@pytest.mark.parametrize("last", [False, True])
def test_tiles_tails_and_parts_of_the_depth(emulated, task, tile, last):
    body = "y = self.a(x)\nreturn F.silu(self.b(y) * self.s[:, None, None]) + y"
    init = "self.a, self.b = nn.Conv2d(8, 72, 1), nn.Conv2d(72, 72, 3, padding=1)\nself.s = nn.Parameter(torch.randn(72))"
    for split in (1, 3):
        options = Options(knobs={"tile": tile_of(*tile), "split": split})
        options = options.with_strategy("channels-last") if last else options
        emulated(task(body, "torch.randn(2, 8, 8, 12)", init), options, precision="fp16" if split > 1 else "bf16").check()


@pytest.mark.slow
def test_gaps_are_the_librarys(compiled, task):
    module, shape = CONVS[GAPS]
    found = compiled(task("return self.conv(x)", f"torch.randn{shape}", f"self.conv = {module}"), figures=SMALL, precision="bf16")
    assert found.plan.groups[0].family == "" and "gaps" in found.plan.groups[0].reason


@pytest.mark.parametrize("channels", [32, 3])
def test_an_image_beyond_32_bits_is_the_librarys(channels):
    """Innermost channels are read in place, and all others are transposed first; both use an int to count elements."""
    plane = 1 << 18
    for images, fits in ((200, True), (1 << 13, False)):
        own = SimpleNamespace(images=images, each=channels, plane=plane, groups=1)
        source = Layout("x", (images, channels, 512, 512), (plane * channels, 1, 512 * channels, channels))
        if fits:
            assert half_conv.image_of(own, source).turned is (channels == 3)
        else:
            with pytest.raises(Refused, match="more elements than an index counts"):
                half_conv.image_of(own, source)
