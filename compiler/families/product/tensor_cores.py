"""Products of fp32 matrices on tensor cores with fp32 accuracy: the code that matrix products and convolutions share.

A tensor core multiplies TF32 numbers (10 mantissa bits) and truncates its sums instead of rounding them. Each operand is therefore split into two
TF32 numbers, and three of the four products are computed, because the fourth is negligible (M. Markidis et al., 2018). After every `PROMOTED` depth
elements, the sums leave the tensor core and are added up in fp32 registers with correct rounding (H. Ootomo and R. Yokota, arXiv 2203.03341). The
vendor's library keeps the sums in the tensor core; three such products exceed this project's error bound by a factor of 2 to 10.

In the printed kernel, a block computes a tile of the result. Asynchronous copies bring tiles of both operands into shared memory several stages
ahead, and each warp holds a part of the result tile in registers. Finished sums pass through shared memory again, so that the tail reads and writes
whole rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from compiler.families.family import Setting, Work
from compiler.families.product import groups, warpgroup
from compiler.kernel.text import known, times

DEPTH = 32  # depth elements per stage
PROMOTED = 16  # depth elements summed in the tensor core: 8 takes 4 to 8 % longer, 32 about 15 % (bench/results/products-h200.json)
STAGES = 3
SHARED_BYTES = 227 << 10  # per multiprocessor on compute capability 9.0
FINISH, FINISH_EACH = 1e6, 0.5  # costs, in multiplications at speed 1, of the kernel that adds up depth parts and of each element of the parts
SLOW_LOAD = 75  # cost, in the same unit, of an element whose position in an image is computed separately
GROUPED = 8  # number of tile rows that blocks traverse together


class Threaded(Protocol):
    """The part of a result that a block computes: the `Tile` of this module or that of 16-bit products."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def threads(self) -> int: ...


@dataclass(frozen=True)
class Tile:
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    speed: float  # relative speed of the inner loop; small tiles load and split more elements per product
    group: bool = False  # multiplied by warpgroups (warpgroup.py)
    idle: int = 8  # depth elements lost while a block starts and ends; high if the block is alone on a multiprocessor

    @property
    def threads(self) -> int:
        if self.group:
            return self.loaders + self.rows // warpgroup.ROWS * (self.columns // warpgroup.COLUMNS) * 128
        return self.rows // self.warp_rows * (self.columns // self.warp_columns) * 32

    @property
    def loaders(self) -> int:
        """Number of threads that copy; they are the first threads of the block."""
        return warpgroup.LOADERS if self.group else self.threads

    @property
    def writers(self) -> int:
        """Number of threads that hold sums; they are the last threads of the block."""
        return self.threads - self.loaders if self.group else self.threads


TILES = (
    Tile(64, 64, 32, 16, 0.6),
    Tile(64, 128, 32, 32, 0.8),
    Tile(128, 64, 32, 32, 0.8),
    Tile(128, 128, 64, 32, 1.0),
    Tile(128, 256, 64, 64, 1.1),
    Tile(256, 128, 64, 64, 1.1),
    Tile(32, 256, 32, 32, 0.7),
    Tile(128, 128, 64, 128, 1.6, group=True, idle=96),
    Tile(64, 256, 64, 128, 1.15, group=True, idle=96),
)


def tiles(setting: Setting) -> tuple[Tile, ...]:
    """Returns the tiles that the device can run; warpgroup tiles require compute capability 9.0."""
    return TILES if setting.figures.capability == warpgroup.ARCHITECTURE else tuple(tile for tile in TILES if not tile.group)


def best_tile(offered: tuple[Tile, ...], rows: int, columns: int, depth: int, batches: int, units: int, slow_loads: bool = False) -> int:
    """Returns the index of the tile with the shortest modelled time."""
    return min(range(len(offered)), key=lambda at: modelled_time(offered[at], rows, columns, depth, batches, units, slow_loads))


