// The part of CUDA that printed kernels need, for g++: blocks run one after another, and the threads of a block are fibers that take turns. A fiber
// runs until it has to wait for the others (at a barrier of its block, or an exchange of its warp); once all have arrived, all continue. In a
// cooperative launch, all blocks are live at once: they take turns whenever all of their fibers wait, including waits for another block's memory.
// Compiled in advance (translate.py), like cuda_on_cpu.cpp, because g++ takes longer for these than for a program's kernels.

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

using std::isfinite;
using std::isinf;
using std::isnan;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct __attribute__((may_alias)) int2 { int x, y; };
struct __attribute__((may_alias, aligned(16))) int4 { int x, y, z, w; };
struct __attribute__((may_alias, aligned(4))) char4 { signed char x, y, z, w; };
struct __half {
    _Float16 value;
    __half() = default;
    __half(float from) : value((_Float16)from) {}
    operator float() const { return (float)value; }
};
struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float from) {
        unsigned wide;
        std::memcpy(&wide, &from, 4);
        bits = from == from ? (wide + 0x7fff + (wide >> 16 & 1)) >> 16 : 0x7fff;  // the device's NaN
    }
    operator float() const {
        const unsigned wide = (unsigned)bits << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        return value;
    }
};
struct __nv_fp8_e5m2 {
    unsigned char bits;
    explicit operator float() const {
        const unsigned short wide = bits << 8;
        _Float16 value;
        std::memcpy(&value, &wide, 2);
        return (float)value;
    }
};
struct __nv_fp8_e4m3 {
    unsigned char bits;
    explicit operator float() const {
        const int exponent = bits >> 3 & 15, fraction = bits & 7;
        const float size = exponent ? std::ldexp(8.0f + fraction, exponent - 10) : std::ldexp((float)fraction, -9);
        return (bits & 127) == 127 ? NAN : bits & 128 ? -size : size;
    }
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
typedef void* cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
inline int cudaGetDevice(int* device) { *device = 0; return 0; }
inline int cudaDeviceGetAttribute(int* value, int, int) { *value = 227 << 10; return 0; }
template <class F> int cudaFuncSetAttribute(F, int, int) { return 0; }
inline int cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) { std::memset(at, value, bytes); return 0; }

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static
#define __align__(n) alignas(n)
#define __constant__ static const
#define cudaGetLastError() 0

namespace emulated {
enum Waiting { RUNS, BLOCK, WARP, DONE };
struct Lane { unsigned words[16]; };
extern int now;  // the fiber that runs, which is its thread's number
extern dim3 threads, grid, block_index;
void meet(Waiting what);
}  // namespace emulated

struct { struct { operator int() const { return emulated::now % emulated::threads.x; } } x;
         struct { operator int() const { return emulated::now / emulated::threads.x % emulated::threads.y; } } y;
         struct { operator int() const { return 0; } } z; } static threadIdx;
#define blockIdx emulated::block_index
#define blockDim emulated::threads
#define gridDim emulated::grid

namespace emulated {
extern int number;  // of the block, among those that run together
// A fiber polls for a value that another block still has to write.
void look_again();
void cluster_meets();
// The work of a thread. Only the lambda's address is used, so a unit compiles no more of it than a call.
struct Body { void (*call)(const void*); const void* of; };
template <class F> Body body_of(const F& call) { return {[](const void* of) { (*(const F*)of)(); }, &call}; }
void run(dim3 blocks, dim3 count, size_t shared, Body body, bool threads_meet);
void run_together(dim3 blocks, dim3 count, size_t shared, Body body);
void run_clusters(int together, dim3 blocks, dim3 count, size_t shared, Body body);
template <class F> void launch(dim3 blocks, dim3 count, size_t shared, const F& call, bool threads_meet) {
    run(blocks, count, shared, body_of(call), threads_meet);
}
// The blocks of a cluster run together, one cluster after another.
template <class F> void launch_clusters(int together, dim3 blocks, dim3 count, size_t shared, const F& call) {
    run_clusters(together, blocks, count, shared, body_of(call));
}
// Static shared memory of blocks that run together.
template <class T> struct PerBlock {
    struct Held { T value; } of[16];
    T& mine() { return of[number].value; }
};
template <class... P, size_t... N> void call_with(void (*kernel)(P...), void** given, std::index_sequence<N...>) {
    kernel(*(std::remove_reference_t<P>*)given[N]...);
}
char* shared_memory();  // on a boundary of 1024 bytes
// Deposits this lane's words and, once all lanes have arrived, returns those of the warp.
const Lane* exchange(const Lane& mine);
template <class T> T taken(T value, int from) {
    Lane mine{};
    std::memcpy(mine.words, &value, sizeof value);
    const Lane* warp = exchange(mine);
    T found;
    std::memcpy(&found, warp[from].words, sizeof found);
    return found;
}
}  // namespace emulated

