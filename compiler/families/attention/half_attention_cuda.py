"""The source text of the attention kernel for 16-bit operands; attention.py describes the computation, half_cuda.py the products.

Scores and weights stay in fp32 registers. The weights are rounded to 16 bits only for the second product. The softmax denominator is the sum of the
rounded weights; the tensor cores compute it through a column of ones that is appended to the values. For narrow heads, the exponentials are the
bottleneck (16 per cycle per multiprocessor). The kernel therefore executes no more than one multiply-add, one exponential, one comparison and half a
rounding instruction for each element.
"""

from __future__ import annotations

import math

from compiler.families.attention import attention_cuda
from compiler.families.attention.attention_cuda import Heads, change_of, moved
from compiler.families.epilogue import Tail
from compiler.families.family import NAME, Printed, Work
from compiler.families.pool import launcher, parameters
from compiler.families.product import half_cuda
from compiler.families.product.half_kernel import Printing, flush, sums, tail_lines, widest
from compiler.families.product.tensor_cores import SHARED_BYTES
from compiler.families.text import indented
from compiler.graph.ir import FLOATS, SIZES
from compiler.kernel.expressions import C_TYPES, Expressions, address, widened
from compiler.kernel.functions import CUDA
from compiler.kernel.text import KernelText, Launch, below, beyond, end, shift, stride, times

RESERVED = (*attention_cuda.RESERVED, "held", "mine", "values", "n")  # names that the attention kernels of all types use
REGISTERS = 65536  # per multiprocessor
OWN_REGISTERS = 52  # registers per thread, in addition to those for scores, sums and queries
MOST_REGISTERS = 224  # registers per thread; beyond this number, the compiler would spill
MOST_THREADS = 512  # limit per multiprocessor that the kernel requests; with more threads, each would have too few registers
EXPONENTIAL = 16  # fp32 operations in the time that one exponential takes (8 multiply-adds)

