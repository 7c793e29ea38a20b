"""Device functions that printed CUDA kernels share: reductions over a warp or a block, and a few scalar functions."""

from __future__ import annotations

TYPES = {  # header and name of narrow storage types; (float) widens a value, and a 16-bit store rounds to nearest
    "bfloat16": ("cuda_bf16.h", "using bf16 = __nv_bfloat16;\n"),
    "float16": ("cuda_fp16.h", "using fp16 = __half;\n"),
    "float8_e4m3fn": ("cuda_fp8.h", "using e4m3 = __nv_fp8_e4m3;\n"),
    "float8_e5m2": ("cuda_fp8.h", "using e5m2 = __nv_fp8_e5m2;\n"),
}
BOUNDS = """\
// Larger and smaller of two values; NaN stays NaN, as in PyTorch.
__device__ __forceinline__ float at_least(float x, float low) { return x < low || low != low ? low : x; }
__device__ __forceinline__ float at_most(float x, float high) { return x > high || high != high ? high : x; }
"""
SIGMOID = """\
__device__ __forceinline__ float sigmoid_f(float x) { return 1.0f / (1.0f + expf(-x)); }
"""
JOIN = """\
// How two results of a reduction are joined; NaN stays NaN.
struct Sum { template <class T> static __device__ __forceinline__ T join(T a, T b) { return a + b; } };
struct Max { template <class T> static __device__ __forceinline__ T join(T a, T b) { return a > b || a != a ? a : b; } };
struct Min { template <class T> static __device__ __forceinline__ T join(T a, T b) { return a < b || a != a ? a : b; } };
"""
PLACES = """\
// A value and its place in one number: of two, the larger belongs to the larger value, of equal values to the first. NaN is above all.
__device__ __forceinline__ long long ranked(float value, long long place) {
    const int bits = __float_as_int(value + 0.0f);
    const int order = value != value ? 0x7fffffff : bits < 0 ? bits ^ 0x7fffffff : bits;
    return (long long)(((unsigned long long)(unsigned)order << 32) | (0xffffffffu - (unsigned)place));
}
__device__ __forceinline__ long long place_of(long long rank) { return 0xffffffffu - (unsigned)rank; }
"""
OVER_WARP = """\
// Every lane of a warp gets the result over its 32 lanes.
template <class How, class T> __device__ __forceinline__ T over_warp(T value) {
    for (int step = 16; step > 0; step /= 2) value = How::join(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}
"""
OVER_BLOCK = """\
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
OVER_PARTS = """\
// Every thread of a block gets the result over what `count` blocks have left in `parts`.
template <class How, int THREADS> __device__ __forceinline__ double over_parts(const double* parts, int count, double start) {
    double value = start;
    for (int at = threadIdx.x; at < count; at += THREADS) value = How::join(value, parts[at]);
    return over_block<How, THREADS>(value, start);
}
"""
OVER_GROUPS = """\
// Threads that lie WIDE apart share a row: each gets the result over the GROUPS of them.
template <class How, int WIDE, int GROUPS, class T> __device__ __forceinline__ T over_groups(T value) {
    __shared__ T shared[GROUPS * WIDE];
    __syncthreads();
    shared[threadIdx.x] = value;
    __syncthreads();
    value = shared[threadIdx.x % WIDE];
    for (int group = 1; group < GROUPS; ++group) value = How::join(value, shared[group * WIDE + threadIdx.x % WIDE]);
    return value;
}
"""
OVER_CLUSTER = """\
// All threads of a cluster meet; what they have written to shared memory is seen by all.
__device__ __forceinline__ void cluster_meets() {
    asm volatile("barrier.cluster.arrive.aligned;\\n\\tbarrier.cluster.wait.aligned;" ::: "memory");
}

// What block `number` of the cluster has in its shared memory where this block has `mine`.
__device__ __forceinline__ double of_block(const double* mine, int number) {
    unsigned there;
    double value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(mine)), "r"(number));
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(value) : "r"(there) : "memory");
    return value;
}

