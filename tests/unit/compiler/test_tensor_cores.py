"""Products on tensor cores compared with PyTorch in fp64, run by the emulator: shapes that are not multiples of a tile, layouts, batches, biases,
tails, every tunable parameter."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.conv import conv, direct_conv, windowed
from compiler.families.product import matmul, tensor_cores
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})  # chosen so that small products fill the device


@pytest.fixture(autouse=True)
def small_products_too(monkeypatch):
    monkeypatch.setattr(matmul, "LEAST_FLOPS", 1)
    monkeypatch.setattr(conv, "LEAST_FLOPS", 1)
    monkeypatch.setattr(conv, "THIN_FLOPS", 1)
    for other in (direct_conv, windowed):  # those have separate tests
        monkeypatch.setattr(other, "plan_of", lambda work, found: None)


@pytest.fixture
def emulated(compiled):
    def run(source: str, options: Options | None = None, figures: DeviceFigures = SMALL):
        found = compiled(source, figures=figures, options=options)
        found.text = as_cpp(found.text)
        return found

    return run


MATMULS = {
    "linear": (
        "F.linear(x, self.w, self.b)",
        "torch.randn(70, 52)",
        "self.w = nn.Parameter(torch.randn(90, 52))\nself.b = nn.Parameter(torch.randn(90))",
    ),
    "linear-of-three": ("F.linear(x, self.w)", "torch.randn(3, 30, 64)", "self.w = nn.Parameter(torch.randn(65, 64))"),
    "odd-depth": ("x @ self.w", "torch.randn(33, 45)", "self.w = nn.Parameter(torch.randn(45, 50))"),
    "left-turned": ("x.t() @ self.w", "torch.randn(36, 68)", "self.w = nn.Parameter(torch.randn(36, 64))"),
    "both-turned": ("x.t() @ self.w.t()", "torch.randn(40, 66)", "self.w = nn.Parameter(torch.randn(70, 40))"),
    "bmm": ("torch.bmm(x, x.transpose(1, 2) * 2)", "torch.randn(3, 40, 36)", "pass"),
    "batches-of-one-weight": ("torch.matmul(x.transpose(1, 2), self.w)", "torch.randn(2, 32, 40)", "self.w = nn.Parameter(torch.randn(32, 44))"),
    "heads": ("x.view(2, 20, 3, 24).transpose(1, 2) @ (x + 1).view(2, 20, 3, 24).permute(0, 2, 3, 1)", "torch.randn(2, 20, 72)", "pass"),
    "a-part": ("x[:, 4:40] @ self.w[1:37]", "torch.randn(64, 44)", "self.w = nn.Parameter(torch.randn(40, 64))"),
    "by-itself": ("x @ x.t()", "torch.randn(48, 33)", "pass"),
}


@pytest.mark.parametrize("name", MATMULS)
def test_products(emulated, task, name):
    call, inputs, init = MATMULS[name]
    found = emulated(task(f"return {call}", inputs, init))
    assert "matmul" in [group.family for group in found.plan.groups], [group.reason for group in found.plan.groups]
    found.check()


CONVS = {
    "2d": ("nn.Conv2d(5, 20, 3, padding=1)", (2, 5, 9, 11)),
    "2d-taps-outermost": ("nn.Conv2d(32, 24, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))", (2, 32, 9, 10)),
    "2d-units-of-sixteen": ("nn.Conv2d(48, 16, 3, padding=1)", (1, 48, 6, 7)),
    "2d-pointwise": ("nn.Conv2d(40, 16, 1)", (2, 40, 4, 6)),
    "2d-pointwise-by-two": ("nn.Conv2d(40, 16, 1, stride=2, bias=False)", (2, 40, 9, 9)),
    "2d-groups": ("nn.Conv2d(12, 34, 3, groups=2)", (2, 12, 8, 9)),
    "2d-some-taps-outside": ("nn.Conv2d(32, 24, 3, padding=24, dilation=24, bias=False)", (1, 32, 33, 33)),
    "2d-only-the-centre-tap-inside": ("nn.Conv2d(32, 24, 3, padding=36, dilation=36, bias=False)", (1, 32, 33, 33)),
    "1d": ("nn.Conv1d(8, 17, 5, stride=2, dilation=3, padding=4)", (3, 8, 50)),
    "3d": ("nn.Conv3d(3, 16, (3, 2, 3), padding=1)", (1, 3, 5, 6, 7)),
    "transposed-2d": ("nn.ConvTranspose2d(6, 18, 3, stride=2, padding=1, output_padding=1)", (2, 6, 5, 6)),
    "transposed-2d-taps-outermost": ("nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)", (1, 32, 6, 5)),
    "transposed-units-of-eight": ("nn.ConvTranspose2d(24, 16, 3, stride=2, padding=1)", (1, 24, 5, 6)),
    "transposed-several-tiles": ("nn.ConvTranspose2d(8, 72, 3, stride=2, padding=1)", (2, 8, 12, 14)),
    "transposed-by-one": ("nn.ConvTranspose2d(7, 16, 3)", (2, 7, 6, 6)),
    "transposed-dilated": ("nn.ConvTranspose2d(5, 16, 3, stride=3, dilation=2, padding=1)", (1, 5, 6, 7)),
    "transposed-gaps": ("nn.ConvTranspose1d(6, 16, 2, stride=3)", (2, 6, 20)),
    "transposed-3d-thin-groups": ("nn.ConvTranspose3d(6, 16, 3, stride=2, padding=1, groups=2)", (1, 6, 3, 4, 4)),
    "transposed-3d-groups": ("nn.ConvTranspose3d(6, 32, 3, stride=2, padding=1, groups=2)", (1, 6, 3, 4, 4)),
}


@pytest.mark.parametrize("name", CONVS)
def test_convolutions(emulated, task, name):
    module, shape = CONVS[name]
    found = emulated(task("return self.conv(x)", f"torch.randn{shape}", f"self.conv = {module}"))
    assert [group.family for group in found.plan.groups] == ["conv"], [group.reason for group in found.plan.groups]
    found.check()


def test_phases_whose_results_lie_side_by_side_follow_each_other(compiled, task):
    """Two phases' writes to the same sector then combine in the second-level cache; batches whose results are far apart run one after the other."""
    module, shape = CONVS["transposed-several-tiles"]
    text = compiled(task("return self.conv(x)", f"torch.randn{shape}", f"self.conv = {module}"), figures=SMALL).text
    assert "const int batch = blockIdx.x % 4;" in text and "const int column0 = blockIdx.x / 4" in text and "blockIdx.y" not in text
    text = compiled(task("return torch.bmm(x, x.transpose(1, 2) * 2)", "torch.randn(3, 40, 36)"), figures=SMALL).text
    assert "const int batch = blockIdx.y;" in text and "blockIdx.x %" not in text


