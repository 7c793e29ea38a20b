"""Products of fp32 matrices at fp32's accuracy on tensor cores: the part that matrix products and convolutions share.

A tensor core takes TF32 (10 bits after the point) and cuts its sums off instead of rounding them. Each operand is therefore the sum of two TF32
numbers, three products of which matter (M. Markidis et al., 2018), and sums leave the tensor core after `PROMOTED` elements of depth, to be added
up in fp32 registers, correctly rounded (H. Ootomo and R. Yokota, arXiv 2203.03341). Three products of the vendor's library, whose sums stay inside,
miss this project's error bound by 2 to 10 times.

The printed kernel: a block has a tile of the result; tiles of both operands come through shared memory by asynchronous copies, several stages
ahead; each warp has a part of the tile in registers; finished sums go through shared memory once more, so that the tail reads and writes rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.compiler.families.family import Work

DEPTH = 32  # elements of depth a stage
PROMOTED = 16  # elements of depth whose sums stay in the tensor core: 8 costs 4 to 8 % more time, 32 some 15 (bench/results/products-h200.json)
STAGES = 3
SHARED_BYTES = 227 << 10  # of a multiprocessor, compute capability 9.0
RESIDENT = 2  # blocks that can share a multiprocessor where registers allow it
GROUPED = 8  # rows of tiles that blocks walk through together


@dataclass(frozen=True)
class Tile:
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    speed: float  # of its inner loop, relative: small tiles load and cut more for each product

    @property
    def threads(self) -> int:
        return self.rows // self.warp_rows * (self.columns // self.warp_columns) * 32


TILES = (
    Tile(64, 64, 32, 16, 0.6),
    Tile(64, 128, 32, 32, 0.8),
    Tile(128, 64, 32, 32, 0.8),
    Tile(128, 128, 64, 32, 1.0),
    Tile(128, 256, 64, 64, 1.1),
    Tile(256, 128, 64, 64, 1.1),
    Tile(32, 256, 32, 32, 0.7),
)


def best_tile(rows: int, columns: int, batches: int, units: int) -> int:
    """The index of the tile with the least modelled time: rounds of blocks over the multiprocessors, times the work of a tile."""

    def time(tile: Tile) -> float:
        blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batches
        return -(-blocks // units) * tile.rows * tile.columns / tile.speed

    return min(range(len(TILES)), key=lambda at: time(TILES[at]))


def best_split(tile: Tile, rows: int, columns: int, batches: int, steps: int, units: int) -> int:
    """Into how many parts the depth is cut, so that few large tiles still fill the device; parts have at least 8 stages."""
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batches
    if blocks * 2 > units:
        return 1
    return max(1, min(units // blocks, steps // 8, 32))


@dataclass(frozen=True)
class Product:
    """What a family says of its product; `a` has `rows` and `b` has `columns`, both over `depth`."""

    rows: int
    columns: int
    depth: int
    batches: int
    a_depth_inner: bool  # whether the tile of `a` lies in shared memory row by row, or one depth after the other
    b_depth_inner: bool

    @property
    def steps(self) -> int:
        return -(-self.depth // DEPTH)


def tile_of(work: Work, product: Product) -> Tile:
    units = work.setting.figures.units
    return TILES[work.knob("tile", best_tile(product.rows, product.columns, product.batches, units))]


def split_of(work: Work, product: Product) -> int:
    tile = tile_of(work, product)
    wanted = work.knob("split", best_split(tile, product.rows, product.columns, product.batches, product.steps, work.setting.figures.units))
    return max(1, min(wanted, product.steps))


def promoted_of(work: Work) -> int:
    return work.knob("promoted", PROMOTED)


def knobs_of(work: Work, product: Product) -> dict[str, tuple[tuple[int, ...], int]]:
    tile = tile_of(work, product)
    found = {
        "tile": (tuple(range(len(TILES))), TILES.index(tile)),
        "stages": ((2, 3, 4), stages_of(work, product, tile)),
        "promoted": ((8, 16, 32), promoted_of(work)),
    }
    if product.steps >= 16:
        found["split"] = (tuple(n for n in (1, 2, 4, 8, 16, 32) if n * 4 <= product.steps), split_of(work, product))
    return found


def pitches(product: Product, tile: Tile) -> tuple[int, int]:
    """Floats from one line of a tile to the next: chosen so that the 32 lanes of a fragment's load meet 32 banks."""
    return DEPTH + 4 if product.a_depth_inner else tile.rows + 8, DEPTH + 4 if product.b_depth_inner else tile.columns + 8