template <class... P> int cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 blocks, dim3 count, void** given, size_t shared, cudaStream_t) {
    const auto call = [=] { emulated::call_with(kernel, given, std::index_sequence_for<P...>{}); };
    emulated::run_together(blocks, count, shared, emulated::body_of(call));
    return 0;
}

inline void cluster_meets() { emulated::cluster_meets(); }
inline double of_block(const double* mine, int number) { return mine[number - emulated::number]; }
inline void __syncthreads() { emulated::meet(emulated::BLOCK); }
inline void __syncwarp(unsigned = 0xffffffffu) { emulated::exchange({}); }
template <class T> T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    const int own = emulated::now % 32;
    return emulated::taken(value, own / width * width + lane % width);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) { (void)width; return emulated::taken(value, (emulated::now % 32) ^ mask); }
template <class T> T __shfl_down_sync(unsigned, T value, int by, int width = 32) {
    const int own = emulated::now % 32;
    return emulated::taken(value, own % width + by < width ? own + by : own);
}
template <class T> T __shfl_up_sync(unsigned, T value, int by, int width = 32) {
    const int own = emulated::now % 32;
    return emulated::taken(value, own % width >= by ? own - by : own);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
    const emulated::Lane* warp = emulated::exchange({{(unsigned)(predicate != 0)}});
    unsigned found = 0;
    for (int lane = 0; lane < 32; ++lane) found |= warp[lane].words[0] << lane;
    return found;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline float atomicAdd(float* at, float value) { float old = *at; *at += value; return old; }
inline int atomicAdd(int* at, int value) { int old = *at; *at += value; return old; }
inline unsigned atomicAdd(unsigned* at, unsigned value) { unsigned old = *at; *at += value; return old; }
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) { auto old = *at; *at += value; return old; }
template <class T> T atomicMax(T* at, T value) { T old = *at; *at = std::max(old, value); return old; }
template <class T> T atomicMin(T* at, T value) { T old = *at; *at = std::min(old, value); return old; }
inline void __threadfence() {}