def test_a_convolution_with_a_tail(emulated, task):
    body = "y = self.conv(x)\nreturn torch.sigmoid(y * self.s[:, None, None]) + r"
    found = emulated(
        task(
            body,
            "torch.randn(2, 4, 7, 8), torch.randn(2, 18, 7, 8)",
            "self.conv = nn.Conv2d(4, 18, 3, padding=1)\nself.s = nn.Parameter(torch.randn(18))",
            "x, r",
        )
    )
    assert [(group.family, len(group.operators) > 3) for group in found.plan.groups] == [("conv", True)]
    found.check()


def test_a_tail_reads_rows_columns_and_a_residual(emulated, task):
    body = "y = F.linear(x, self.w, self.b)\nreturn torch.relu(y * self.s + r) - self.c[:, None]"
    shapes = {"w": (66, 40), "b": (66,), "s": (66,), "c": (50,)}
    init = "\n".join(f"self.{name} = nn.Parameter(torch.randn{shape})" for name, shape in shapes.items())
    found = emulated(task(body, "torch.randn(50, 40), torch.randn(50, 66)", init, "x, r"))
    assert [(group.family, len(group.operators) > 3) for group in found.plan.groups] == [("matmul", True)]
    found.check()


@pytest.mark.slow
def test_every_number_of_a_product(compiled, task):
    """Tries all values of all tunable parameters, several parameters at a time: the last printed program has the last value of each one."""
    source = task("return torch.tanh(x @ self.w)", "torch.randn(70, 530)", "self.w = nn.Parameter(torch.randn(530, 76))")
    found = compiled(source, figures=SMALL)
    known = numbers(found.plan, source, Options().with_knob("tile", 0, found.plan.own[0].id))  # for warps; warpgroups have one parameter fewer
    assert {number.name.rpartition(".")[2] for number in known} == {"tile", "stages", "promoted", "split"}
    for at in range(max(len(number.values) for number in known)):
        options = Options()
        for number in known:
            options = options.with_knob(number.name.rpartition(".")[2], number.values[at % len(number.values)], found.plan.own[0].id)
        found.text = as_cpp(print_program(found.plan, source, options))
        found.check()


