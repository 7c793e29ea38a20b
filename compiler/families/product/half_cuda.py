"""Device functions for products of 16-bit operands (bf16 or fp16) with fp32 accumulation: stages in shared memory, warp tiles and warpgroup tiles.

A stage of an operand holds 64 depth elements of each line. It has the layout that tensor cores read: rows of 128 bytes with permuted 16-byte parts
(the 128-byte swizzle of PTX's matrix descriptors). If the operand's depth is contiguous in memory, the stage is stored line by line; otherwise it is
stored by depth, 64 lines wide. The copy therefore never has to transpose. On compute capability 8.0 and later, warps multiply with `mma.sync`. On
9.0, warpgroups multiply with `wgmma` while another warpgroup only copies.
"""

from __future__ import annotations

TYPES = {"bfloat16": ("bf16", "bf16"), "float16": ("fp16", "f16")}  # dtype -> (name in printed programs, name in PTX)
LOADERS = 128  # threads that copy in a warpgroup tile
REGISTERS = 88, 208  # per copying thread and per multiplying thread; with two multiplying warpgroups, they use all registers of a multiprocessor

COPIES = r"""// Asynchronous copies of SIZE bytes into shared memory, of which the first `inside` come from memory and the others are zeros.
template <int SIZE> __device__ __forceinline__ void copy_bytes(void* into, const void* from, int inside) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(into);
    if constexpr (SIZE == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(inside));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(SIZE), "r"(inside));
}
__device__ __forceinline__ void stage_commit() {
    asm volatile("cp.async.commit_group;");
}
template <int LEFT> __device__ __forceinline__ void stage_copied() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Eight elements, of which the first `left` are in memory, WIDTH at a time; single ones go through registers.
template <int WIDTH, class T> __device__ __forceinline__ void copy_eight(char* into, const T* from, int left) {
    if constexpr (WIDTH > 1) {
#pragma unroll
        for (int at = 0; at < 8; at += WIDTH) {
            const int inside = left - at;
            copy_bytes<2 * WIDTH>(into + 2 * at, inside > 0 ? from + at : from, inside <= 0 ? 0 : inside >= WIDTH ? 2 * WIDTH : 2 * inside);
        }
    } else {
        alignas(16) T found[8];
#pragma unroll
        for (int at = 0; at < 8; ++at) found[at] = at < left ? from[at] : T(0.0f);
        *(int4*)into = *(const int4*)found;
    }
}

// Where eight elements lie in a stage (in bytes): rows of 128 bytes whose parts of 16 are exchanged, so that neither copies nor tensor cores meet in
// a bank. A row is 64 elements of a line's depth, or 64 lines of one depth; the next 64 lines are 8 KiB on.
template <bool DEPTH_INNER> __device__ __forceinline__ int place_of(int line, int k) {
    return DEPTH_INNER ? line * 128 + ((k / 8 ^ line % 8) << 4) : line / 64 * 8192 + k * 128 + ((line % 64 / 8 ^ k % 8) << 4);
}

// The first THREADS threads copy a stage of an operand, LINES lines by 64 of depth, which begins at `from`; lines, or depths, are STRIDE elements
// apart. Beyond `lines` and `depth` there are zeros.
template <int LINES, int THREADS, int WIDTH, bool DEPTH_INNER, long long STRIDE, bool WHOLE, class T>
__device__ __forceinline__ void load_stage(char* to, const T* from, int lines, int depth) {
    constexpr int ACROSS = DEPTH_INNER ? 8 : LINES / 8, TURNS = LINES * 8 / THREADS;
    static_assert(LINES * 8 % THREADS == 0 && THREADS % ACROSS == 0, "");
    const int inner = threadIdx.x % ACROSS * 8;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int outer = threadIdx.x / ACROSS + turn * (THREADS / ACROSS);
        const int left = WHOLE ? 8 : DEPTH_INNER ? (outer < lines ? depth - inner : 0) : outer < depth ? lines - inner : 0;
        const T* const at = left > 0 ? from + outer * STRIDE + inner : from;
        copy_eight<WIDTH>(to + (DEPTH_INNER ? place_of<true>(outer, inner) : place_of<false>(inner, outer)), at, left);
    }
}
"""


def warp_tile(dtype: str) -> str:
    name, ptx = TYPES[dtype]
    return WARP_TILE.replace("TYPE", name).replace("PTX", ptx)


