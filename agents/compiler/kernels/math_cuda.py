"""Device functions that printed CUDA kernels share: reductions over a warp or a block, and a few scalar functions."""

from __future__ import annotations

BOUNDS = """\
// Larger and smaller of two values; NaN stays NaN, as in PyTorch.
__device__ __forceinline__ float at_least(float x, float low) { return x < low || low != low ? low : x; }
__device__ __forceinline__ float at_most(float x, float high) { return x > high || high != high ? high : x; }
"""
SIGMOID = """\
__device__ __forceinline__ float sigmoid_f(float x) { return 1.0f / (1.0f + expf(-x)); }
"""
JOIN = """\
struct Sum { template <class T> static __device__ __forceinline__ T join(T a, T b) { return a + b; } };
struct Max { static __device__ __forceinline__ float join(float a, float b) { return a > b || a != a ? a : b; } };
struct Min { static __device__ __forceinline__ float join(float a, float b) { return a < b || a != a ? a : b; } };

// Every lane of a warp gets the result over its 32 lanes.
template <class How, class T> __device__ __forceinline__ T over_warp(T value) {
    for (int step = 16; step > 0; step /= 2) value = How::join(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}

// Every thread of a block gets the result over the block; `start` is the neutral element.
template <class How, int THREADS, class T> __device__ __forceinline__ T over_block(T value, T start) {
    __shared__ T shared[THREADS / 32];
    value = over_warp<How>(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < THREADS / 32 ? shared[threadIdx.x % 32] : start;
    return over_warp<How>(value);
}
"""
SCAN = """\
// Sum of the values of the threads before this one; `total` becomes the sum over the block.
template <int THREADS> __device__ __forceinline__ double before_in_block(double value, double& total) {
    __shared__ double shared[THREADS / 32];
    double inclusive = value;
    for (int step = 1; step < 32; step *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, inclusive, step);
        if (threadIdx.x % 32 >= step) inclusive += other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 31) shared[threadIdx.x / 32] = inclusive;
    __syncthreads();
    double before = 0.0;
    total = 0.0;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        if (warp < threadIdx.x / 32) before += shared[warp];
        total += shared[warp];
    }
    return before + inclusive - value;
}
"""


def sources(kinds: set[str], reduces: bool, scans: bool) -> list[str]:
    parts = [BOUNDS] if kinds & {"max", "min"} else []
    parts += [SIGMOID] if "sigmoid" in kinds else []
    parts += [JOIN] if reduces else []
    return parts + ([SCAN] if scans else [])