inline unsigned __float_as_uint(float value) { unsigned bits; std::memcpy(&bits, &value, 4); return bits; }
inline float __uint_as_float(unsigned bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline int __float_as_int(float value) { return (int)__float_as_uint(value); }
inline float __int_as_float(int bits) { return __uint_as_float((unsigned)bits); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T __ldcs(const T* at) { return *at; }
template <class T> void __stcs(T* at, T value) { *at = value; }

// Counterparts of device functions that are written in PTX; translate.py drops the originals. An asynchronous copy may happen at any time between its
// statement and the wait for its group. Every second thread copies as early as possible, the others as late as possible, so that accesses that come
// too early show up.
namespace emulated {
void copy(float* into, const float* from, int count);
void commit();
void wait(int left);  // groups
}  // namespace emulated
inline void copy_async4(float* into, const float* from, bool inside) { emulated::copy(into, inside ? from : nullptr, 1); }
inline void copy_async16(float* into, const float* from, bool inside) {
    if ((uintptr_t)into % 16 || (inside && (uintptr_t)from % 16)) { std::fprintf(stderr, "emulated: 16 bytes are copied off their alignment\n"); std::abort(); }
    emulated::copy(into, inside ? from : nullptr, 4);
}
inline float4 read_fresh(const float* at) {
    const float4 value = *(const float4*)at;
    for (const float word : {value.x, value.y, value.z, value.w})
        if (__float_as_uint(word) == 0xffffffffu) { emulated::look_again(); break; }
    return value;
}
template <class T> void settle(T&) {}
inline void write_fresh(float* at, float value) { *at = value; }
inline void copies_commit() { emulated::commit(); }
template <int LEFT> void copies_wait() { emulated::wait(LEFT); }
// A tensor core's sum: exact products, and the whole truncated (not rounded) to 24 bits, which is the worst reported behaviour.
inline float cut_off(double value) {
    const float near = (float)value;
    return std::fabs((double)near) > std::fabs(value) ? std::nextafterf(near, 0.0f) : near;
}
inline void multiply_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    emulated::Lane mine{};
    for (int at = 0; at < 4; ++at) mine.words[at] = a[at] & 0xffffe000u;
    for (int at = 0; at < 2; ++at) mine.words[4 + at] = b[at] & 0xffffe000u;
    const int lane = emulated::now % 32, group = lane / 4, within = lane % 4;
    const emulated::Lane* warp = emulated::exchange(mine);
    for (int at = 0; at < 4; ++at) {
        const int row = group + at / 2 * 8, column = 2 * within + at % 2;
        double sum = d[at];
        for (int k = 0; k < 8; ++k) {
            const float left = __uint_as_float(warp[row % 8 * 4 + k % 4].words[row / 8 + k / 4 * 2]);
            const float right = __uint_as_float(warp[column * 4 + k % 4].words[4 + k / 4]);
            sum += (double)left * right;
        }
        d[at] = cut_off(sum);
    }
}
template <int N, int EIGHT = 8, class Columns, int SUMS> void multiply_group(Columns, float (&sum)[SUMS], const unsigned (&a)[4], const float* b, bool add) {
    emulated::Lane mine{};
    for (int at = 0; at < 4; ++at) mine.words[at] = a[at] & 0xffffe000u;
    const int lane = emulated::now % 32, group = lane / 4, within = lane % 4;
    const emulated::Lane* warp = emulated::exchange(mine);
    for (int at = 0; at < SUMS; ++at) {
        const int row = group + at / 2 % 2 * 8, column = at / 4 * 8 + within * 2 + at % 2;
        double total = add ? sum[at] : 0.0;
        for (int k = 0; k < 8; ++k) {
            const float left = __uint_as_float(warp[row % 8 * 4 + k % 4].words[row / 8 + k / 4 * 2]);
            total += (double)left * __uint_as_float(__float_as_uint(b[k / 4 * N * 4 + (column / 8 * EIGHT + column % 8) * 4 + k % 4]) & 0xffffe000u);
        }
        sum[at] = cut_off(total);
    }
}
inline void group_begin() {}
inline void group_commit() {}
template <int COUNT> void group_wait(float (&)[COUNT]) {}
inline void shared_memory_for_tensor_cores() {}
inline int of_unknown_range(int value) { return value; }
inline void accumulate_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) { multiply_tf32(d, a, b); }
// Named barriers: each id counts arrivals, and releases the waiting threads when the count is full.
namespace emulated { extern int come[16], let_go[16]; }
inline void barrier_arrive(int which, int count) {
    if (++emulated::come[which] == count) emulated::come[which] = 0, ++emulated::let_go[which];
}
inline void barrier_wait(int which, int count) {
    const int before = emulated::let_go[which];
    barrier_arrive(which, count);
    while (emulated::let_go[which] == before) emulated::meet(emulated::RUNS);
}
template <int COUNT> void registers_give() {}
template <int COUNT> void registers_take() {}
template <class T> void keep_whole(T&) {}