WARP_TILE = r"""// Four 8 by 8 matrices of 16 bits from shared memory, each lane saying where a row lies; TURNED gives them transposed.
template <bool TURNED> __device__ __forceinline__ void load_matrices(unsigned (&to)[4], const char* from) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(from);
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
}
// d += a * b for a 16 x 8 part of the result over a depth of 16.
__device__ __forceinline__ void multiply_halves(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, TYPE) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.PTX.PTX.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A block's tile of a product, M rows by N columns, a warp's part WARP_M by WARP_N; all threads copy and multiply.
template <class T, int M, int N, int WARP_M, int WARP_N, int STAGES, bool A_DEPTH_INNER, bool B_DEPTH_INNER> struct HalfTile {
    static constexpr int A_BYTES = (A_DEPTH_INNER || M > 64 ? M : 64) * 128, B_BYTES = (B_DEPTH_INNER || N > 64 ? N : 64) * 128;
    static constexpr int STAGE = A_BYTES + B_BYTES, PITCH = N + 8;
    static constexpr int DOWN = WARP_M / 16, ACROSS = WARP_N / 8;
    float sum[DOWN][ACROSS][4] = {};
    const int row = threadIdx.x / 32 % (M / WARP_M) * WARP_M, column = threadIdx.x / 32 / (M / WARP_M) * WARP_N, lane = threadIdx.x % 32;

    // `load(a, b, step)` starts the copies of one stage.
    template <class Load> __device__ __forceinline__ void run(char* memory, int steps, const Load& load) {
        for (int step = 0; step < STAGES - 1; ++step) {
            if (step < steps) load(memory + step * STAGE, memory + step * STAGE + A_BYTES, step);
            stage_commit();
        }
        for (int step = 0; step < steps; ++step) {
            stage_copied<STAGES - 2>();
            __syncthreads();  // the stage is there, and everyone has left the one before
            const int next = step + STAGES - 1;
            char* free = memory + next % STAGES * STAGE;
            if (next < steps) load(free, free + A_BYTES, next);
            stage_commit();
            const char* a = memory + step % STAGES * STAGE;
#pragma unroll
            for (int k = 0; k < 64; k += 16) multiply(a, a + A_BYTES, k);
        }
        stage_copied<0>();
        __syncthreads();
    }

    __device__ __forceinline__ void multiply(const char* a, const char* b, int k) {
        unsigned of_b[ACROSS / 2][4];
#pragma unroll
        for (int j = 0; j < ACROSS / 2; ++j) {
            const int n = column + j * 16 + lane / 16 * 8;
            load_matrices<!B_DEPTH_INNER>(of_b[j], b + (B_DEPTH_INNER ? place_of<true>(n + lane % 8, k + lane / 8 % 2 * 8)
                                                                       : place_of<false>(n, k + lane / 8 % 2 * 8 + lane % 8)));
        }
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            unsigned of_a[4];
            const int m = row + i * 16 + lane / 8 % 2 * 8;
            load_matrices<!A_DEPTH_INNER>(of_a, a + (A_DEPTH_INNER ? place_of<true>(m + lane % 8, k + lane / 16 * 8)
                                                                    : place_of<false>(m, k + lane / 16 * 8 + lane % 8)));
#pragma unroll
            for (int j = 0; j < ACROSS; ++j) multiply_halves(sum[i][j], of_a, of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1], T());
        }
    }

    // The finished tile in shared memory, M rows of PITCH floats.
    __device__ __forceinline__ void put(float* memory) {
#pragma unroll
        for (int i = 0; i < DOWN; ++i)
#pragma unroll
            for (int j = 0; j < ACROSS; ++j)
#pragma unroll
                for (int r = 0; r < 4; r += 2)
                    *(float2*)(memory + (row + i * 16 + r * 4 + lane / 4) * PITCH + column + j * 8 + lane % 4 * 2) =
                        make_float2(sum[i][j][r], sum[i][j][r + 1]);
        __syncthreads();
    }
};
"""


def group_tile(dtype: str, columns: int) -> list[str]:
    """Returns the texts for a warpgroup tile with `columns` columns as separate strings, so that other tiles can share them."""
    return [GROUP_HEAD, group_product(dtype, columns), GROUP_TILE]