ROWS = r"""// 2 to the power of x within 2 ulp, zero where that is below the smallest normal number.
__device__ __forceinline__ float exp2_near(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Two numbers rounded to 16 bits, the first one in the lower half.
__device__ __forceinline__ unsigned pack_halves(float low, float high, TYPE) {
    unsigned pair;
    asm("cvt.rn.PTXx2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// THREADS threads copy rows of WIDTH elements that are STRIDE apart; beyond `left` there are zeros. Between rows in shared memory there are 16 bytes,
// so that the eight that tensor cores read at once lie in different banks.
template <int WIDTH, int ROWS, int THREADS, long long STRIDE, bool WHOLE, class T>
__device__ __forceinline__ void copy_rows(T* to, const T* from, int left) {
    constexpr int ACROSS = WIDTH / 8;
#pragma unroll
    for (int turn = 0; turn < (ROWS * ACROSS + THREADS - 1) / THREADS; ++turn) {
        const int i = threadIdx.x + turn * THREADS;
        if (ROWS * ACROSS % THREADS && i >= ROWS * ACROSS) return;
        const int row = i / ACROSS, at = i % ACROSS * 8;
        const bool inside = WHOLE || row < left;
        copy_bytes<16>(to + row * (WIDTH + 8) + at, inside ? from + row * STRIDE + at : from, inside ? 16 : 0);
    }
}

// What becomes of scores before the second product: softmax of them times a number, softmax of what they were changed to, nothing more.
enum Weights { OF_SCALED, OF_CHANGED, AS_CHANGED };

// Attention of a warp's 16 * DOWN queries over tiles of KEYS keys, heads WIDTH wide. A lane has rows `group` and `group + 8` of each 16.
template <class T, int WIDTH, int KEYS, int DOWN, Weights WEIGHTS> struct HalfRows {
    static constexpr int PITCH = WIDTH + 8, ACROSS = WIDTH / 8;
    unsigned query[DOWN][WIDTH / 16][4];
    float score[DOWN][KEYS / 8][4], sum[DOWN][ACROSS][4] = {}, total[DOWN][4] = {};
    float base[DOWN][2];  // of the weights of a row: they are relative to this score
    const int lane = threadIdx.x % 32, group = lane / 4, within = lane % 4;

    __device__ __forceinline__ void read_queries(const T* q, int first, int stride, int queries) {
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            base[i][0] = base[i][1] = -INFINITY;
#pragma unroll
            for (int e = 0; e < WIDTH / 16; ++e)
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const int row = first + i * 16 + group + r % 2 * 8, column = e * 16 + within * 2 + r / 2 * 8;
                    query[i][e][r] = row < queries ? *(const unsigned*)(q + (long long)row * stride + column) : 0u;
                }
        }
    }

    __device__ __forceinline__ void multiply_keys(const T* keys) {
#pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {
#pragma unroll
            for (int i = 0; i < DOWN; ++i)
#pragma unroll
                for (int r = 0; r < 4; ++r) score[i][j * 2][r] = score[i][j * 2 + 1][r] = 0.0f;
#pragma unroll
            for (int e = 0; e < WIDTH / 16; ++e) {
                unsigned part[4];
                load_matrices<false>(part, (const char*)(keys + (j * 16 + lane / 16 * 8 + lane % 8) * PITCH + e * 16 + lane / 8 % 2 * 8));
#pragma unroll
                for (int i = 0; i < DOWN; ++i) {
                    multiply_halves(score[i][j * 2], query[i][e], part[0], part[1], T());
                    multiply_halves(score[i][j * 2 + 1], query[i][e], part[2], part[3], T());
                }
            }
        }
    }

    // Scores of two neighbouring keys with their position.
    template <class Change> __device__ __forceinline__ void change(int row0, int key0, const Change& changed) {
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    changed(score[i][j] + half * 2, row0 + i * 16 + half * 8 + group, key0 + j * 8 + within * 2);
    }

    // Where scores rise far above the base, they become the base, and what was summed up is rescaled. Weights may grow to 2 to the power of 8 before:
    // that costs no accuracy, and after a few tiles nothing is rescaled any more.
    __device__ __forceinline__ void follow(float scale) {
        float high[DOWN][2];
        bool rises = false;
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float most = fmaxf(score[i][0][half * 2], score[i][0][half * 2 + 1]);
#pragma unroll
                for (int j = 1; j < KEYS / 8; ++j) most = fmaxf(most, fmaxf(score[i][j][half * 2], score[i][j][half * 2 + 1]));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                high[i][half] = most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                rises |= most > base[i][half] + 8.0f / scale;
            }
        if (!__any_sync(0xffffffffu, rises)) return;
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float next = fmaxf(base[i][half], high[i][half]);
                const float again = exp2_near((base[i][half] - (next == -INFINITY ? 0.0f : next)) * scale);
                base[i][half] = next;
                total[i][half * 2] *= again;
#pragma unroll
                for (int j = 0; j < ACROSS; ++j) sum[i][j][half * 2] *= again, sum[i][j][half * 2 + 1] *= again;
            }
    }

    // Weights times values. What a lane has of 16 scores is what it has to have of an operand.
    __device__ __forceinline__ void multiply_values(const T* values, float scale) {
        const unsigned ones = pack_halves(1.0f, 1.0f, T());
        float from[DOWN][2];
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                from[i][half] = base[i][half] == -INFINITY ? 0.0f : WEIGHTS == OF_SCALED ? base[i][half] * scale : base[i][half];
#pragma unroll
        for (int c = 0; c < KEYS / 16; ++c) {
            unsigned weight[DOWN][4];
#pragma unroll
            for (int i = 0; i < DOWN; ++i) {
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    float pair[2];
#pragma unroll
                    for (int n = 0; n < 2; ++n) {
                        const float own = score[i][c * 2 + r / 2][r % 2 * 2 + n];
                        pair[n] = WEIGHTS == AS_CHANGED  ? own
                                  : WEIGHTS == OF_SCALED ? exp2_near(fmaf(own, scale, -from[i][r % 2]))
                                                         : exp2_near((own - from[i][r % 2]) * scale);
                    }
                    weight[i][r] = pack_halves(pair[0], pair[1], T());
                }
                if (WEIGHTS != AS_CHANGED) multiply_halves(total[i], weight[i], ones, ones, T());
            }
#pragma unroll
            for (int j = 0; j < ACROSS / 2; ++j) {
                unsigned part[4];
                load_matrices<true>(part, (const char*)(values + (c * 16 + lane % 16) * PITCH + j * 16 + lane / 16 * 8));
#pragma unroll
                for (int i = 0; i < DOWN; ++i) {
                    multiply_halves(sum[i][j * 2], weight[i], part[0], part[1], T());
                    multiply_halves(sum[i][j * 2 + 1], weight[i], part[2], part[3], T());
                }
            }
        }
    }

    // The finished rows in shared memory, PITCH floats each.
    __device__ __forceinline__ void put(float* to) {
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float share = WEIGHTS == AS_CHANGED ? 1.0f : 1.0f / total[i][half * 2];
#pragma unroll
                for (int j = 0; j < ACROSS; ++j)
                    *(float2*)(to + (i * 16 + half * 8 + group) * PITCH + j * 8 + within * 2) =
                        make_float2(sum[i][j][half * 2] * share, sum[i][j][half * 2 + 1] * share);
            }
        __syncwarp();
    }
};
"""


