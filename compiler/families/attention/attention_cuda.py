"""The source text of the attention kernel; attention.py explains how it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.families.attention.shared_keys_cuda import joined, unfinished
from compiler.families.epilogue import Tail
from compiler.families.family import NAME, Printed, Work
from compiler.families.pool import launcher, parameters
from compiler.families.product import tensor_cores
from compiler.families.text import indented
from compiler.kernel.expressions import Expressions
from compiler.kernel.functions import CUDA
from compiler.kernel.text import KernelText, Launch, below, beyond, end, known, shift, times
from compiler.kernel.text import stride as step

RESERVED = ("q", "k", "v", "memory", "rows", "batch", "row", "column", "row0", "fetch", "tile", "to", "at", "key", "value", "inside", "first",
            "changed", "limit", "last", "score", "i", "j", "r", "scratch", "share", "half", "high", "again", "total", "part", "begin")  # fmt: skip
WARPS = (1, 2, 4, 8)
LEAST_TILES = 4  # tiles of keys per block if several blocks share the keys of the same queries

Place = tuple[int, int, tuple[tuple[int, int, int], ...]]


@dataclass(frozen=True)
class Heads:
    """Sizes and layouts of attention. `places` holds the row stride, the offset and the (after, size, stride) of the batches for the queries, the
    keys and the values. `between` holds the product that computes the scores and the operators that change them. It is None if the scores are only
    scaled and causally masked."""

    names: tuple[str, ...]
    places: tuple[Place, ...]
    batches: int
    queries: int
    keys: int
    width: int
    value_width: int
    softmax: bool
    scale: float = 1.0
    causal: bool = False
    between: tuple[str, tuple[str, ...]] | None = None

    @property
    def flops(self) -> int:
        return 4 * self.batches * self.queries * self.keys * self.width

    @property
    def tile(self) -> int:
        """Keys per tile; wide heads use fewer keys to avoid register spills."""
        return 64 if self.width <= 64 else 32

    @property
    def tiles(self) -> int:
        return -(-self.keys // self.tile)

    @property
    def stage(self) -> int:
        """Number of floats in one tile of keys plus one tile of values."""
        return 2 * self.tile * (self.width + 4)


SHARED = r"""// d += a * b for a 16 x 8 part of a product over a depth of 8.
__device__ __forceinline__ void accumulate_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Keeps the compiler from cutting these once and for all: twice as many registers would be taken for ever.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void keep_whole(float (&values)[ROWS][COLUMNS]) {
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
        for (int column = 0; column < COLUMNS; ++column) asm volatile("" : "+f"(values[row][column]));
}

// Attention of a warp's 16 queries over tiles of KEYS keys; WIDTH floats a head. Fragments as tensor cores want them: a lane has rows `group` and
// `group + 8`. Sums over a depth of 16 stay in the tensor cores, which cut them off; beyond that they are added up in registers, rounded.
template <int WIDTH, int KEYS> struct Rows {
    static constexpr int PITCH = WIDTH + 4, ACROSS = WIDTH / 8;
    float query[ACROSS][4], score[KEYS / 8][4], sum[ACROSS][4] = {};
    float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};  // of the scores, and of their weights, of each row; total of this lane's columns
    const int group = threadIdx.x % 32 / 4, within = threadIdx.x % 4;

    __device__ __forceinline__ void read_queries(const float* q, int first, int stride, int queries) {
#pragma unroll
        for (int e = 0; e < ACROSS; ++e)
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const int row = first + group + r % 2 * 8;
                query[e][r] = row < queries ? q[(long)row * stride + e * 8 + within + r / 2 * 4] : 0.0f;
            }
    }

    // Three products of parts, the small ones first.
    template <int EIGHTS>
    __device__ __forceinline__ void add(float (&into)[4], const unsigned (&a_high)[EIGHTS][4], const unsigned (&a_low)[EIGHTS][4],
                                        const unsigned (&b_high)[EIGHTS][2], const unsigned (&b_low)[EIGHTS][2]) {
        float part[4] = {};
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            accumulate_tf32(part, a_low[e], b_high[e]);
            accumulate_tf32(part, a_high[e], b_low[e]);
        }
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) accumulate_tf32(part, a_high[e], b_high[e]);
#pragma unroll
        for (int r = 0; r < 4; ++r) into[r] += part[r];
    }

    // Depths first to first + 8 * EIGHTS of all scores.
    template <int EIGHTS> __device__ __forceinline__ void add_keys(const float* keys, int first) {
        unsigned a_high[EIGHTS][4], a_low[EIGHTS][4], b_high[EIGHTS][2], b_low[EIGHTS][2];
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e)
#pragma unroll
            for (int r = 0; r < 4; ++r) cut(query[first / 8 + e][r], a_high[e][r], a_low[e][r]);