GROUP_HEAD = r"""// Only code for sm_90a has these instructions; nvcc also translates for plain compute_90, which is not loaded where sm_90a is there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HALF_ASM(...) asm volatile(__VA_ARGS__)
#else
#define HALF_ASM(...) __trap()
#endif
// Barriers in shared memory that count arrivals: `stage_wait` returns once the phase of this parity is complete.
__device__ __forceinline__ void stage_barrier(unsigned long long* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void stage_arrive(unsigned long long* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((unsigned)__cvta_generic_to_shared(barrier)) : "memory");
}
__device__ __forceinline__ void stage_wait(unsigned long long* barrier, int parity) {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(
            (unsigned)__cvta_generic_to_shared(barrier)), "r"(parity) : "memory");
}
template <int THREADS> __device__ __forceinline__ void multipliers_meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
// What ordinary copies wrote is there for the tensor cores.
__device__ __forceinline__ void stage_for_tensor_cores() {
    HALF_ASM("fence.proxy.async.shared::cta;" :: : "memory");
}
__device__ __forceinline__ void products_begin() {
    HALF_ASM("wgmma.fence.sync.aligned;" :: : "memory");
}
__device__ __forceinline__ void products_commit() {
    HALF_ASM("wgmma.commit_group.sync.aligned;" :: : "memory");
}
template <int LEFT, int COUNT> __device__ __forceinline__ void products_wait(float (&sum)[COUNT]) {
    HALF_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
    if (LEFT == 0)
#pragma unroll
        for (int at = 0; at < COUNT; ++at) asm volatile("" : "+f"(sum[at])::"memory");  // so that nothing is read of it before
}
// Registers that the warpgroup that copies leaves to those that multiply.
template <int COUNT> __device__ __forceinline__ void registers_leave() {
    HALF_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void registers_claim() {
    HALF_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// A matrix descriptor: the address in units of 16 bytes; how far it is to the next 64 lines, and to the next 8 rows of 128 bytes; that these are
// exchanged in 128 bytes.
template <bool DEPTH_INNER> __device__ __forceinline__ unsigned long long operand_place(const char* at) {
    const unsigned long long address = (unsigned long long)__cvta_generic_to_shared(at);
    return (address & 0x3ffff) >> 4 | (DEPTH_INNER ? 1ull : 8192ull >> 4) << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}
"""


def group_product(dtype: str, columns: int) -> str:
    """Prints one asynchronous product of 64 rows by `columns` columns over a depth of 16, with both operands in shared memory."""
    name, ptx = TYPES[dtype]
    sums = columns // 2
    places = [", ".join(f"%{at}" for at in range(first, first + 16)) for first in range(0, sums, 16)]
    numbers = "\n        ".join(['"{' + places[0] + ', "', *(f'"{text}, "' for text in places[1:-1]), f'"{places[-1]}' + '}, "'])
    registers = [", ".join(f'"+f"(sum[{at}])' for at in range(first, first + 8)) for first in range(0, sums, 8)]
    listed = ",\n          ".join(registers)
    return f"""// sum += a * b for 64 rows by {columns} columns over a depth of 16, by a warpgroup; TURNED: the depth lies outermost.
template <bool A_TURNED, bool B_TURNED>
__device__ __forceinline__ void multiply_half(float (&sum)[{sums}], unsigned long long a, unsigned long long b, {name}) {{
    HALF_ASM(
        "{{ .reg .pred add; setp.eq.b32 add, %{sums + 2}, %{sums + 2}; wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{ptx}.{ptx} "
        {numbers}
        "%{sums}, %{sums + 1}, add, 1, 1, %{sums + 2}, %{sums + 3}; }}"
        : {listed}
        : "l"(a), "l"(b), "n"((int)A_TURNED), "n"((int)B_TURNED));
}}
"""


GROUP_TILE = r"""// A block's tile of a product, M rows by N columns: the first 128 threads `bring` the operands, the others `multiply`, a
// warpgroup 64 rows. `filled` and `emptied` are barriers behind the stages.
template <class T, int M, int N, int STAGES, bool A_DEPTH_INNER, bool B_DEPTH_INNER> struct HalfGroupTile {
    static constexpr int A_BYTES = M * 128, STAGE = A_BYTES + N * 128, PITCH = N + 8;
    static constexpr int LOADERS = 128, MULTIPLIERS = M / 64 * 128, LAG = STAGES - 2;  // stages that are under way while the next is asked for
    static constexpr int A_NEXT = A_DEPTH_INNER ? 32 : 2048, B_NEXT = B_DEPTH_INNER ? 32 : 2048;  // bytes to the next 16 of depth
    float sum[N / 2];
    unsigned long long *const filled, *const emptied;
    const int row = (threadIdx.x / 32 - 4) * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;  // of this thread's first sum

    __device__ __forceinline__ HalfGroupTile(unsigned long long* barriers) : filled(barriers), emptied(barriers + STAGES) {
        if (threadIdx.x < STAGES) {
            stage_barrier(filled + threadIdx.x, LOADERS);
            stage_barrier(emptied + threadIdx.x, MULTIPLIERS / 32);
        }
        __syncthreads();
    }

    // `load(a, b, step)` starts the copies of one stage.
    template <class Load> __device__ __forceinline__ void bring(char* memory, int steps, const Load& load) {
        for (int step = 0; step < steps + LAG; ++step) {
            if (step < steps) {
                char* const to = memory + step % STAGES * STAGE;
                if (step >= STAGES) stage_wait(emptied + step % STAGES, step / STAGES + 1 & 1);
                load(to, to + A_BYTES, step);
            }
            stage_commit();
            if (step < LAG) continue;
            stage_copied<LAG>();
            stage_for_tensor_cores();
            stage_arrive(filled + (step - LAG) % STAGES);
        }
    }

    __device__ __forceinline__ void multiply(const char* memory, int steps) {
        const char* const mine = memory + (threadIdx.x / 128 - 1) * 8192;  // 64 rows of `a`
#pragma unroll
        for (int at = 0; at < N / 2; ++at) sum[at] = 0.0f;
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES * STAGE;
            stage_wait(filled + step % STAGES, step / STAGES & 1);
            const unsigned long long a = operand_place<A_DEPTH_INNER>(mine + stage), b = operand_place<B_DEPTH_INNER>(memory + stage + A_BYTES);
            products_begin();
#pragma unroll
            for (int k = 0; k < 4; ++k) multiply_half<!A_DEPTH_INNER, !B_DEPTH_INNER>(sum, a + k * (A_NEXT >> 4), b + k * (B_NEXT >> 4), T());
            products_commit();
            products_wait<1>(sum);  // those of the stage before
            if (step && threadIdx.x % 32 == 0) stage_arrive(emptied + (step - 1) % STAGES);
        }
        products_wait<0>(sum);
    }

    // The finished tile in shared memory, M rows of PITCH floats.
    __device__ __forceinline__ void put(float* memory) {
        multipliers_meet<MULTIPLIERS>();  // no stage is read any more
#pragma unroll
        for (int at = 0; at < N / 2; at += 2)
            *(float2*)(memory + (row + at / 2 % 2 * 8) * PITCH + column + at / 4 * 8) = make_float2(sum[at], sum[at + 1]);
        multipliers_meet<MULTIPLIERS>();
    }
};
"""