// Every thread of a cluster gets the result over its blocks, each of which comes with one value.
template <class How, int BLOCKS, class T> __device__ __forceinline__ T over_cluster(T value) {
    __shared__ double left;
    if (threadIdx.x == 0) left = value;
    cluster_meets();
    double all = of_block(&left, 0);
    for (int number = 1; number < BLOCKS; ++number) all = How::join(all, of_block(&left, number));
    cluster_meets();  // nobody writes anew, or leaves, before all have read
    return (T)all;
}
"""
BULK = """\
// Copies by the bulk copy engine: `bytes`, whole parts of 16, from an aligned place in memory. A barrier's phases end with one copy each.
__device__ __forceinline__ void bulk_barrier(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the engine sees it
}
__device__ __forceinline__ void bulk_start(unsigned long long* barrier, float* to, const float* from, int bytes) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(barrier), into = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(into), "l"(from), "r"(bytes), "r"(at)
                 : "memory");
}
__device__ __forceinline__ void bulk_wait(unsigned long long* barrier, int parity) {
    asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(
                     (unsigned)__cvta_generic_to_shared(barrier)), "r"(parity) : "memory");
}
"""
# The operation that many threads, in arbitrary order, use to combine their values with an element in memory.
AT_PLACES = {
    "join_sum": """\
// Adds to an element in memory, which other threads add to as well.
__device__ __forceinline__ void join_sum(float* at, float value) { atomicAdd(at, value); }
__device__ __forceinline__ void join_sum(int* at, int value) { atomicAdd(at, value); }
__device__ __forceinline__ void join_sum(long long* at, long long value) { atomicAdd((unsigned long long*)at, (unsigned long long)value); }
""",
    "join_sums": """\
// Adds neighbours to neighbours in memory, at an aligned address, four at once where the device can.
template <int COUNT> __device__ __forceinline__ void join_sums(float* at, const float (&values)[COUNT]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    for (int four = 0; four < COUNT; four += 4) atomicAdd((float4*)(at + four), *(const float4*)(values + four));
#else
    for (int lane = 0; lane < COUNT; ++lane) atomicAdd(at + lane, values[lane]);
#endif
}
""",
    "join_max": """\
// The larger of an element in memory and a value, NaN above all. Floats order as whole numbers do, those with a sign the other way round.
__device__ __forceinline__ void join_max(float* at, float value) {
    const int bits = value == value ? __float_as_int(value) : 0x7fffffff;
    if (bits >= 0) atomicMax((int*)at, bits);
    else atomicMin((unsigned*)at, (unsigned)bits);
}
""",
    "join_min": """\
// The smaller of an element in memory and a value, NaN below all. Floats order as whole numbers do, those with a sign the other way round.
__device__ __forceinline__ void join_min(float* at, float value) {
    const int bits = value == value ? __float_as_int(value) : -1;
    if (bits >= 0) atomicMin((int*)at, bits);
    else atomicMax((unsigned*)at, (unsigned)bits);
}
""",
}
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


def sources(kinds: set[str], kernels: str) -> list[str]:
    """Returns the functions needed by the scalar functions in `kinds` and by the kernels' text."""
    parts = [BOUNDS] if kinds & {"max", "min"} else []
    parts += [SIGMOID] if "sigmoid" in kinds else []
    calls = {name for name in (*BUILT_ON, "::join") if f"{name}<" in kernels or f"{name}(" in kernels}
    for name, below in BUILT_ON.items():
        calls |= below if name in calls else set()
    parts += [JOIN] if calls else []
    parts += [PLACES] if "ranked(" in kernels else []
    parts += [text for name, text in COLLECTIVES.items() if name in calls]
    parts += [text for name, text in AT_PLACES.items() if f"{name}(" in kernels]
    return parts + ([SCAN] if "before_in_block<" in kernels else []) + ([BULK] if "bulk_wait(" in kernels else [])


BUILT_ON = {"over_parts": {"over_block", "over_warp"}, "over_cluster": set(), "over_groups": set(), "over_block": {"over_warp"}, "over_warp": set()}
COLLECTIVES = {"over_warp": OVER_WARP, "over_block": OVER_BLOCK, "over_parts": OVER_PARTS, "over_groups": OVER_GROUPS, "over_cluster": OVER_CLUSTER}
