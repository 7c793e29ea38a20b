"""The version of the tensor_cores.py tile for compute capability 9.0, on which warpgroups of 128 threads multiply asynchronously (`wgmma`).

The arithmetic is the same: each operand is split into two TF32 numbers, three products are computed, and the sums leave the tensor core after every
stage. Half of a block's warps load the operands and split `b`. They store it in shared memory in the layout that the hardware expects: for every four
depth elements, the columns are stored one after another, 16 bytes each. The other warps form two warpgroups, each of which multiplies 64 rows by 128
columns with its part of `a` in registers. While one warpgroup adds up its sums, the other continues to multiply. On an H200, large products run at
1.8 times the speed of fp32 cuBLAS, with a fifth of its error. A 64 x 256 tile has room for two stages and reloads `b` as soon as the previous stage
is split, which is up to 20 % faster than starting the copies when the data is needed. With the four stages of a 128 x 128 tile, this early reload was
3 to 11 % slower than waiting for the products (`bench/results/products-at-once-h200.json`).
"""

from __future__ import annotations

ROWS, COLUMNS = 64, 128  # per warpgroup
LOADERS = 256  # threads that load the operands
CUT_FLOATS = 4 * 32  # floats of shared memory per column, for the high and low parts of two stages of `b`
STAGES = 4
REGISTERS = 56, 200  # per loading thread and per multiplying thread; together these are all registers of a multiprocessor
ARCHITECTURE = (9, 0)
# nvcc flags. Warpgroup instructions exist only in sm_90a code, which such a GPU prefers to plain sm_90 code.
FLAGS = ("-gencode=arch=compute_90a,code=sm_90a",)


def places_of_a(stages: int) -> int:
    """Returns the number of stages of `a` that `GroupTile` keeps in shared memory."""
    return 3 if stages == 2 else stages


def _places(first: int, count: int) -> str:
    return ", ".join(f"%{first + at}" for at in range(count))


GUARD = """// Only code for sm_90a has these instructions; nvcc also translates for plain compute_90, which is never loaded where sm_90a is there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GROUP_ASM(...) asm volatile(__VA_ARGS__)
#else
#define GROUP_ASM(...) __trap()
#endif
// Of a product: which `multiply_group` it is. Being a type of its own, it also finds those that stand below the tile that calls them.
template <int COUNT> struct Columns {};
"""


def sums_of(columns: int) -> tuple[str, str]:
    """Prints the places of a thread's sums of 64 rows by `columns` columns in an instruction, and the operands that stand for them."""
    sums = columns // 2
    registers = [", ".join(f'"+f"(sum[{at}])' for at in range(first, min(first + 8, sums))) for first in range(0, sums, 8)]
    listed = ",\n          ".join(registers)
    numbers = [f'"{_places(first, min(16, sums - first))}, "' for first in range(0, sums, 16)]
    numbers[0], numbers[-1] = '"{' + numbers[0][1:], numbers[-1][:-3] + '}, "'
    if len(numbers) == 1:
        numbers = ['"{' + _places(0, sums) + '}, "']
    return "\n        ".join(numbers), listed


def multiplication(columns: int) -> str:
    """Prints an asynchronous product of 64 rows by `columns` columns (a multiple of 8) over a depth of 8."""
    sums = columns // 2
    given, listed = sums_of(columns)
    return f"""// sum = a * b, or sum += a * b, for 64 rows by {columns} columns over a depth of 8, by a warpgroup. `b` lies in shared memory: 8
// columns of 16 bytes follow each other, the next 8 are EIGHT columns on, the next four elements of depth N columns.
template <int N, int EIGHT = 8>
__device__ __forceinline__ void multiply_group(Columns<{columns}>, float (&sum)[{sums}], const unsigned (&a)[4], const float* b, bool add) {{
    const unsigned long long at = (unsigned)__cvta_generic_to_shared(b);
    const unsigned long long place = (at & 0x3ffff) >> 4 | N * 16ull >> 4 << 16 | EIGHT * 16ull >> 4 << 32;
    GROUP_ASM(
        "{{ .reg .pred add; setp.ne.b32 add, %{sums + 5}, 0; wgmma.mma_async.sync.aligned.m64n{columns}k8.f32.tf32.tf32 "
        {given}
        "{{{_places(sums, 4)}}}, %{sums + 4}, add, 1, 1; }}"
        : {listed}
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(place), "r"((int)add));
}}
"""