GATHERED = r"""// The lines of an operand that are windows of an image, of sizes W: where each begins, and for each tap of each axis a bit, whether it
// falls inside.
template <class W, int LINES, int THREADS> struct Gathered {
    static constexpr int TURNS = LINES * 8 / THREADS, H_BIT = W::D_TAPS, W_BIT = W::D_TAPS + W::H_TAPS;
    int from[TURNS];
    unsigned inside[TURNS];

    __device__ __forceinline__ Gathered(int first, int shift_d, int shift_h, int shift_w) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int line = first + threadIdx.x / 8 + turn * (THREADS / 8), at = line % W::POSITIONS;
            const int d = at / (W::H_OUT * W::W_OUT) * W::D_STEP + shift_d, h = at / W::W_OUT % W::H_OUT * W::H_STEP + shift_h;
            const int w = at % W::W_OUT * W::W_STEP + shift_w;
            from[turn] = line / W::POSITIONS * W::IMAGE + d * W::D_STRIDE + h * W::H_STRIDE + w * W::W_STRIDE;
            unsigned bits = 0;
#pragma unroll
            for (int tap = 0; tap < W::D_TAPS; ++tap) bits |= within(d + tap * W::D_DELTA, W::D_SIZE) << tap;
#pragma unroll
            for (int tap = 0; tap < W::H_TAPS; ++tap) bits |= within(h + tap * W::H_DELTA, W::H_SIZE) << (H_BIT + tap);
#pragma unroll
            for (int tap = 0; tap < W::W_TAPS; ++tap) bits |= within(w + tap * W::W_DELTA, W::W_SIZE) << (W_BIT + tap);
            inside[turn] = line < W::LINES ? bits : 0u;
        }
    }

    static __device__ __forceinline__ unsigned within(int at, int size) { return at >= 0 && at < size; }

    // Starts the copies of one stage: eight channels of a tap are one copy, all lines of a thread take the same.
    template <class T> __device__ __forceinline__ void load(char* to, const T* image, int step) const {
        const int inner = threadIdx.x % 8 * 8, k = step * 64 + inner, tap = k / W::CHANNELS;
        const int d = tap / (W::H_TAPS * W::W_TAPS), h = tap / W::W_TAPS % W::H_TAPS, w = tap % W::W_TAPS;
        const int plane = d * W::D_DELTA * W::D_STRIDE + h * W::H_DELTA * W::H_STRIDE + w * W::W_DELTA * W::W_STRIDE;
        const T* const at = image + plane + k % W::CHANNELS;
        const unsigned wanted = k < W::DEPTH ? 1u << d | 1u << (H_BIT + h) | 1u << (W_BIT + w) : ~0u;
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            const int line = threadIdx.x / 8 + turn * (THREADS / 8);
            const bool there = (inside[turn] & wanted) == wanted;
            copy_eight<8>(to + place_of<true>(line, inner), there ? at + from[turn] : image, there ? 8 : 0);
        }
    }
};
"""
