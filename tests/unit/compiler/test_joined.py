"""Concatenations along channels: convolutions write their parts to their final positions, and the rest is copied there."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.conv import conv, half_conv
from tests.emulator import as_cpp

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})  # chosen so that small products fill the device
INIT = """self.one = nn.Conv2d(24, 16, 1)
self.three = nn.Conv2d(24, 32, 3, padding=1)
self.deep = nn.Conv2d(24, 24, 3, padding=1, groups=24)"""
BRANCHES = "return torch.cat([torch.relu(self.one(x)), self.three(x), F.max_pool2d(x, 3, 1, 1), self.deep(x)], 1)"


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(conv, "LEAST_FLOPS", 1)
    monkeypatch.setattr(conv, "THIN_FLOPS", 1)
    monkeypatch.setattr(half_conv, "worthwhile", lambda *_: True)


@pytest.fixture
def emulated(compiled, task):
    def run(body: str, init: str = INIT, inputs: str = "torch.randn(2, 24, 12, 12)", precision: str = "fp32-strict"):
        source = task(body, inputs, init)
        found = compiled(source, figures=SMALL, precision=precision)
        found.emulate = lambda: setattr(found, "text", as_cpp(found.text)) or found.check()
        return found

    return run


def test_branches_are_computed_into_the_whole(emulated):
    found = emulated(BRANCHES)
    families = [group.family for group in found.plan.groups]
    assert families.count("conv") == 2 and "depthwise" in families, families
    forward = found.text.split("    def forward")[1]
    assert "cat = torch.empty((2, 96, 12, 12)" in forward and "torch.cat" not in forward
    assert forward.count(" = cat[:, ") == 3 and "cat[:, 48:72].copy_(" in forward, forward
    assert "its parts are computed where they belong, but for 1\n" in found.text
    found.emulate()


@pytest.mark.slow
def test_what_others_read_or_begins_amid_a_vector_is_copied(emulated):
    found = emulated("y = self.one(x)\nreturn torch.cat([y, self.three(x)], 1), y")
    assert found.text.count(" = cat[:, 16:48]") == 1 and "cat[:, 0:16].copy_(" in found.text
    found.emulate()
    odd = INIT.replace("24, 16, 1", "24, 15, 1")
    found = emulated("return torch.cat([self.three(x), self.one(x), self.deep(x)], 1)", odd, "torch.randn(2, 24, 7, 7)")
    assert found.text.count(" = cat[:, ") == 2 and "cat[:, 47:71].copy_(" in found.text  # 47 * 49 elements: not a multiple of four
    found.emulate()


@pytest.mark.parametrize(
    "body",
    [
        "return torch.cat([self.three(x), self.three(x)], 0)",
        "y = self.one(x)\nreturn torch.cat([y, y], 1)",
        "return torch.cat([self.one(x), x, x * 2], 1)",  # too much would have to be copied
    ],
)
def test_other_concatenations_stay(emulated, body):
    found = emulated(body)
    assert "torch.cat" in found.text and " = cat[:, " not in found.text
    found.emulate()


DENSE = """features = [x]
for layer in self.layers:
    x = {use}
    features.append(x)
    x = torch.cat(features, 1)
return {result}"""
LAYERS = (
    "self.layers = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(16 + 8 * n), nn.ReLU(), nn.Conv2d(16 + 8 * n, 8, 3, padding=1)) for n in range({}))"
)


@pytest.mark.slow
def test_a_dense_block_lies_in_the_memory_of_its_last_concatenation(emulated):
    layers = LAYERS.format(4).replace("16 + 8", "8 + 8").replace("8 * n, 8, 3", "8 * n, 8, 3")
    found = emulated(DENSE.format(use="layer(x)", result="x"), layers, "torch.randn(3, 8, 12, 12)")
    forward = found.text.split("    def forward")[1]
    assert "torch.cat" not in forward and forward.count(".copy_(") == 1, forward
    assert forward.count(" = cat_3[:, ") == 4 + 3  # the layers' results, and the inputs of the following layers
    norms = [name for name in found.text.split("__global__") if "batch_norm" in name[:200]]
    assert len(norms) == 2 and "j_0 * 5760" in norms[1] or "5760" in found.text  # the first reads x; the others read the whole tensor
    found.emulate()


def test_what_cannot_tell_images_apart_reads_a_copy(emulated):
    """A pointwise kernel traverses a whole tensor along one axis."""
    layers = "self.layers = nn.ModuleList(nn.Conv2d(8 + 8 * n, 8, 3, padding=1) for n in range(3))"
    found = emulated(DENSE.format(use="layer(torch.tanh(x) * 2)", result="x"), layers, "torch.randn(3, 8, 12, 12)")
    found.emulate()


def test_beginnings_that_a_family_reads_stay(emulated):
    layers = "self.layers = nn.ModuleList(nn.Conv2d(8 + 8 * n, 8, 3, padding=1) for n in range(3))"
    found = emulated(DENSE.format(use="layer(F.max_pool2d(x, 3, 1, 1))", result="x"), layers, "torch.randn(3, 8, 12, 12)")
    assert found.text.split("    def forward")[1].count("torch.cat(") >= 2
    found.emulate()


def test_16_bit_images_and_a_consumer(emulated):
    found = emulated("return torch.relu(torch.cat([self.one(x), self.three(x)], 1)) * 2", precision="bf16")
    assert [group.family for group in found.plan.groups[:2]] == ["half-pointwise", "half-conv"] and found.text.count(" = cat[:, ") == 2
    found.emulate()


def test_streams_and_channels_last_do_without(compiled, task):
    found = compiled(task(BRANCHES, "torch.randn(2, 24, 12, 12)", INIT), figures=SMALL)
    for strategy in ("overlap-streams", "channels-last"):
        assert "torch.cat" in print_program(found.plan, found.source, Options().with_strategy(strategy))


@pytest.mark.slow
def test_a_part_of_several_wholes_is_copied_into_each(emulated):
    body = """seen = torch.relu(x)
a = torch.cat([seen, torch.relu(self.one(x)), self.three(x)], 1)
return torch.cat([seen, self.back(a).relu(), self.wide(a)], 1) * 2"""
    init = INIT + "\nself.back, self.wide = nn.Conv2d(72, 16, 1), nn.Conv2d(72, 32, 3, padding=1)"
    found = emulated(body, init)
    forward = found.text.split("    def forward")[1]
    assert forward.count("[:, 0:24].copy_(") == 2, forward
    found.emulate()