def registers(heads: Heads, down: int, keys: int) -> int:
    """Estimates the registers per thread, including those for the scores, sums and queries of `down` times 16 rows."""
    return down * (keys // 2 + heads.width // 2 + heads.width // 4) + OWN_REGISTERS


def shapes(heads: Heads) -> list[tuple[int, int]]:
    """Returns the combinations (groups of 16 queries per warp, keys per tile) that fit in the registers."""
    return [(down, keys) for down in (1, 2) for keys in (32, 64) if registers(heads, down, keys) <= MOST_REGISTERS]


def shape_of(work: Work) -> tuple[int, int, int]:
    """Returns the warps per block, the groups of 16 queries per warp and the keys per tile. By default, a warp handles two groups, so that each
    loaded key and value is used twice, provided that every multiprocessor still gets a block."""
    heads: Heads = work.detail
    offered = shapes(heads)
    many = heads.batches * heads.queries >= 4 * 32 * work.setting.figures.units
    down = work.knob("strip", 2 if many and (2, 64) in offered else 1)
    down = down if any(one == down for one, _ in offered) else 1
    keys = work.knob("tile", 64)
    return work.knob("warps", 4), down, max(offer for one, offer in offered if one == down and (offer <= keys or offer == 32))


def knobs_of(work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
    warps, down, keys = shape_of(work)
    offered = shapes(work.detail)
    return {
        "warps": ((2, 4, 8), warps),
        "strip": (tuple(sorted({one for one, _ in offered})), down),
        "tile": (tuple(offer for one, offer in offered if one == down), keys),
    }


def least_ms(work: Work) -> float:
    """Returns the time that the exponentials take. There is one per score, and their rate is a fixed fraction of the fp32 rate."""
    heads: Heads = work.detail
    return heads.batches * heads.queries * heads.keys * EXPONENTIAL * heads.softmax / work.setting.figures.fp32_gflops / 1e6


def scaling(score: Tail) -> float | None:
    """Returns the factor by which the scores are multiplied, or None if it is not positive or the scores are also changed in other ways."""
    ops = score.kernel.ops
    found = {score.load: 1.0}
    for op in ops.values():
        left, right = (*op.args, "", "")[:2] if op.kind in ("mul", "div") else ("", "")
        if op.kind == "mul" and right in found:
            left, right = right, left
        if left in found and right in ops and ops[right].kind == "const":
            number = float(ops[right].attr)
            found[op.name] = found[left] * number if op.kind == "mul" else found[left] / number if number else math.inf
    factor = found.get(score.kernel.stores[-1].op)
    return factor if factor is not None and 0 < factor < math.inf else None


def printed(work: Work, score: Tail) -> Printed:
    heads: Heads = work.detail
    warps, down, keys = shape_of(work)
    dtype = work.network.spec(work.match.value).dtype
    kind, ptx = half_cuda.TYPES[dtype]
    rows, threads, pitch = 16 * down, 32 * warps, heads.width + 8
    blocks, tiles = -(-heads.queries // (rows * warps)), -(-heads.keys // keys)
    factor = scaling(score) if heads.softmax else None
    arguments = work.arguments(*zip(("q", "k", "v"), heads.names, strict=True))
    lines, changed = change_of(score, heads, {argument.name for argument in arguments}) if factor is None else ([], "value")
    arguments = [*arguments[:3], *(a for a in score.kernel.arguments.values() if a.read and a.name != score.result), *arguments[3:]]
    scale = f"{(factor or 1.0) * math.log2(math.e)!r}f"
    weights = "AS_CHANGED" if not heads.softmax else "OF_CHANGED" if factor is None else "OF_SCALED"
    stage = 2 * keys * pitch  # number of elements in one tile of keys plus one tile of values
    shared = max(4 * stage, 4 * rows * warps * pitch)
    resident = max(1, min(MOST_THREADS // threads, REGISTERS // (threads * registers(heads, down, keys)), SHARED_BYTES // (shared + 1024)))
    taken, names = parameters(arguments, "__restrict__"), ", ".join(a.name for a in arguments)
    whole = heads.keys % keys == 0
    changes = factor is None or not whole  # the weights past the last key are zero
    last = f"if (tile == {tiles - 1}) " if factor is not None else ""
    (q_stride, _, _), (k_stride, _, _), (v_stride, _, _) = heads.places
    copies = [f"copy_rows<{heads.width}, {keys}, {threads}, {each}, {str(whole).lower()}>(to{place}, {name} + tile * {keys * each}LL, "
              f"{heads.keys} - {times('tile', keys)});"
              for name, each, place in (("k", k_stride, ""), ("v", v_stride, f" + {shift(keys * pitch)}"))]  # fmt: skip
    body = [
        "extern __shared__ __align__(16) char held[];  // two tiles of keys and two of values, at last the results",
        f"{kind}* const memory = ({kind}*)held;",
        f"HalfRows<{kind}, {heads.width}, {keys}, {down}, {weights}> rows;",
        *(["const int batch = blockIdx.y;"] if heads.batches > 1 else []),
        f"const int row0 = ({times('blockIdx.x', warps)} + threadIdx.x / 32) * {stride(rows)};",
        *(line for name, place in zip("qkv", heads.places, strict=True) for line in moved(name, place)),
        "const auto fetch = [&](int tile) {",
        f"    {kind}* const to = memory + tile % 2 * {stride(stage)};",
        *(f"    {line}" for line in copies),
        "    stage_commit();",
        "};",
        *(change_lines(score, heads, rows * warps, whole, lines, changed) if changes else []),
        "fetch(0);",
        f"rows.read_queries(q, row0, {q_stride}, {heads.queries});",
        f"for (int tile = 0; tile < {tiles}; ++tile) {{",
        "    stage_copied<0>();",
        "    __syncthreads();  // the tile is there, and everyone has left the one before",
        f"    if (tile + 1 < {end(tiles)}) fetch(tile + 1);",
        f"    const {kind}* const at = memory + tile % 2 * {stride(stage)};",
        "    rows.multiply_keys(at);",
        *([f"    {last}rows.change(row0, {times('tile', keys)}, changed);"] if changes else []),
        *([f"    rows.follow({scale});"] if heads.softmax else []),
        f"    rows.multiply_values(at + {shift(keys * pitch)}, {scale});",
        "}",
        "__syncthreads();  // no tile is read any more",
        f"float* const mine = (float*)held + threadIdx.x / 32 * {stride(rows * pitch)};",
        "rows.put(mine);",
        *finished(work, heads, dtype, taken, names, rows, warps),
    ]
    kernel = KernelText.of(NAME, "kernel", f"__launch_bounds__({threads}, {resident}) ", taken, indented([flush(line) for line in body]))
    launch = Launch(kernel.name, f"dim3({blocks}, {heads.batches})", threads, names, shared, asks=True)
    comment = [
        f"{heads.batches} heads of {heads.queries} queries and {heads.keys} keys, {heads.width} wide; {blocks * heads.batches} blocks of {threads} "
        f"threads, {rows * warps} queries a block, keys by {keys}. Products of {kind}, sums in fp32; infinities give NaN.",
    ]  # fmt: skip
    rows_text = ROWS.replace("TYPE", kind).replace("PTX", ptx)
    return Printed([kernel, launcher(taken, [launch])], arguments, shared=[half_cuda.COPIES, half_cuda.warp_tile(dtype), rows_text], comment=comment)


def change_lines(score: Tail, heads: Heads, block: int, whole: bool, lines: list[str], changed: str) -> list[str]:
    """Returns the lines of code that change the scores of one query and two neighbouring keys, beginning with the vector loads that serve both
    keys."""
    none = "-INFINITY" if heads.softmax else "0.0f"
    head, known = pairs(score, heads, whole)
    if known:
        printer = Expressions(score.kernel, CUDA, score.variables(texts_of(heads)), {score.load: "value", **known})
        lines, changed = score.declare(printer), printer.text(score.kernel.stores[-1].op)
    end = [f"values[n] = {changed};"] if heads.softmax else [f"const float score = {changed};", "values[n] = score < 0.0f ? 0.0f : score;"]
    outside = [] if whole else [f"if ({beyond('column', heads.keys)}) {{", f"    values[n] = {none};", "    continue;", "}"]
    return [
        "const auto changed = [&](float* values, int row, int first) {",
        *([f"    if ({beyond('row', heads.queries)}) return;"] if heads.queries % block else []),
        *(f"    {line}" for line in head),
        "#pragma unroll",
        "    for (int n = 0; n < 2; ++n) {",
        *(f"        {line}" for line in ["const int column = first + n;", *outside, "const float value = values[n];", *lines, *end]),
        "    }",
        "};",
    ]


def pairs(score: Tail, heads: Heads, whole: bool) -> tuple[list[str], dict[str, str]]:
    """Returns declarations that load the values of two neighbouring keys with one instruction, and the expression that each such load becomes for one
    key."""
    kernel, columns = score.kernel, score.groups[2]
    lines, known = [], {}
    for op in kernel.ops.values():
        if op.kind != "load" or op.name == score.load or heads.keys % 2 or len(columns) != 1:
            continue
        dtype, strides = kernel.arguments[op.access.argument].dtype, op.access.strides
        rest = [op.access.offset, *(stride for axis, stride in enumerate(strides) if axis != columns[0])]
        if dtype not in FLOATS or strides[columns[0]] != 1 or any(n % 2 for n in rest):
            continue
        word = "float2" if dtype == "float32" else "unsigned"
        at = address(kernel, op.access, score.variables([*texts_of(heads)[:2], "first"]))
        lines.append(f"alignas({2 * SIZES[dtype]}) {C_TYPES[dtype]} {op.name}_pair[2];")
        inside = "" if whole else f"if ({below('first', heads.keys)}) "
        lines.append(f"{inside}*({word}*){op.name}_pair = *(const {word}*)({op.access.argument} + {at});")
        known[op.name] = widened(f"{op.name}_pair[n]", dtype)
    return lines, known


def texts_of(heads: Heads) -> list[str]:
    """Returns the index variables of the scores and the results."""
    return ["batch" if heads.batches > 1 else "0", "row", "column"]


def finished(work: Work, heads: Heads, dtype: str, taken: str, names: str, rows: int, warps: int) -> list[str]:
    """Returns a warp's loop over its finished rows, in which a lane handles as many neighbouring columns as it can store with one instruction."""
    texts = texts_of(heads)
    width = widest(work.tail, 2, heads.width)
    printing = Printing(
        dtype=dtype, parameters=taken, names=names, setup=[], loads=[], columns=[], rows=[], texts=texts, along=2, width=width,
    )  # fmt: skip
    across = heads.width // width
    body = [
        f"const int row = row0 + i / {across}, column = i % {across}{f' * {stride(width)}' if width > 1 else ''};",
        *([f"if ({beyond('row', heads.queries)}) return;"] if heads.queries % (rows * warps) else []),
        *sums(width, f"mine + {times('(row - row0)', heads.width + 8)} + column"),
        *tail_lines(work.tail, printing, "value"),
    ]
    return [f"for (int i = threadIdx.x % 32; i < {rows * across}; i += 32) {{", *(f"    {line}" for line in body), "}"]