// 16-bit products. Shared-memory addresses are relative to its start, which is aligned to 1024 bytes.
inline size_t __cvta_generic_to_shared(const void* at) { return (const char*)at - emulated::shared_memory(); }
template <int SIZE> void copy_bytes(void* into, const void* from, int inside) {
    if ((uintptr_t)into % SIZE || (inside && (uintptr_t)from % SIZE) || inside < 0 || inside > SIZE) {
        std::fprintf(stderr, "emulated: %d bytes are copied off their alignment\n", SIZE);
        std::abort();
    }
    std::memset(into, 0, SIZE);
    std::memcpy(into, from, inside);
}
inline void stage_commit() {}
template <int LEFT> void stage_copied() {}
template <bool TURNED> void load_matrices(unsigned (&to)[4], const char* from) {
    if ((uintptr_t)from % 16) { std::fprintf(stderr, "emulated: a row of a matrix is off its alignment\n"); std::abort(); }
    emulated::Lane mine{};
    std::memcpy(mine.words, &from, sizeof from);
    const emulated::Lane* warp = emulated::exchange(mine);
    const int lane = emulated::now % 32;
    for (int at = 0; at < 4; ++at) {
        unsigned short pair[2];
        for (int half = 0; half < 2; ++half) {
            const int row = TURNED ? lane % 4 * 2 + half : lane / 4, column = TURNED ? lane / 4 : lane % 4 * 2 + half;
            const char* start;
            std::memcpy(&start, warp[at * 8 + row].words, sizeof start);
            std::memcpy(&pair[half], start + column * 2, 2);
        }
        std::memcpy(&to[at], pair, 4);
    }
    __syncwarp();  // before anything writes there again
}
inline float exp2_near(float x) { return std::exp2(x); }
template <class T> unsigned pack_halves(float low, float high, T) {
    const T pair[2] = {T(low), T(high)};
    unsigned word;
    std::memcpy(&word, (const void*)pair, 4);
    return word;
}
template <class T> float half_of_word(unsigned word, int which) {
    const unsigned short bits = which ? word >> 16 : word & 0xffff;
    T value;
    std::memcpy((void*)&value, &bits, 2);
    return value;
}
template <class T> void multiply_halves(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T) {
    emulated::Lane mine{};
    for (int at = 0; at < 4; ++at) mine.words[at] = a[at];
    mine.words[4] = b0, mine.words[5] = b1;
    const int lane = emulated::now % 32;
    const emulated::Lane* warp = emulated::exchange(mine);
    for (int at = 0; at < 4; ++at) {
        const int row = lane / 4 + at / 2 * 8, column = lane % 4 * 2 + at % 2;
        double sum = d[at];
        for (int k = 0; k < 16; ++k)
            sum += (double)half_of_word<T>(warp[row % 8 * 4 + k % 8 / 2].words[row / 8 + k / 8 * 2], k % 2) *
                   half_of_word<T>(warp[column * 4 + k % 8 / 2].words[4 + k / 8], k % 2);
        d[at] = cut_off(sum);
    }
}
// mbarriers: expected arrivals, those still missing, and the phase.
namespace emulated { struct Counted { unsigned short count, missing; unsigned phase; }; }
inline void stage_barrier(unsigned long long* barrier, int count) {
    const emulated::Counted fresh{(unsigned short)count, (unsigned short)count, 0};
    std::memcpy((void*)barrier, &fresh, 8);
}
inline void stage_arrive(unsigned long long* barrier) {
    emulated::Counted now;
    std::memcpy(&now, barrier, 8);
    if (--now.missing == 0) now.missing = now.count, ++now.phase;
    std::memcpy((void*)barrier, &now, 8);
}
inline void stage_wait(unsigned long long* barrier, int parity) {
    for (emulated::Counted now;;) {
        std::memcpy(&now, barrier, 8);
        if ((int)(now.phase & 1) != parity) return;
        emulated::meet(emulated::RUNS);
    }
}
inline void bulk_barrier(unsigned long long* barrier) { stage_barrier(barrier, 1); }
inline void bulk_start(unsigned long long* barrier, float* to, const float* from, int bytes) {
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16) { std::fprintf(stderr, "emulated: a bulk copy off its alignment\n"); std::abort(); }
    std::memcpy(to, from, bytes);
    stage_arrive(barrier);
}
inline void bulk_wait(unsigned long long* barrier, int parity) { stage_wait(barrier, parity); }
template <int THREADS> void multipliers_meet() { barrier_wait(1, THREADS); }
inline void stage_for_tensor_cores() {}
inline void products_begin() {}
inline void products_commit() {}
template <int LEFT, int COUNT> void products_wait(float (&)[COUNT]) { __syncwarp(); }
template <int COUNT> void registers_leave() {}
template <int COUNT> void registers_claim() {}
// An element of an operand as described by its matrix descriptor (PTX, "Matrix descriptor format" and "Strides"): only the 128-byte swizzle.
template <class T> float described(unsigned long long place, bool turned, int line, int k) {
    const unsigned start = (place & 0x3fff) << 4, leading = (place >> 16 & 0x3fff) << 4, stride = (place >> 32 & 0x3fff) << 4;
    if (place >> 62 != 1) { std::fprintf(stderr, "emulated: a matrix descriptor without the 128-byte swizzle\n"); std::abort(); }
    unsigned at = start + (turned ? line / 64 * leading + k / 8 * stride + k % 8 * 128 + line % 64 * 2 : line / 8 * stride + line % 8 * 128 + k * 2);
    at ^= (at >> 7 & 7) << 4;
    T value;
    std::memcpy((void*)&value, emulated::shared_memory() + at, 2);
    return value;
}
template <bool A_TURNED, bool B_TURNED, int COUNT, class T> void multiply_half(float (&sum)[COUNT], unsigned long long a, unsigned long long b, T) {
    const int lane = emulated::now % 32, warp = emulated::now / 32 % 4;
    float left[2][16];
    for (int at = 0; at < 32; ++at) left[at / 16][at % 16] = described<T>(a, A_TURNED, warp * 16 + lane / 4 + at / 16 * 8, at % 16);
    for (int at = 0; at < COUNT; ++at) {
        double total = sum[at];
        for (int k = 0; k < 16; ++k) total += (double)left[at / 2 % 2][k] * described<T>(b, B_TURNED, at / 4 * 8 + lane % 4 * 2 + at % 2, k);
        sum[at] = cut_off(total);
    }
}