@pytest.mark.parametrize("name", ["linear", "left-turned", "heads"])
@pytest.mark.parametrize("tile", [7, 8])
def test_products_of_warpgroups(emulated, task, name, tile):
    call, inputs, init = MATMULS[name]
    found = emulated(task(f"return {call}", inputs, init), Options(knobs={"tile": tile}))
    assert "GroupTile<" in found.text
    found.check()


def test_a_convolution_of_warpgroups(emulated, task):
    call = task("return self.conv(x)", "torch.randn(2, 5, 9, 11)", "self.conv = nn.Conv2d(5, 20, 3, padding=1)")
    found = emulated(call, Options(knobs={"tile": 7, "split": 2}))
    assert "GroupTile<" in found.text
    found.check()


DEEP = {  # nine stages or more, so that every slot of the rings is reused
    "both-rows": ("F.linear(x, self.w)", "torch.randn(40, 330)", "self.w = nn.Parameter(torch.randn(70, 330))"),
    "rows-and-columns": ("x @ self.w", "torch.randn(40, 330)", "self.w = nn.Parameter(torch.randn(330, 70))"),
    "columns-and-rows": ("x.t() @ self.w.t()", "torch.randn(330, 40)", "self.w = nn.Parameter(torch.randn(70, 330))"),
    "convolution": ("self.conv(x)", "torch.randn(1, 32, 5, 6)", "self.conv = nn.Conv2d(32, 24, 3, padding=1)"),
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize(("tile", "stages"), [(7, 2), (7, 3), (7, 4), (8, 2)])
def test_deep_products_of_warpgroups(emulated, task, name, tile, stages):
    call, inputs, init = DEEP[name]
    found = emulated(task(f"return {call}", inputs, init), Options(knobs={"tile": tile, "stages": stages, "split": 1}))
    assert f", {stages}, " in found.text.partition("GroupTile<")[2][:30]
    found.check()


FAULTS = {
    "b-is-loaded-before-it-is-cut": (8, "barrier_wait(TAKEN, LOADERS);", ""),
    "a-is-loaded-before-it-is-multiplied": (8, "step % A_PLACES * A_FLOATS", "step % STAGES * A_FLOATS"),
    "one-of-two-stages-is-not-waited-for": (8, "copies_wait<AHEAD>();", "copies_wait<AHEAD + 1>();"),
    "one-of-four-stages-is-not-waited-for": (7, "copies_wait<AHEAD>();", "copies_wait<AHEAD + 1>();"),
    "a-stage-is-loaded-before-it-is-multiplied": (7, ": STAGES - 2;", ": STAGES - 1;"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_sees_what_the_barriers_are_for(compiled, task, fault):
    call, inputs, init = DEEP["both-rows"]
    tile, right, wrong = FAULTS[fault]
    found = compiled(task(f"return {call}", inputs, init), figures=SMALL, options=Options(knobs={"tile": tile, "split": 1}))
    assert right in found.text
    found.text = as_cpp(found.text.replace(right, wrong))
    with pytest.raises(AssertionError):
        found.check()


def test_warpgroups_are_for_their_architecture_alone(compiled, task):
    source = task("return x @ self.w", "torch.randn(70, 530)", "self.w = nn.Parameter(torch.randn(530, 76))")
    other = SMALL.model_copy(update={"capability": (10, 0)})
    for figures, offered in ((SMALL, 9), (other, 7)):
        plan = compiled(source, figures=figures).plan
        assert [len(number.values) for number in numbers(plan, source, Options()) if number.name.endswith("tile")] == [offered]
    assert "GroupTile<" not in print_program(plan, source, Options(knobs={"tile": 8}))


def test_tiles_by_depth_and_by_what_gathering_costs():
    """The choices match measurements on an H200: a deep product split by warpgroups (0.74 ms; small tiles 1.91), few channels by warps (5.05 ms;
    warpgroups 6.28)."""
    tiles = tensor_cores.TILES
    deep = tiles[tensor_cores.best_tile(tiles, 256, 256, 524288, 1, 132)]
    assert deep.group and tensor_cores.best_split(deep, 256, 256, 1, 16384, 132) == 32
    for slow, group in ((False, True), (True, False)):
        assert tiles[tensor_cores.best_tile(tiles, 64, 3451680, 320, 1, 132, slow)].group is group


def test_what_is_declined_and_why(compiled, task):
    found = compiled(task("return x @ self.w", "torch.randn(64, 8)", "self.w = nn.Parameter(torch.randn(8, 64))"), figures=SMALL)
    assert found.plan.groups[0].family == "" and "library" in found.plan.groups[0].reason