# The device functions that every warpgroup product needs. Models that cannot compile see this text too, because the layout is hard to guess.
PRIMITIVES = (
    GUARD
    + multiplication(COLUMNS)
    + r"""// What the registers and the shared memory of products hold is there before they start.
__device__ __forceinline__ void group_begin() {
    GROUP_ASM("wgmma.fence.sync.aligned;" :: : "memory");
}
__device__ __forceinline__ void group_commit() {
    GROUP_ASM("wgmma.commit_group.sync.aligned;" :: : "memory");
}
template <int COUNT> __device__ __forceinline__ void group_wait(float (&sum)[COUNT]) {
    GROUP_ASM("wgmma.wait_group.sync.aligned 0;" :: : "memory");
#pragma unroll
    for (int at = 0; at < COUNT; ++at) asm volatile("" : "+f"(sum[at]));  // so that nothing is read of it before
}
__device__ __forceinline__ void shared_memory_for_tensor_cores() {
    GROUP_ASM("fence.proxy.async.shared::cta;" :: : "memory");
}

// Barriers of a part of the block: some threads arrive and go on, others wait for them.
__device__ __forceinline__ void barrier_wait(int which, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(int which, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(which), "r"(threads) : "memory");
}
// Registers that one half of the block leaves to the other.
template <int COUNT> __device__ __forceinline__ void registers_give() {
    GROUP_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void registers_take() {
    GROUP_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
"""
)

