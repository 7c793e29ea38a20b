"""Convolutions whose windows are never unfolded, compared with PyTorch in fp64 and run by the emulator: all axes, ordinary and transposed, every
tile, and shapes that are not multiples of a tile."""

import pytest

from compiler import DeviceFigures, Options
from compiler.families.conv import conv, windowed
from tests.emulator import as_cpp

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})


@pytest.fixture(autouse=True)
def small_convolutions_too(monkeypatch):
    monkeypatch.setattr(conv, "LEAST_FLOPS", 1)
    monkeypatch.setattr(conv, "THIN_FLOPS", 1)


@pytest.fixture
def emulated(compiled):
    def run(source: str):
        found = compiled(source, figures=SMALL, options=Options(knobs={"windowed": 1}))
        assert "WindowTile<" in found.text
        found.text = as_cpp(found.text)
        return found

    return run


CONVS = {
    "one-tile": ("nn.Conv2d(8, 20, 3, padding=1)", (2, 8, 9, 7)),
    "several-tiles": ("nn.Conv2d(16, 70, 3)", (1, 16, 20, 19)),
    "several-channel-blocks": ("nn.Conv2d(24, 130, 3, padding=1)", (1, 24, 17, 7)),
    "taps-in-a-column": ("nn.Conv2d(32, 64, (3, 1), padding=(1, 0))", (1, 32, 30, 8)),
    "many-taps": ("nn.Conv2d(8, 64, 5, padding=2, bias=False)", (1, 8, 10, 12)),
    "dilated": ("nn.Conv2d(16, 48, 3, padding=(2, 3), dilation=(2, 3))", (1, 16, 11, 18)),
    "dilated-across-tiles": ("nn.Conv2d(16, 64, 3, padding=12, dilation=12, bias=False)", (1, 16, 33, 33)),
    "3d": ("nn.Conv3d(8, 40, 3, padding=1)", (2, 8, 3, 6, 9)),
    "3d-dilated": ("nn.Conv3d(16, 24, (2, 3, 1), dilation=(2, 1, 1), padding=(1, 0, 0))", (1, 16, 4, 6, 9)),
    "transposed": ("nn.ConvTranspose2d(16, 24, 3, padding=1)", (2, 16, 7, 6)),
    "transposed-dilated": ("nn.ConvTranspose2d(8, 16, (2, 3), dilation=2)", (1, 8, 7, 6)),
    "taps-in-parts": ("nn.Conv2d(16, 64, (5, 9), padding=(2, 4))", (1, 16, 12, 21)),
    "3d-taps-in-parts": ("nn.ConvTranspose3d(8, 16, (2, 5, 7), padding=(1, 2, 0), dilation=(1, 2, 1))", (1, 8, 4, 6, 9)),
    "transposed-3d": ("nn.ConvTranspose3d(8, 16, (3, 2, 3))", (1, 8, 3, 5, 6)),
}


@pytest.mark.parametrize("name", CONVS)
def test_convolutions(emulated, task, name):
    module, shape = CONVS[name]
    found = emulated(task("return self.conv(x)", f"torch.randn{shape}", f"self.conv = {module}"))
    assert [group.family for group in found.plan.groups] == ["conv"], [group.reason for group in found.plan.groups]
    found.check()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16, 3), (7, 1), (13, 3), (9, 1)])
def test_every_tile_with_several_blocks_and_a_tail(emulated, task, monkeypatch, shape):
    """Five stages or more, so that every slot for weights and patches is reused."""
    monkeypatch.setattr(windowed, "plan_of", lambda work, found: windowed.BlockTile(found, *shape))
    body = "y = self.conv(x)\nreturn torch.sigmoid(y * self.s[:, None, None]) + r"
    init = "self.conv = nn.Conv2d(40, 136, 3, padding=1)\nself.s = nn.Parameter(torch.randn(136))"
    found = emulated(task(body, "torch.randn(1, 40, 18, 17), torch.randn(1, 136, 18, 17)", init, "x, r"))
    assert [(group.family, len(group.operators) > 3) for group in found.plan.groups] == [("conv", True)]
    found.check()


FAULTS = {
    "a-patch-is-cut-where-one-is-multiplied": ("step % 2 * 2 * CUT", "0"),
    "weights-are-loaded-where-some-are-multiplied": ("memory + step % PLACES * WEIGHTS", "memory + step % 2 * WEIGHTS"),
    "weights-are-not-waited-for": ("copies_wait<1>();", ""),
    "the-tile-is-read-before-it-is-there": ("__syncthreads();", ""),
    "lines-follow-each-other-as-in-the-result": ("multiply_group<PATCH, LINE>", "multiply_group<PATCH, 8>"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_sees_what_the_barriers_are_for(compiled, task, fault):
    right, wrong = FAULTS[fault]
    source = task("return self.conv(x)", "torch.randn(1, 48, 18, 17)", "self.conv = nn.Conv2d(48, 64, 3, padding=1)")
    found = compiled(source, figures=SMALL, options=Options(knobs={"windowed": 1}))
    assert right in found.text
    found.text = as_cpp(found.text.replace(right, wrong))
    with pytest.raises(AssertionError):
        found.check()


@pytest.mark.parametrize(
    "module",
    [
        "nn.Conv2d(16, 64, 3, stride=2)", "nn.Conv2d(16, 64, 1)", "nn.Conv2d(12, 64, 3)", "nn.Conv2d(32, 64, 3, groups=2)",
        "nn.ConvTranspose2d(16, 64, 3, stride=2)", "nn.Conv2d(16, 64, (1, 40))",
    ],
)  # fmt: skip
def test_what_is_none_of_this_kind(compiled, task, module):
    channels = 12 if "(12," in module else 32 if "(32," in module else 16
    source = task("return self.conv(x)", f"torch.randn(1, {channels}, 18, 57)", f"self.conv = {module}")
    assert "WindowTile<" not in compiled(source, figures=SMALL, options=Options(knobs={"windowed": 1})).text


def test_which_convolutions_begin_with_it(compiled, task):
    """Convolutions with many positions of 64 channels begin with the windowed kernel; those with few positions are unfolded, and their depth is split
    to fill the device."""
    large = task("return self.conv(x)", "torch.randn(16, 64, 128, 128)", "self.conv = nn.Conv2d(64, 64, 3, padding=1)")
    small = task("return self.conv(x)", "torch.randn(1, 512, 7, 7)", "self.conv = nn.Conv2d(512, 512, 3, padding=1)")
    assert "WindowTile<" in compiled(large, figures=DeviceFigures.h200()).text
    assert "WindowTile<" not in compiled(small, figures=DeviceFigures.h200()).text