#pragma unroll
        for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e)
#pragma unroll
                for (int r = 0; r < 2; ++r) cut(keys[(j * 8 + group) * PITCH + first + e * 8 + within + r * 4], b_high[e][r], b_low[e][r]);
            add<EIGHTS>(score[j], a_high, a_low, b_high, b_low);
        }
    }

    __device__ __forceinline__ void multiply_keys(const float* keys) {
        if (WIDTH > 64) keep_whole(query);
#pragma unroll
        for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
            for (int r = 0; r < 4; ++r) score[j][r] = 0.0f;
#pragma unroll
        for (int first = 0; first + 16 <= WIDTH; first += 16) add_keys<2>(keys, first);
        if (WIDTH % 16) add_keys<1>(keys, WIDTH - 8);
    }

    // Each score with its position.
    template <class Change> __device__ __forceinline__ void change(int row0, int key0, const Change& changed) {
#pragma unroll
        for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
            for (int r = 0; r < 4; ++r) score[j][r] = changed(score[j][r], row0 + group + r / 2 * 8, key0 + j * 8 + within * 2 + r % 2);
    }

    // Scores become weights relative to the largest so far; what was summed up before is rescaled.
    __device__ __forceinline__ void weigh() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float high = largest[half];
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j) high = fmaxf(high, fmaxf(score[j][half * 2], score[j][half * 2 + 1]));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
            const float base = high == -INFINITY ? 0.0f : high, again = expf(largest[half] - base);
            largest[half] = high;
            total[half] *= again;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
                for (int r = half * 2; r < half * 2 + 2; ++r) total[half] += score[j][r] = expf(score[j][r] - base);
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) sum[j][half * 2] *= again, sum[j][half * 2 + 1] *= again;
        }
    }

    // Weights times values. A lane's columns of a score stand for depths `within` and `within + 4`, and the rows of the values are taken likewise.
    __device__ __forceinline__ void multiply_values(const float* values) {
#pragma unroll
        for (int first = 0; first < KEYS / 8; first += 2) {
            unsigned a_high[2][4], a_low[2][4], b_high[2][2], b_low[2][2];
#pragma unroll
            for (int e = 0; e < 2; ++e)
#pragma unroll
                for (int r = 0; r < 4; ++r) cut(score[first + e][r % 2 * 2 + r / 2], a_high[e][r], a_low[e][r]);
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) {
#pragma unroll
                for (int e = 0; e < 2; ++e)
#pragma unroll
                    for (int r = 0; r < 2; ++r)
                        cut(values[((first + e) * 8 + within * 2 + r) * PITCH + j * 8 + group], b_high[e][r], b_low[e][r]);
                add<2>(sum[j], a_high, a_low, b_high, b_low);
            }
        }
    }

    __device__ __forceinline__ void add_totals() {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
            total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
        }
    }

    __device__ __forceinline__ void divide() {
        add_totals();
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) sum[j][half * 2] /= total[half], sum[j][half * 2 + 1] /= total[half];
    }
};
"""


def warps_of(work: Work) -> int:
    heads: Heads = work.detail
    few = 4 if heads.queries > 16 else 1  # a warp has 16 queries
    return work.knob("warps", 8 if heads.queries >= 1024 else few)


def resident_of(work: Work) -> int:
    """Returns the number of blocks per multiprocessor."""
    heads: Heads = work.detail
    return max(1, min(8 // warps_of(work), tensor_cores.SHARED_BYTES // (8 * heads.stage + 1024)))


def shares_of(work: Work) -> int:
    """Returns the number of blocks among which the keys of the same queries are divided. There is more than one if the queries alone would leave
    multiprocessors without work, as in decoding (T. Dao et al., "Flash-Decoding for long-context inference", 2023)."""
    heads: Heads = work.detail
    if not heads.softmax or heads.causal:
        return 1
    blocks = -(-heads.queries // (warps_of(work) * 16)) * heads.batches
    wanted = max(1, min(work.setting.figures.units * resident_of(work) // blocks, heads.tiles // LEAST_TILES))
    return -(-heads.tiles // -(-heads.tiles // wanted))  # without shares that would be empty


def printed(work: Work, score: Tail | None) -> Printed:
    heads, warps = work.detail, warps_of(work)
    rows = warps * 16
    blocks = -(-heads.queries // rows)
    arguments = work.arguments(*zip(("q", "k", "v"), heads.names, strict=True))
    lines, changed = plain_change(heads) if score is None else change_of(score, heads, {argument.name for argument in arguments})
    change = [*lines, f"return {changed};"] if heads.softmax else [*lines, f"const float score = {changed};", "return score < 0.0f ? 0.0f : score;"]
    if score is not None:
        arguments = [*arguments[:3], *(a for a in score.kernel.arguments.values() if a.read and a.name != score.result), *arguments[3:]]
    shared, shares = 8 * heads.stage, shares_of(work)
    each = -(-heads.tiles // shares)
    taken = parameters(arguments, "__restrict__")
    scratch = ", float* __restrict__ scratch" if shares > 1 else ""
    pitch, groups = heads.width + 4, heads.width // 4
    (q_stride, _, _), (k_stride, _, _), (v_stride, _, _) = heads.places
    tail = work.tail.statements(CUDA, ["batch", "row", "column"] if heads.batches > 1 else ["0", "row", "column"], "value")
    short = heads.keys % heads.tile
    begin, until = ("begin", "last") if shares > 1 else ("0", "limit" if heads.causal else "")

    def wide(stride: int) -> str:
        return "(long)" if heads.keys * stride >= 2**31 else ""

    inside = below(f"{times('tile', heads.tile)} + key", heads.keys) if short else "true"
    sources = [f"{name} + ({times(f'{wide(stride)}tile', heads.tile)} + key) * {step(stride)} + at"
               for name, stride in (("k", k_stride), ("v", v_stride))]  # fmt: skip
    sources = [f"inside ? {source} : {source[0]}" if short else source for source in sources]
    body = [
        "extern __shared__ __align__(16) float memory[];  // two tiles of keys and two of values",
        f"Rows<{heads.width}, {heads.tile}> rows;",
        *(["const int batch = blockIdx.y;"] if heads.batches > 1 else []),
        f"const int row0 = {times('blockIdx.x', rows)} + threadIdx.x / 32 * 16;",
        *(line for name, place in zip("qkv", heads.places, strict=True) for line in moved(name, place)),
        f"rows.read_queries(q, row0, {q_stride}, {heads.queries});",
        "const auto fetch = [&](int tile) {",
        f"    float* const to = memory + tile % 2 * {step(heads.stage)};",
        "#pragma unroll" + (" 4" if warps == 1 else ""),
        f"    for (int i = threadIdx.x; i < {heads.tile * groups}; i += {32 * warps}) {{",
        f"        const int key = i / {groups}, at = i % {groups} * 4;",
        *([f"        const bool inside = {inside};"] if short else []),
        f"        copy_async16(to + {times('key', pitch)} + at, {sources[0]}, {'inside' if short else 'true'});",
        f"        copy_async16(to + {shift(heads.tile * pitch)} + {times('key', pitch)} + at, {sources[1]}, {'inside' if short else 'true'});",
        "    }",
        "};",
        "const auto changed = [&](float value, int row, int column) -> float {",
        *([f"    if ({beyond('column', heads.keys)}) return {'-INFINITY' if heads.softmax else '0.0f'};"] if short else []),
        *([f"    if ({beyond('row', heads.queries)}) return 0.0f;"] if heads.queries % rows else []),
        *(f"    {line}" for line in change),
        "};",
        *limit(heads, rows),
        *([f"const int begin = blockIdx.z * {each}, last = begin + {each} < {heads.tiles} ? begin + {each} : {heads.tiles};"] if shares > 1 else []),
        f"fetch({begin});",
        "copies_commit();",
        f"for (int tile = {begin}; tile < {until or heads.tiles}; ++tile) {{",
        f"    if (tile + 1 < {until or end(heads.tiles)}) fetch(tile + 1);",
        "    copies_commit();",
        "    copies_wait<1>();",
        "    __syncthreads();",
        f"    rows.multiply_keys(memory + tile % 2 * {step(heads.stage)});",
        f"    rows.change(row0, {times('tile', heads.tile)}, changed);",
        *(["    rows.weigh();"] if heads.softmax else []),
        f"    rows.multiply_values(memory + tile % 2 * {step(heads.stage)} + {shift(heads.tile * pitch)});",
        "    __syncthreads();  // before the tile after the next takes its place",
        "}",
        *(unfinished(heads) if shares > 1 else finished(heads, rows, tail)),
    ]
    kernel = KernelText.of(NAME, "kernel", f"__launch_bounds__({32 * warps}, {resident_of(work)}) ", f"{taken}{scratch}", indented(body))
    names = ", ".join(argument.name for argument in arguments)
    grid = f"dim3({blocks}, {heads.batches}{f', {shares}' if shares > 1 else ''})"
    launches = [Launch(kernel.name, grid, 32 * warps, f"{names}{', scratch' if shares > 1 else ''}", shared, asks=True)]
    kernels = [kernel]
    if shares > 1:
        results = heads.batches * heads.queries * heads.width
        body = joined(heads, shares, tail)
        kernels.append(KernelText.of(NAME, "finish", "__launch_bounds__(256) ", f"{taken}, const float* __restrict__ scratch", indented(body)))
        launches.append(Launch(kernels[1].name, str(-(-results // 256)), 256, f"{names}, scratch"))
    comment = [
        f"{heads.batches} heads of {heads.queries} queries and {heads.keys} keys, {heads.width} wide"
        + (", causal" if heads.causal else "") + f"; {blocks * heads.batches * shares} blocks of {32 * warps} threads, {rows} queries a block, "
        f"keys by {heads.tile}{f', in {shares} shares' if shares > 1 else ''}. Each fp32 product is three TF32 products; infinities give NaN.",
    ]  # fmt: skip
    floats = shares * heads.batches * heads.queries * (heads.width + 2) if shares > 1 else 0
    start = launcher(f"{taken}{scratch}", launches)
    return Printed([*kernels, start], arguments, shared=[tensor_cores.COPIES, SHARED], scratch=4 * floats, comment=comment)


def finished(heads: Heads, rows: int, tail: list[str]) -> list[str]:
    """Returns the lines of code that store the results of a block."""
    return [
        *(["rows.divide();"] if heads.softmax else []),
        "#pragma unroll",
        f"for (int j = 0; j < {heads.width // 8}; ++j)",
        "#pragma unroll",
        "    for (int r = 0; r < 4; ++r) {",
        "        const int row = row0 + rows.group + r / 2 * 8, column = j * 8 + rows.within * 2 + r % 2;",
        *([f"        if ({beyond('row', heads.queries)}) continue;"] if heads.queries % rows else []),
        "        const float value = rows.sum[j][r];",
        *(f"        {line}" for line in tail),
        "    }",
    ]


def moved(name: str, place: Place) -> list[str]:
    """Returns the lines of code that advance a pointer to its batch."""
    _, offset, batch = place
    parts = [f"(long)(batch{f' / {known(after)}' if after > 1 else ''} % {known(size)}) * {step(stride)}" for after, size, stride in batch]
    parts += [shift(offset) if parts else str(offset)] if offset else []
    return [f"{name} += {' + '.join(parts)};"] if parts else []


def limit(heads: Heads, rows: int) -> list[str]:
    """Declares `limit`, the number of key tiles to process. Under a causal mask, the tiles after a block's last query are skipped because they are
    masked."""
    if not heads.causal:
        return []
    behind = times("(blockIdx.x + 1)", rows)
    return [f"const int last = {below(behind, heads.keys)} ? {behind} : {end(heads.keys)};",
            f"const int limit = (last + {shift(heads.tile - 1)}) / {heads.tile};"]  # fmt: skip


def plain_change(heads: Heads) -> tuple[list[str], str]:
    scaled = f"value * {heads.scale!r}f" if heads.scale != 1 else "value"
    return [], f"column > row ? -INFINITY : {scaled}" if heads.causal else scaled


def change_of(score: Tail, heads: Heads, taken: set[str]) -> tuple[list[str], str]:
    """Returns the statements that change `value` and the expression for the result, with pointers renamed to avoid clashes."""
    kernel: Any = score.kernel
    renames = {}
    for argument in kernel.arguments.values():
        if argument.read and argument.name != score.result and argument.name in taken:
            renames[argument.name] = argument.name = f"{argument.name}_score"
    for access in kernel.accesses():
        access.argument = renames.get(access.argument, access.argument)
    kernel.arguments = {argument.name: argument for argument in kernel.arguments.values()}
    printer = Expressions(kernel, CUDA, score.variables(["batch" if heads.batches > 1 else "0", "row", "column"]), {score.load: "value"})
    lines = score.declare(printer)
    return lines, printer.text(kernel.stores[-1].op)