def modelled_time(tile: Tile, rows: int, columns: int, depth: int, batches: int, units: int, slow_loads: bool) -> float:
    """Models the time as the number of waves of blocks times the work per tile, with the depth split if that fills the device better. The unit is the
    time of one multiplication in a tile with speed 1."""
    split = best_split(tile, rows, columns, batches, -(-depth // DEPTH), units)
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batches * split
    joined = FINISH + rows * columns * batches * split * FINISH_EACH if split > 1 else 0
    of_depth = tile.columns * (tile.rows / tile.speed + (SLOW_LOAD if slow_loads else 0))
    return -(-blocks // units) * of_depth * (depth / split + tile.idle) + joined


def best_split(tile: Tile, rows: int, columns: int, batches: int, steps: int, units: int) -> int:
    """Returns the number of parts into which the depth is split, chosen so that even a few large tiles fill the device. A part has at least 8
    stages."""
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batches
    if blocks * 2 > units:
        return 1
    return max(1, min(units // blocks, steps // 8, 32))


@dataclass(frozen=True)
class Product:
    """A family's description of its product. `a` has `rows` lines, `b` has `columns` lines, and both have depth `depth`."""

    rows: int
    columns: int
    depth: int
    batches: int
    a_depth_inner: bool  # whether shared memory stores the tile of `a` row by row instead of by depth
    b_depth_inner: bool
    slow_loads: bool = False  # whether the position of every element of `b` is computed separately
    interleaved: bool = False  # whether the batches' results alternate in memory, like the phases of a transposed convolution
    groups: int = 0  # number of row groups, each of which has its own `b`; the device reads their sizes
    begins: int = 0  # index of the entry for the first group in `begins`

    @property
    def steps(self) -> int:
        return -(-self.depth // DEPTH)

    @property
    def even(self) -> Product:
        """The same product with groups of equal size, which the time model uses."""
        return replace(self, rows=-(-self.rows // self.groups), batches=self.groups, groups=0) if self.groups else self

    def down(self, height: int) -> int:
        """Returns the number of tiles with `height` rows. With groups it is an upper bound, because a tile never spans two groups."""
        if self.groups:
            return min(self.rows, (self.rows + self.groups * (height - 1)) // height)
        return -(-self.rows // height)

    def ragged(self, height: int) -> bool:
        """True if a tile may have fewer rows."""
        return bool(self.groups or self.rows % height)

    def grid(self, tiles: int, split: int) -> str:
        """Returns the grid of a launch. Interleaved batches write to the same sectors. If their blocks are adjacent in the grid, the L2 cache
        combines these writes; otherwise, each sector is written to memory once per phase along the lines."""
        blocks = tiles * self.batches if self.interleaved else tiles
        beside = 1 if self.interleaved else self.batches
        return f"dim3({blocks}, {beside}, {split})" if beside > 1 or split > 1 else str(blocks)

    def batch(self) -> list[str]:
        """Declares `batch`, if there are several batches."""
        if self.batches == 1:
            return []
        return [f"const int batch = {f'blockIdx.x % {known(self.batches)}' if self.interleaved else 'blockIdx.y'};"]

    @property
    def tile_number(self) -> str:
        """The number of a block's tile in its batch, as an expression that can be the left operand of `%`, `*` and `/`."""
        return f"blockIdx.x / {known(self.batches)}" if self.interleaved and self.batches > 1 else "blockIdx.x"


def tile_of(work: Work, product: Product) -> Tile:
    offered = tiles(work.setting)
    even, units = product.even, work.setting.figures.units
    size = (even.rows, even.columns, even.depth, even.batches)
    wanted = work.knob("tile", best_tile(offered, *size, units, product.slow_loads))
    return offered[min(wanted, len(offered) - 1)]


def least_time(setting: Setting, product: Product) -> float:
    """Returns the smallest `modelled_time` of all tiles that the device can run."""
    size = (product.rows, product.columns, product.depth, product.batches)
    return min(modelled_time(tile, *size, setting.figures.units, product.slow_loads) for tile in tiles(setting))


def split_of(work: Work, product: Product) -> int:
    if product.groups:
        return 1
    tile = tile_of(work, product)
    wanted = work.knob("split", best_split(tile, product.rows, product.columns, product.batches, product.steps, work.setting.figures.units))
    return max(1, min(wanted, product.steps))


def promoted_of(work: Work) -> int:
    return work.knob("promoted", PROMOTED)


def knobs_of(work: Work, product: Product) -> dict[str, tuple[tuple[int, ...], int]]:
    tile = tile_of(work, product)
    found = {
        "tile": (tuple(range(len(tiles(work.setting)))), TILES.index(tile)),
        "stages": ((2, 3, 4), stages_of(work, product, tile)),
    }
    if not tile.group:
        found["promoted"] = ((8, 16, 32), promoted_of(work))
    if product.steps >= 16 and not product.groups:
        found["split"] = (tuple(n for n in (1, 2, 4, 8, 16, 32) if n * 4 <= product.steps), split_of(work, product))
    return found


def pitches(product: Product, tile: Tile) -> tuple[int, int]:
    """Returns the stride in floats between lines of a tile, chosen so that the 32 lanes of a fragment load access 32 different banks."""
    return DEPTH + 4 if product.a_depth_inner else tile.rows + 8, DEPTH + 4 if product.b_depth_inner else tile.columns + 8


def stage_floats(product: Product, tile: Tile) -> tuple[int, int]:
    """Returns the number of floats per stage of `a` and of `b`."""
    a, b = pitches(product, tile)
    return a * (tile.rows if product.a_depth_inner else DEPTH), b * (tile.columns if product.b_depth_inner else DEPTH)


def stages_of(work: Work, product: Product, tile: Tile) -> int:
    wanted = work.knob("stages", warpgroup.STAGES if tile.group else STAGES)
    return max(2, min(wanted, (SHARED_BYTES // 4 - cut_floats(tile)) // sum(stage_floats(product, tile))))


def cut_floats(tile: Tile) -> int:
    return tile.columns * warpgroup.CUT_FLOATS if tile.group else 0


def shared_bytes(work: Work, product: Product, tile: Tile) -> int:
    """Returns the size in bytes of the stages or of the finished tile that replaces them, whichever is larger."""
    a, b = stage_floats(product, tile)
    stages = stages_of(work, product, tile)
    operands = warpgroup.places_of_a(stages) * a + stages * b + cut_floats(tile) if tile.group else stages * (a + b)
    return 4 * max(operands, tile.rows * (tile.columns + 8))


def tile_type(work: Work, product: Product, tile: Tile) -> str:
    flags = ", ".join(str(inner).lower() for inner in (product.a_depth_inner, product.b_depth_inner))
    if tile.group:
        return f"GroupTile<{tile.rows}, {tile.columns}, {stages_of(work, product, tile)}, {flags}>"
    numbers = (tile.rows, tile.columns, tile.warp_rows, tile.warp_columns, stages_of(work, product, tile), promoted_of(work))
    return f"Tile<{', '.join(map(str, numbers))}, {flags}>"


def tile_position(product: Product, tile: Threaded) -> list[str]:
    """Declares `row0` and `column0`. Blocks that run concurrently share rows and columns, so they read the operands from the L2 cache."""
    if product.groups:
        return groups.position(product, tile.rows, tile.columns)
    down, across = product.down(tile.rows), -(-product.columns // tile.columns)
    at = product.tile_number
    if down == 1:
        return ["const int row0 = 0;", f"const int column0 = {times(at, tile.columns)};"]
    if across == 1:
        return [f"const int row0 = {times(at, tile.rows)};", "const int column0 = 0;"]
    if down <= GROUPED:
        row, column = f"{at} % {known(down)}", f"{at} / {known(down)}"
        return [f"const int row0 = {times(row, tile.rows)};", f"const int column0 = {times(column, tile.columns)};"]
    height = str(GROUPED)
    lines = [f"const int group = {at} / {known(GROUPED * across)} * {GROUPED}, within = {at} % {known(GROUPED * across)};"]
    if down % GROUPED:
        lines.append(f"const int height = {known(down)} - group < {GROUPED} ? {known(down)} - group : {GROUPED};")
        height = "height"
    row, column = f"(group + within % {height})", f"within / {height}"
    return [*lines, f"const int row0 = {times(row, tile.rows)};", f"const int column0 = {times(column, tile.columns)};"]


def shared_sources(work: Work, product: Product) -> list[str]:
    """Returns the device functions that the kernel needs."""
    return [COPIES, *([warpgroup.SHARED] if tile_of(work, product).group else [MULTIPLY, WARP_TILE]), *groups.shared(product)]


def flags(work: Work, product: Product) -> tuple[str, ...]:
    """Returns the nvcc flags."""
    return warpgroup.FLAGS if tile_of(work, product).group else ()


def scratch_bytes(work: Work, product: Product) -> int:
    split = split_of(work, product)
    return 4 * split * product.rows * product.columns * product.batches if split > 1 else 0


def describe(work: Work, product: Product) -> str:
    tile, split = tile_of(work, product), split_of(work, product)
    blocks = product.down(tile.rows) * -(-product.columns // tile.columns) * product.batches * split
    parts = f", the depth in {split} parts" if split > 1 else ""
    return (
        f"{blocks} blocks of {tile.threads} threads, tiles of {tile.rows} x {tile.columns}, depth {product.depth} by {DEPTH} in "
        f"{stages_of(work, product, tile)} stages{parts}; each fp32 product is three TF32 products, infinities give NaN."
    )


COPIES = r"""// Asynchronous copies into shared memory; outside the tensor they write zeros.
__device__ __forceinline__ void copy_async4(float* into, const float* from, bool inside) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(into);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(inside ? 4 : 0));
}
__device__ __forceinline__ void copy_async16(float* into, const float* from, bool inside) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(into);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(inside ? 16 : 0));
}
__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;");
}
template <int LEFT> __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

// value = high + low: the nearest TF32, and what is left, of which a tensor core takes all but the last bit.
__device__ __forceinline__ void cut(float value, unsigned& high, unsigned& low) {
    high = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(value - __uint_as_float(high));
}
"""

MULTIPLY = r"""// d += a * b for a 16 x 8 part of the result over a depth of 8.
__device__ __forceinline__ void multiply_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
"""

WARP_TILE = r"""// A block's tile of a product: M rows by N columns, a warp's part is WARP_M by WARP_N. Sums over a depth of PROMOTED stay in the
// tensor cores, which cut them off; beyond that they are added up in registers, rounded.
template <int M, int N, int WARP_M, int WARP_N, int STAGES, int PROMOTED, bool A_DEPTH_INNER, bool B_DEPTH_INNER> struct Tile {
    static constexpr int DEPTH = 32, A_PITCH = A_DEPTH_INNER ? DEPTH + 4 : M + 8, B_PITCH = B_DEPTH_INNER ? DEPTH + 4 : N + 8;
    static constexpr int A_FLOATS = A_PITCH * (A_DEPTH_INNER ? M : DEPTH), STAGE = A_FLOATS + B_PITCH * (B_DEPTH_INNER ? N : DEPTH);
    static constexpr int PITCH = N + 8, DOWN = WARP_M / 16, ACROSS = WARP_N / 8, EIGHTS = PROMOTED / 8;
    float sum[DOWN][ACROSS][4] = {};
    const int row = threadIdx.x / 32 % (M / WARP_M) * WARP_M, column = threadIdx.x / 32 / (M / WARP_M) * WARP_N;  // of the warp's part
    const int group = threadIdx.x % 32 / 4, within = threadIdx.x % 4;  // where the lane's elements of a fragment lie

    // `load(a, b, step)` starts the copies of one stage.
    template <class Load> __device__ __forceinline__ void run(float* memory, int steps, const Load& load) {
        for (int step = 0; step < STAGES - 1; ++step) {
            if (step < steps) load(memory + step * STAGE, memory + step * STAGE + A_FLOATS, step);
            copies_commit();
        }
        for (int step = 0; step < steps; ++step) {
            copies_wait<STAGES - 2>();
            __syncthreads();  // the stage is there, and everyone has left the one before
            const int next = step + STAGES - 1;
            float* free = memory + next % STAGES * STAGE;
            if (next < steps) load(free, free + A_FLOATS, next);
            copies_commit();
            const float* a = memory + step % STAGES * STAGE;
            for (int k = 0; k < DEPTH; k += PROMOTED) multiply(a, a + A_FLOATS, k);
        }
        copies_wait<0>();
        __syncthreads();
    }

    __device__ __forceinline__ void multiply(const float* a, const float* b, int first) {
        unsigned b_high[EIGHTS][ACROSS][2], b_low[EIGHTS][ACROSS][2];
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const int k = first + e * 8 + within + r * 4, n = column + j * 8 + group;
                    cut(b[B_DEPTH_INNER ? n * B_PITCH + k : k * B_PITCH + n], b_high[e][j][r], b_low[e][j][r]);
                }
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            unsigned a_high[EIGHTS][4], a_low[EIGHTS][4];
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e)
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const int k = first + e * 8 + within + r / 2 * 4, m = row + i * 16 + r % 2 * 8 + group;
                    cut(a[A_DEPTH_INNER ? m * A_PITCH + k : k * A_PITCH + m], a_high[e][r], a_low[e][r]);
                }
            float part[ACROSS][4] = {};
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {  // the small products first
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) multiply_tf32(part[j], a_low[e], b_high[e][j]);
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) multiply_tf32(part[j], a_high[e], b_low[e][j]);
            }
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e)
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) multiply_tf32(part[j], a_high[e], b_high[e][j]);
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                for (int r = 0; r < 4; ++r) sum[i][j][r] += part[j][r];
        }
    }

    // The finished tile in shared memory, M rows of PITCH floats.
    __device__ __forceinline__ void put(float* memory) {
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                for (int r = 0; r < 4; ++r)
                    memory[(row + i * 16 + r / 2 * 8 + group) * PITCH + column + j * 8 + within * 2 + r % 2] = sum[i][j][r];
        __syncthreads();
    }
};
"""