SHARED = (
    PRIMITIVES
    + r"""
// A block's tile of a product, M rows by N columns: the first 256 threads `bring` the operands and cut `b`, the others `multiply`, a warpgroup 64 by
// 128. Sums over a stage stay in the tensor cores.
template <int M, int N, int STAGES, bool A_DEPTH_INNER, bool B_DEPTH_INNER> struct GroupTile {
    static constexpr int DEPTH = 32, A_PITCH = A_DEPTH_INNER ? DEPTH + 4 : M + 8, B_PITCH = B_DEPTH_INNER ? DEPTH + 4 : N + 8;
    static constexpr int A_FLOATS = A_PITCH * (A_DEPTH_INNER ? M : DEPTH), B_FLOATS = B_PITCH * (B_DEPTH_INNER ? N : DEPTH);
    static constexpr int LOADERS = 256, MULTIPLIERS = M / 64 * (N / 128) * 128, THREADS = LOADERS + MULTIPLIERS;
    static constexpr int PITCH = N + 8, CUT = N * DEPTH;  // of `b` cut: high, then low
    static constexpr int LOADED = 1, DONE = 2, TAKEN = 3, FILLED = 4, EMPTIED = 6;  // barriers; of the last two one for each half of what is cut
    float sum[64] = {};
    const int row = threadIdx.x / 128 % (M / 64) * 64 + threadIdx.x % 128 / 32 * 16, column = (threadIdx.x - LOADERS) / 128 / (M / 64) * 128;
    const int group = threadIdx.x % 32 / 4, within = threadIdx.x % 4;  // where the lane's elements of a fragment lie

    // Where a stage's operands lie. `b` could go as soon as it is cut, `a` only when it has been multiplied. With three stages and more both are
    // loaded again then; with two, nothing would be on its way while one is multiplied: `b` is loaded at once, and `a` has a place more.
    static constexpr bool AT_ONCE = STAGES == 2;
    static constexpr int A_PLACES = AT_ONCE ? 3 : STAGES, AHEAD = AT_ONCE ? 1 : STAGES - 2;  // stages on their way while one is cut
    __device__ __forceinline__ static float* a_of(float* memory, int step) { return memory + step % A_PLACES * A_FLOATS; }
    __device__ __forceinline__ static float* b_of(float* memory, int step) { return memory + A_PLACES * A_FLOATS + step % STAGES * B_FLOATS; }
    __device__ __forceinline__ static float* cut_of(float* memory, int step) {
        return memory + A_PLACES * A_FLOATS + STAGES * B_FLOATS + step % 2 * 2 * CUT;
    }

    // `load_a(a, step)` and `load_b(b, step)` start the copies of a stage.
    template <class LoadA, class LoadB> __device__ __forceinline__ void bring(float* memory, int steps, const LoadA& load_a, const LoadB& load_b) {
        for (int step = 0; step < STAGES; ++step) {
            if (step < steps) {
                load_a(a_of(memory, step), step);
                load_b(b_of(memory, step), step);
            }
            copies_commit();
        }
        for (int step = 0; step < steps; ++step) {
            if (step >= 2) barrier_wait(EMPTIED + step % 2, THREADS);  // the stage before the last has been multiplied
            if (step >= STAGES - AHEAD) {
                const int next = step + AHEAD;
                if (next < steps) {
                    load_a(a_of(memory, next), next);
                    if (!AT_ONCE) load_b(b_of(memory, next), next);
                }
                copies_commit();
            }
            copies_wait<AHEAD>();
            barrier_wait(LOADED, LOADERS);
            cut_b(b_of(memory, step), cut_of(memory, step));
            shared_memory_for_tensor_cores();
            barrier_arrive(FILLED + step % 2, THREADS);
            if (AT_ONCE && step + STAGES < steps) {
                barrier_wait(TAKEN, LOADERS);
                load_b(b_of(memory, step), step + STAGES);
            }
        }
        copies_wait<0>();
    }

    __device__ __forceinline__ void multiply(float* memory, int steps) {
        for (int step = 0; step < steps; ++step) {
            unsigned high[4][4], low[4][4];  // of `a`
            float part[64];
            barrier_wait(FILLED + step % 2, THREADS);
            cut_a(a_of(memory, step), high, low);
            start(part, high, low, cut_of(memory, step));
            group_wait(part);
            if (step + 2 < steps) barrier_arrive(EMPTIED + step % 2, THREADS);
#pragma unroll
            for (int at = 0; at < 64; ++at) sum[at] += part[at];
        }
        barrier_wait(DONE, MULTIPLIERS);
    }

    // A stage, the small products first.
    __device__ __forceinline__ void start(float (&part)[64], const unsigned (&high)[4][4], const unsigned (&low)[4][4], const float* b) {
        b += column * 4;
        group_begin();
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            multiply_group<N>(Columns<128>(), part, low[e], b + e * 2 * N * 4, e > 0);
            multiply_group<N>(Columns<128>(), part, high[e], b + CUT + e * 2 * N * 4, true);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) multiply_group<N>(Columns<128>(), part, high[e], b + e * 2 * N * 4, true);
        group_commit();
    }

    __device__ __forceinline__ void cut_a(const float* a, unsigned (&high)[4][4], unsigned (&low)[4][4]) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const int k = e * 8 + within + r / 2 * 4, m = row + r % 2 * 8 + group;
                cut(a[A_DEPTH_INNER ? m * A_PITCH + k : k * A_PITCH + m], high[e][r], low[e][r]);
            }
    }

    __device__ __forceinline__ void cut_b(const float* b, float* to) {
#pragma unroll
        for (int at = threadIdx.x; at < N * DEPTH / 4; at += LOADERS) {
            const int n = at % N, k = at / N * 4;
            float4 value;
            if (B_DEPTH_INNER)
                value = *(const float4*)(b + n * B_PITCH + k);
            else
                value = make_float4(b[k * B_PITCH + n], b[(k + 1) * B_PITCH + n], b[(k + 2) * B_PITCH + n], b[(k + 3) * B_PITCH + n]);
            uint4 high, low;
            cut(value.x, high.x, low.x);
            cut(value.y, high.y, low.y);
            cut(value.z, high.z, low.z);
            cut(value.w, high.w, low.w);
            *(uint4*)(to + at * 4) = high;
            *(uint4*)(to + CUT + at * 4) = low;
        }
    }

    // The finished tile in shared memory, M rows of PITCH floats.
    __device__ __forceinline__ void put(float* memory) {
#pragma unroll
        for (int at = 0; at < 64; ++at) memory[(row + at / 2 % 2 * 8 + group) * PITCH + column + at / 4 * 8 + within * 2 + at % 2] = sum[at];
        barrier_wait(DONE, MULTIPLIERS);
    }
};
"""
)
