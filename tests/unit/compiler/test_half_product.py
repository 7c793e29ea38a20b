"""Products in bf16 and fp16 compared with PyTorch, run by the emulator: layouts, batches, alignments, tails, every tile, a split depth."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.family import Setting
from compiler.families.product import half_product
from compiler.families.product.half_tile import TILES, best, tiles
from compiler.families.product.tensor_cores import Product
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp
from tests.unit.compiler.test_tensor_cores import MATMULS

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})  # chosen so that small products fill the device


@pytest.fixture(autouse=True)
def whatever_the_library_does(monkeypatch):
    monkeypatch.setattr(half_product, "worthwhile", lambda *_: True)


@pytest.fixture
def emulated(compiled):
    def run(source: str, options: Options | None = None, figures: DeviceFigures = SMALL, precision: str = "bf16"):
        found = compiled(source, figures=figures, options=options, precision=precision)
        assert "half-product" in [group.family for group in found.plan.groups], [group.reason for group in found.plan.groups]
        found.text = as_cpp(found.text)
        return found

    return run


def tile_of(rows: int, columns: int, group: bool) -> int:
    return next(at for at, tile in enumerate(TILES) if (tile.rows, tile.columns, tile.group) == (rows, columns, group))


QUICK = {"both-turned"}


@pytest.mark.parametrize("tile", [(32, 64, False), (64, 128, True)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MATMULS])
def test_products(emulated, task, name, tile):
    call, inputs, init = MATMULS[name]
    found = emulated(task(f"return {call}", inputs, init), Options(knobs={"tile": tile_of(*tile)}))
    assert ("HalfGroupTile<bf16" in found.text) == tile[2]
    found.check()


TAILS = {
    "bias, activation and residual": ("F.gelu(F.linear(x, self.w, self.b)) + r", "torch.randn(70, 72), torch.randn(70, 88)", (88, 72)),
    "scaled rows and columns": ("torch.relu(F.linear(x, self.w) * self.b + r[:, :1]) - self.b", "torch.randn(40, 64), torch.randn(40, 80)", (80, 64)),
    "odd columns": ("torch.tanh(F.linear(x, self.w, self.b)) * r", "torch.randn(17, 130), torch.randn(17, 43)", (43, 130)),
    "two products": ("F.linear(x, self.w), F.linear(x, self.w, self.b).float() * r", "torch.randn(33, 64), torch.randn(33, 36)", (36, 64)),
}  # fmt: skip


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name if name == "bias, activation and residual" else pytest.param(name, marks=pytest.mark.slow) for name in TAILS])
def test_tails(emulated, task, name, precision):
    body, inputs, weight = TAILS[name]
    init = f"self.w, self.b = nn.Parameter(torch.randn{weight}), nn.Parameter(torch.randn({weight[0]}))"
    found = emulated(task(f"return {body}", inputs, init, "x, r"), precision=precision)
    assert sum(len(group.operators) for group in found.plan.groups if group.family) > 1 or name == "two products"
    found.check()


@pytest.mark.slow
@pytest.mark.parametrize("at", [at if at in (0, len(TILES) - 1) else pytest.param(at, marks=pytest.mark.slow) for at in range(len(TILES))])
@pytest.mark.parametrize("turned", [False, True])
def test_every_tile(emulated, task, at, turned):
    """Uses more than one tile in each direction, a split depth, and a tail."""
    tile = TILES[at]
    rows, columns = tile.rows + 24, tile.columns + 8
    left, right = ("x.t()", "self.w") if turned else ("x", "self.w.t()")
    shapes = ((200, rows), (200, columns)) if turned else ((rows, 200), (columns, 200))
    source = task(f"return torch.relu({left} @ {right})", f"torch.randn{shapes[0]}", f"self.w = nn.Parameter(torch.randn{shapes[1]})")
    for split in (1, 2):
        emulated(source, Options(knobs={"tile": at, "split": split})).check()


@pytest.mark.slow
def test_every_number(compiled, task):
    source = task("return torch.tanh(x @ self.w)", "torch.randn(70, 530)", "self.w = nn.Parameter(torch.randn(530, 76))")
    found = compiled(source, figures=SMALL, precision="bf16")
    known = numbers(found.plan, source, Options())
    assert {number.name.rpartition(".")[2] for number in known} == {"tile", "stages", "split"}
    for at in range(max(len(number.values) for number in known)):
        options = Options()
        for number in known:
            options = options.with_knob(number.name.rpartition(".")[2], number.values[at % len(number.values)], found.plan.own[0].id)
        found.text = as_cpp(print_program(found.plan, source, options))
        found.check()


def test_warpgroups_are_for_their_architecture_alone():
    other = Setting(SMALL.model_copy(update={"capability": (10, 0)}), "bf16")
    assert tiles(Setting(SMALL, "bf16")) == TILES and not any(tile.group for tile in tiles(other))


def test_few_rows_are_read_by_many_multiprocessors():
    """The cost model splits the depth if there are few rows, and chooses large tiles if there are many."""
    setting = Setting(DeviceFigures.h200(), "bf16")
    assert best(Product(1, 4096, 4096, 1, True, True), setting)[1] > 1
    tile, split = best(Product(8192, 8192, 8192, 1, True, True), setting)
    assert (TILES[tile].rows, TILES[tile].columns, split) == (128, 256, 1)
