"""Device functions that recurrent kernels share; recurrent.py explains how they work together."""

from __future__ import annotations

from compiler.kernel.expressions import POINTED

SHARED = r"""// Hidden states on their way from block to block. One that has not been written yet is a NaN with these bits, which no arithmetic gives.
constexpr unsigned ABSENT = 0xffffffffu;

// Past the first-level cache, which does not see what other multiprocessors write.
__device__ __forceinline__ float4 read_fresh(const float* at) {
    float4 value;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w) : "l"(at) : "memory");
    return value;
}
__device__ __forceinline__ void write_fresh(float* at, float value) {
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
}
__device__ __forceinline__ bool absent(float4 value) {
    return __float_as_uint(value.x) == ABSENT || __float_as_uint(value.y) == ABSENT || __float_as_uint(value.z) == ABSENT ||
           __float_as_uint(value.w) == ABSENT;
}

// The weights of a warp's units over a depth: a lane has depths lane * 4 to lane * 4 + 3 of every 128; what lies outside the matrix is 0.
template <int GATES, int UNITS, int DEPTHS>
__device__ __forceinline__ void read_weights(float (&weights)[UNITS][GATES][DEPTHS], const TYPE* from, int stride, int width, int hidden, int unit) {
#pragma unroll
    for (int u = 0; u < UNITS; ++u)
#pragma unroll
        for (int gate = 0; gate < GATES; ++gate)
#pragma unroll
            for (int at = 0; at < DEPTHS / 4; ++at) {
                const int k = at * 128 + threadIdx.x % 32 * 4;
                const bool inside = k < width && unit + u < hidden;
                const float4 found = inside ? four(from + (long)(gate * hidden + unit + u) * stride + k) : float4{0.0f, 0.0f, 0.0f, 0.0f};
                weights[u][gate][at * 4] = found.x;
                weights[u][gate][at * 4 + 1] = found.y;
                weights[u][gate][at * 4 + 2] = found.z;
                weights[u][gate][at * 4 + 3] = found.w;
            }
}

// Adds the products of weights with `values` (a row a sequence, in shared memory) to the sums of cells (unit, sequence); those of gate `APART`
// go to the sum after the gates.
template <int SEQUENCES, int APART, int CELLS, int SUMS, int UNITS, int GATES, int DEPTHS>
__device__ __forceinline__ void multiply(float (&sum)[CELLS][SUMS], const float (&weights)[UNITS][GATES][DEPTHS], const float* values) {
#pragma unroll
    for (int at = 0; at < DEPTHS / 4; ++at)
#pragma unroll
        for (int b = 0; b < SEQUENCES; ++b) {
            const float4 value = *(const float4*)(values + b * DEPTHS * 32 + at * 128 + threadIdx.x % 32 * 4);
#pragma unroll
            for (int u = 0; u < UNITS; ++u)
#pragma unroll
                for (int gate = 0; gate < GATES; ++gate) {
                    float& into = sum[u * SEQUENCES + b][gate == APART ? SUMS - 1 : gate];
                    into = fmaf(weights[u][gate][at * 4], value.x, into);
                    into = fmaf(weights[u][gate][at * 4 + 1], value.y, into);
                    into = fmaf(weights[u][gate][at * 4 + 2], value.z, into);
                    into = fmaf(weights[u][gate][at * 4 + 3], value.w, into);
                }
        }
}

// Has the sums at hand here: the compiler would otherwise move their products behind the wait that they are to fill.
template <int CELLS, int SUMS>
__device__ __forceinline__ void settle(float (&sum)[CELLS][SUMS]) {
#pragma unroll
    for (int cell = 0; cell < CELLS; ++cell)
#pragma unroll
        for (int s = 0; s < SUMS; ++s) asm volatile("" : "+f"(sum[cell][s]));
}

// Adds up the sums of COUNT cells over the lanes of a warp, halving what a lane has in each step, until it has one cell in sum[0].
template <int COUNT, int STEP, int CELLS, int SUMS> __device__ __forceinline__ void add_lanes(float (&sum)[CELLS][SUMS]) {
    if constexpr (STEP > 0) {
        constexpr int HALF = (COUNT + 1) / 2;
        const bool upper = threadIdx.x % 32 & STEP;
#pragma unroll
        for (int cell = 0; cell < HALF; ++cell)
#pragma unroll
            for (int s = 0; s < SUMS; ++s) {
                const float low = sum[cell][s], high = COUNT == 1 ? low : cell + HALF < COUNT ? sum[cell + HALF < COUNT ? cell + HALF : 0][s] : 0.0f;
                sum[cell][s] = (upper ? high : low) + __shfl_xor_sync(0xffffffffu, upper ? low : high, STEP);
            }
        add_lanes<HALF, STEP / 2>(sum);
    }
}

// Which cell that is; -1 where another lane has the same one, or there are fewer cells than lanes.
template <int COUNT, int STEP> __device__ __forceinline__ int cell_of_lane() {
    if constexpr (STEP == 0) {
        return 0;
    } else {
        constexpr int HALF = (COUNT + 1) / 2;
        const int inner = cell_of_lane<HALF, STEP / 2>();
        const bool upper = threadIdx.x % 32 & STEP;
        if (COUNT == 1) return upper ? -1 : inner;
        const int cell = upper ? inner + HALF : inner;
        return inner < 0 || cell >= COUNT ? -1 : cell;
    }
}
"""
FOUR = """\
// Four elements that lie side by side.
__device__ __forceinline__ float4 four(const float* at) { return *(const float4*)at; }
"""
FOUR_HALVES = """\
// Four elements that lie side by side.
struct alignas(8) FourOfMemory { TYPE at[4]; };
__device__ __forceinline__ float4 four(const TYPE* at) {
    const FourOfMemory found = *(const FourOfMemory*)at;
    return float4{(float)found.at[0], (float)found.at[1], (float)found.at[2], (float)found.at[3]};
}
"""
SIGMOID = """\
__device__ __forceinline__ float gate_open(float x) { return 1.0f / (1.0f + expf(-x)); }
"""


def shared(kind: str, dtype: str) -> list[str]:
    """Returns the device functions that a kernel over `dtype` needs."""
    texts = [FOUR if dtype == "float32" else FOUR_HALVES, SHARED, *([SIGMOID] if kind in ("lstm", "gru") else [])]
    return [text.replace("TYPE", POINTED[dtype]) for text in texts]
