"""Selects the tile and the depth split of a 16-bit product with a model of the time for multiplying, loading and waiting.

A block takes the larger of its multiplication and load times, plus the time for its start and end. Waves of blocks run one after another. Products
with few rows are limited by reading the other operand. Their speed depends on the number of multiprocessors that read concurrently, which is why the
depth is split.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.family import Setting, Work
from compiler.families.product import half_cuda
from compiler.families.product.tensor_cores import SHARED_BYTES, Product
from compiler.kernel.text import known

DEPTH = 64  # depth elements per stage (128 bytes)
ARCHITECTURE = (9, 0)  # compute capability with warpgroup multiplication
BARRIERS = 128  # bytes after the stages
UNIT_LOADS = 90e3  # bytes per microsecond from the L2 cache to one multiprocessor
CACHE_LOADS = 7.5e6  # bytes per microsecond from the L2 cache to all multiprocessors
BEGIN_US, SPLIT_US = 1.5, 2.5  # time for a block's first loads and last stores; time for adding up the depth parts
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Tile:
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    rate: float  # TFLOP/s that an H200 achieves with such tiles on all multiprocessors
    resident: int  # blocks per multiprocessor
    stages: int
    group: bool = False  # multiplied by warpgroups

    @property
    def threads(self) -> int:
        return self.loaders + self.writers if self.group else self.loaders

    @property
    def loaders(self) -> int:
        """Number of threads that copy; they are the first threads of the block."""
        return half_cuda.LOADERS if self.group else self.rows // self.warp_rows * (self.columns // self.warp_columns) * 32

    @property
    def writers(self) -> int:
        """Number of threads that hold sums; they are the last threads of the block."""
        return self.rows * 2 if self.group else self.loaders


TILES = (
    Tile(128, 256, 64, 256, 660, 1, 4, group=True),
    Tile(128, 128, 64, 128, 560, 1, 6, group=True),
    Tile(64, 256, 64, 256, 480, 1, 5, group=True),
    Tile(64, 128, 64, 128, 430, 2, 4, group=True),
    Tile(128, 64, 64, 64, 400, 1, 6, group=True),
    Tile(128, 128, 64, 32, 380, 1, 4),
    Tile(128, 64, 64, 32, 330, 2, 4),
    Tile(64, 128, 32, 64, 330, 2, 4),
    Tile(64, 64, 32, 32, 280, 3, 4),
    Tile(128, 32, 32, 32, 220, 3, 4),
    Tile(32, 128, 32, 32, 220, 3, 4),
    Tile(32, 64, 16, 32, 180, 4, 5),
    Tile(16, 128, 16, 32, 130, 3, 5),
    Tile(16, 64, 16, 16, 90, 4, 5),
)


def tiles(setting: Setting) -> tuple[Tile, ...]:
    """Returns the tiles that the device can run."""
    return TILES if setting.figures.capability == ARCHITECTURE else tuple(tile for tile in TILES if not tile.group)


def steps(product: Product) -> int:
    return -(-product.depth // DEPTH)


def blocks_of(tile: Tile, product: Product) -> int:
    return product.down(tile.rows) * -(-product.columns // tile.columns) * product.batches


def modelled_us(tile: Tile, split: int, product: Product, setting: Setting) -> float:
    figures = setting.figures
    blocks, own = blocks_of(tile, product) * split, -(-steps(product) // split)
    together = min(tile.resident, -(-blocks // figures.units))  # blocks per multiprocessor
    rounds = -(-blocks // (figures.units * together))
    multiplied = 2e-6 * tile.rows * tile.columns * DEPTH * own * together / (tile.rate / 132)
    loaded = (tile.rows + tile.columns) * DEPTH * 2 * own
    written = product.rows * product.columns * product.batches
    waited = max(loaded * together / UNIT_LOADS, loaded * min(blocks, figures.units * together) / CACHE_LOADS)
    read = 2 * product.batches * product.depth * (product.rows + product.columns)
    memory = figures.memory_ms(read + 2 * written) * 1e3
    time = max(rounds * max(multiplied, waited), memory) + rounds * BEGIN_US
    return time + (SPLIT_US + figures.memory_ms(8 * split * written) * 1e3 * 0.6 if split > 1 else 0.0)


def splits(product: Product) -> tuple[int, ...]:
    """Returns the depth splits whose parts have at least two stages."""
    return tuple(n for n in SPLITS if n == 1 or n * 2 <= steps(product) and not product.groups)


def best(product: Product, setting: Setting) -> tuple[int, int]:
    """Returns the tile index and the depth split with the shortest modelled time."""
    offered = tiles(setting)
    every = ((at, split) for at in range(len(offered)) for split in splits(product))
    return min(every, key=lambda choice: modelled_us(offered[choice[0]], choice[1], product.even, setting))


def tile_of(work: Work, product: Product) -> Tile:
    offered = tiles(work.setting)
    return offered[min(work.knob("tile", best(product, work.setting)[0]), len(offered) - 1)]


def split_of(work: Work, product: Product) -> int:
    tile = tile_of(work, product)
    modelled = min(splits(product), key=lambda split: modelled_us(tile, split, product, work.setting))
    return max(1, min(work.knob("split", modelled), steps(product)))


def stage_bytes(product: Product, tile: Tile) -> int:
    a = tile.rows if product.a_depth_inner else max(tile.rows, 64)
    b = tile.columns if product.b_depth_inner else max(tile.columns, 64)
    return (a + b) * 128


def stages_of(work: Work, product: Product, tile: Tile) -> int:
    wanted = max(work.knob("stages", tile.stages), 3)
    return min(wanted, (SHARED_BYTES - BARRIERS - 1024) // stage_bytes(product, tile))


def shared_bytes(work: Work, product: Product, tile: Tile) -> int:
    return max(stages_of(work, product, tile) * stage_bytes(product, tile), tile.rows * (tile.columns + 8) * 4) + tile.group * BARRIERS


def knobs_of(work: Work, product: Product) -> dict[str, tuple[tuple[int, ...], int]]:
    offered, tile = tiles(work.setting), tile_of(work, product)
    worth = tuple(at for at, one in enumerate(offered) if fits(one, product) or one is tile)
    found = {"tile": (worth, offered.index(tile)), "stages": ((3, 4, 5, 6), stages_of(work, product, tile))}
    if len(splits(product)) > 1:
        found["split"] = (splits(product), split_of(work, product))
    return found


def fits(tile: Tile, product: Product) -> bool:
    """True if the tile is worth trying: along each side, less than half of the tile lies outside the product, or there is no smaller tile."""
    return tile.rows < 2 * max(product.even.rows, 16) and tile.columns < 2 * max(product.columns, 32)


def flags(tile: Tile) -> tuple[str, ...]:
    """Returns the nvcc flags. Warpgroup instructions exist only in sm_90a code, which such a GPU prefers to plain sm_90 code."""
    return ("-gencode=arch=compute_90a,code=sm_90a",) if tile.group else ()


def scratch_bytes(work: Work, product: Product) -> int:
    split = split_of(work, product)
    return 4 * split * product.rows * product.columns * product.batches if split > 1 else 0


def shared_sources(tile: Tile, dtype: str) -> list[str]:
    """Returns the device functions that the kernel needs."""
    return [half_cuda.COPIES, *(half_cuda.group_tile(dtype, tile.columns) if tile.group else [half_cuda.warp_tile(dtype)])]


def tile_type(work: Work, product: Product, tile: Tile, dtype: str) -> str:
    inner = ", ".join(str(flag).lower() for flag in (product.a_depth_inner, product.b_depth_inner))
    name, stages = half_cuda.TYPES[dtype][0], stages_of(work, product, tile)
    sides = (tile.rows, tile.columns, *(() if tile.group else (tile.warp_rows, tile.warp_columns)))
    numbers = ", ".join(known(number) for number in (*sides, stages))
    return f"{'HalfGroupTile' if tile.group else 'HalfTile'}<{name}, {numbers}, {inner}>"


def describe(work: Work, product: Product) -> str:
    tile, split = tile_of(work, product), split_of(work, product)
    parts = f", the depth in {split} parts" if split > 1 else ""
    how = "by warpgroups" if tile.group else "by warps"
    return (
        f"{blocks_of(tile, product) * split} blocks of {tile.threads} threads, tiles of {tile.rows} x {tile.columns} {how}, depth {product.depth} by "
        f"{DEPTH} in {stages_of(work, product, tile)} stages{parts}; sums in fp32, rounded once."
    )