def stage_floats(product: Product, tile: Tile) -> int:
    a, b = pitches(product, tile)
    return a * (tile.rows if product.a_depth_inner else DEPTH) + b * (tile.columns if product.b_depth_inner else DEPTH)


def stages_of(work: Work, product: Product, tile: Tile) -> int:
    wanted = work.knob("stages", STAGES)
    return max(2, min(wanted, SHARED_BYTES // (4 * stage_floats(product, tile))))


def shared_bytes(work: Work, product: Product, tile: Tile) -> int:
    """Of the stages, or of the finished tile that takes their place."""
    return 4 * max(stages_of(work, product, tile) * stage_floats(product, tile), tile.rows * (tile.columns + 8))


def tile_type(work: Work, product: Product, tile: Tile) -> str:
    flags = ", ".join(str(inner).lower() for inner in (product.a_depth_inner, product.b_depth_inner))
    numbers = (tile.rows, tile.columns, tile.warp_rows, tile.warp_columns, stages_of(work, product, tile), promoted_of(work))
    return f"Tile<{', '.join(map(str, numbers))}, {flags}>"


def tile_position(product: Product, tile: Tile) -> list[str]:
    """Declares `row0` and `column0`. Blocks that run at the same time share rows and columns: they find operands in the second-level cache."""
    down, across = -(-product.rows // tile.rows), -(-product.columns // tile.columns)
    if down == 1:
        return ["const int row0 = 0;", f"const int column0 = blockIdx.x * {tile.columns};"]
    if across == 1:
        return [f"const int row0 = blockIdx.x * {tile.rows};", "const int column0 = 0;"]
    if down <= GROUPED:
        return [f"const int row0 = blockIdx.x % {down} * {tile.rows};", f"const int column0 = blockIdx.x / {down} * {tile.columns};"]
    height = str(GROUPED)
    lines = [f"const int group = blockIdx.x / {GROUPED * across} * {GROUPED}, within = blockIdx.x % {GROUPED * across};"]
    if down % GROUPED:
        lines.append(f"const int height = {down} - group < {GROUPED} ? {down} - group : {GROUPED};")
        height = "height"
    return [*lines, f"const int row0 = (group + within % {height}) * {tile.rows};", f"const int column0 = within / {height} * {tile.columns};"]


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

WARP_TILE = r"""// d += a * b for a 16 x 8 part of the result over a depth of 8.
__device__ __forceinline__ void multiply_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A block's tile of a product: M rows by N columns, a warp's part is WARP_M by WARP_N. Sums over a depth of PROMOTED stay in the tensor cores,
// which cut them off; beyond that they are added up in registers, rounded.
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


@dataclass
class Printing:
    """What a family gives for its product: `loads` are the statements that start the copies of one stage (they see `to_a`, `to_b` and `step`),
    `setup` the declarations before them, `tail` the statements for one element, in which `row` and `column` are known and `value` is the sum."""

    parameters: str  # of the kernel and the launcher
    names: str
    setup: list[str]
    loads: list[str]
    columns: list[str]  # declarations of what the tail needs of a column, once a thread
    rows: list[str]  # of a row, once an element
    tail: list[str]  # over `value`
    steps: str = ""  # of the depth, where they differ from block to block
    elements: str = ""  # the position of an element in scratch memory: "(batch * 64 + row) * 32 + column", of type long if there are that many


def kernel_source(name: str, work: Work, product: Product, printing: Printing) -> str:
    """The kernel, its finishing kernel where the depth is cut, and the launcher."""
    tile, split = tile_of(work, product), split_of(work, product)
    down, across = -(-product.rows // tile.rows), -(-product.columns // tile.columns)
    steps = -(-product.steps // split)
    kind = tile_type(work, product, tile)
    scratch = ", float* __restrict__ scratch" if split > 1 else ""
    resident = 1 if tile.warp_rows * tile.warp_columns > 1024 else RESIDENT  # without a number the compiler may aim at more, and spill
    lines = [f"__global__ void __launch_bounds__({tile.threads}, {resident}) {name}_kernel({printing.parameters}{scratch}) {{"]
    lines += ["    extern __shared__ __align__(16) float memory[];", f"    {kind} tile;"]
    body = tile_position(product, tile)
    if product.batches > 1:
        body.append("const int batch = blockIdx.y;")
    body += printing.setup
    count = printing.steps or str(product.steps)
    if split > 1:
        body.append(f"const int first = blockIdx.z * {steps}, last = first + {steps} < {count} ? first + {steps} : {count};")
    body.append("tile.run(memory, " + ("last - first" if split > 1 else count) + ", [&](float* to_a, float* to_b, int step) {")
    body += ["    step += first;"] if split > 1 else []
    body += [f"    {line}" for line in printing.loads]
    body += ["});", "tile.put(memory);", f"const int column = column0 + threadIdx.x % {tile.columns};"]
    if product.columns % tile.columns:
        body.append(f"if (column >= {product.columns}) return;")
    body += printing.columns if split == 1 else []
    end = f"row0 + {tile.rows}"
    if product.rows % tile.rows:
        body.append(f"const int end = {end} < {product.rows} ? {end} : {product.rows};")
        end = "end"
    body.append(f"for (int row = row0 + threadIdx.x / {tile.columns}; row < {end}; row += {tile.threads // tile.columns or 1}) {{")
    body.append(f"    const float value = memory[(row - row0) * {tile.columns + 8} + threadIdx.x % {tile.columns}];")
    total = product.rows * product.columns * product.batches
    if split > 1:
        wide = "(long)" if total * split >= 2**31 else ""
        body.append(f"    scratch[{wide}blockIdx.z * {total} + {printing.elements}] = value;")
    else:
        body += [f"    {line}" for line in [*printing.rows, *printing.tail]]
    body.append("}")
    lines += [*(f"    {line}" for line in body), "}"]
    grid = f"dim3({down * across}, {product.batches}, {split})" if product.batches > 1 or split > 1 else str(down * across)
    shared = shared_bytes(work, product, tile)
    launch = [
        f"cudaFuncSetAttribute({name}_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, {shared});",
        f"{name}_kernel<<<{grid}, {tile.threads}, {shared}, (cudaStream_t)stream>>>({printing.names}{', scratch' if split > 1 else ''});",
    ]
    if split > 1:
        lines += finish(name, product, printing, split)
        launch.append(f"{name}_finish<<<{-(-total // 256)}, 256, 0, (cudaStream_t)stream>>>({printing.names}, scratch);")
    lines.append(f'extern "C" int {name}({printing.parameters}{scratch}, void* stream) {{')
    return "\n".join([*lines, *(f"    {line}" for line in launch), "    return (int)cudaGetLastError();", "}", ""])


def finish(name: str, product: Product, printing: Printing, split: int) -> list[str]:
    """The kernel that adds up the parts of the depth, in their order, and goes on with the tail."""
    total = product.rows * product.columns * product.batches
    kind = "long" if total * split >= 2**31 else "int"
    body = [f"const {kind} at = ({kind})blockIdx.x * 256 + threadIdx.x;", *([f"if (at >= {total}) return;"] if total % 256 else [])]
    body.append(f"const int column = at % {product.columns}, row = at / {product.columns}{f' % {product.rows}' if product.batches > 1 else ''};")
    body += [f"const int batch = at / {product.rows * product.columns};"] if product.batches > 1 else []
    body += [*printing.columns, *printing.rows, "float value = 0.0f;"]
    body += [f"for (int part = 0; part < {split}; ++part) value += scratch[part * ({kind}){total} + at];", *printing.tail]
    return [f"__global__ void __launch_bounds__(256) {name}_finish({printing.parameters}, const float* __restrict__ scratch) {{",
            *(f"    {line}" for line in body), "}"]  # fmt: skip


def scratch_bytes(work: Work, product: Product) -> int:
    split = split_of(work, product)
    return 4 * split * product.rows * product.columns * product.batches if split > 1 else 0


def describe(work: Work, product: Product) -> str:
    tile, split = tile_of(work, product), split_of(work, product)
    blocks = -(-product.rows // tile.rows) * -(-product.columns // tile.columns) * product.batches * split
    parts = f", the depth in {split} parts" if split > 1 else ""
    return (
        f"{blocks} blocks of {tile.threads} threads, tiles of {tile.rows} x {tile.columns}, depth {product.depth} by {DEPTH} in "
        f"{stages_of(work, product, tile)} stages{parts}; each fp32 product is three TF32 products, infinities give NaN."
    )
