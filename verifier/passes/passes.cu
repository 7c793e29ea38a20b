// Kernels that answer the judge's questions about tensors of gigabytes, each in one pass over memory; PyTorch's operators take five to twelve. Every
// block writes a partial result, and the host always combines them in the same order. Pointers are multiples of 16 bytes; `count` is in elements.
#include <cmath>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int THREADS = 256;
constexpr int EACH = 8;  // elements that a thread loads together
constexpr double LEAST = 1e-300;  // lower limit of the divisor of an error, as in correctness.py
constexpr float LEAST_NARROW = 1e-30f;

template <class T> struct alignas(16) Eight { T values[EACH]; };
struct alignas(16) Two { long long first, second; };
struct alignas(16) Four { int words[4]; };

struct Sum { template <class T> static __device__ __forceinline__ T join(T a, T b) { return a + b; } };
struct Max { template <class T> static __device__ __forceinline__ T join(T a, T b) { return a > b ? a : b; } };

template <class How, class T> __device__ __forceinline__ void leave(T value, T* of_blocks) {
    __shared__ T shared[THREADS];
    __syncthreads();
    shared[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] = How::join(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) of_blocks[blockIdx.x] = shared[0];
}

template <class T> __device__ __forceinline__ double wide(T value) { return (float)value; }
template <> __device__ __forceinline__ double wide<double>(double value) { return value; }

// Loads eight elements, of which only `here` are in the tensor.
template <class T> __device__ __forceinline__ Eight<T> eight(const T* from, int here) {
    if (here == EACH) return *(const Eight<T>*)from;
    Eight<T> found;
    for (int lane = 0; lane < EACH; ++lane) found.values[lane] = lane < here ? from[lane] : T(0.0f);
    return found;
}

// Sums squares over the finite elements, and counts those.
template <class T> __global__ void __launch_bounds__(THREADS) squares_kernel(const T* x, long long count, double* sums, long long* finite) {
    double total = 0.0;
    long long counted = 0;
    for (long long at = (blockIdx.x * (long long)THREADS + threadIdx.x) * EACH; at < count; at += (long long)gridDim.x * THREADS * EACH) {
        const int here = count - at < EACH ? (int)(count - at) : EACH;
        const Eight<T> found = eight(x + at, here);
#pragma unroll
        for (int lane = 0; lane < EACH; ++lane) {
            const double value = wide(found.values[lane]);
            if (lane < here && isfinite(value)) {
                total += value * value;
                ++counted;
            }
        }
    }
    leave<Sum>(total, sums);
    leave<Sum>(counted, finite);
}

// Returns |x - y| / (|y| + rms). If y is not finite: 0 if x is not finite either, otherwise infinite.
__device__ __forceinline__ double off_wide(double x, double y, double rms) {
    if (!isfinite(y)) return isfinite(x) ? INFINITY : 0.0;
    const double scale = fabs(y) + rms, off = fabs(x - y) / (scale > LEAST ? scale : LEAST);
    return isfinite(off) ? off : INFINITY;
}

// Returns the same, computed in fp32 if neither type is wider, since two close numbers have an exact difference, and in fp64 if that is not enough.
template <class X, class Y> __device__ __forceinline__ double off_of(X x, Y y, double rms, float narrow) {
    if constexpr (sizeof(Y) <= 4) {
        const float scale = fabsf((float)y) + narrow, off = fabsf((float)x - (float)y) / (scale > LEAST_NARROW ? scale : LEAST_NARROW);
        if (isfinite(off)) return off;
    }
    return off_wide(wide(x), wide(y), rms);
}

template <class X, class Y>
__global__ void __launch_bounds__(THREADS) farthest_kernel(const X* x, const Y* y, long long count, double rms, double* worst) {
    double most = 0.0;
    const float narrow = (float)rms;
    for (long long at = (blockIdx.x * (long long)THREADS + threadIdx.x) * EACH; at < count; at += (long long)gridDim.x * THREADS * EACH) {
        const int here = count - at < EACH ? (int)(count - at) : EACH;
        const Eight<X> left = eight(x + at, here);
        const Eight<Y> right = eight(y + at, here);
#pragma unroll
        for (int lane = 0; lane < EACH; ++lane) {
            if (lane < here) most = Max::join(most, off_of(left.values[lane], right.values[lane], rms, narrow));
        }
    }
    leave<Max>(most, worst);
}

__global__ void __launch_bounds__(THREADS) differ_kernel(const long long* x, const long long* y, long long count, int* found) {
    int differ = 0;
    for (long long at = (blockIdx.x * (long long)THREADS + threadIdx.x) * 2; at < count; at += (long long)gridDim.x * THREADS * 2) {
        if (at + 1 < count) {
            const Two left = *(const Two*)(x + at), right = *(const Two*)(y + at);
            differ |= left.first != right.first || left.second != right.second;
        } else {
            differ |= x[at] != y[at];
        }
    }
    leave<Max>(differ, found);
}

// Mixes a word with its position as fingerprint.py does.
__device__ __forceinline__ unsigned long long mixed(int word, unsigned long long place, unsigned long long key, unsigned long long other) {
    const unsigned long long product = ((unsigned long long)(long long)word + 1) * (place * key + other);
    return product ^ (unsigned long long)((long long)product >> 29);
}

__global__ void __launch_bounds__(THREADS) fingerprint_kernel(
    const int* words, long long count, unsigned long long key, unsigned long long other, unsigned long long* first, unsigned long long* second) {
    unsigned long long one = 0, two = 0;
    for (long long at = (blockIdx.x * (long long)THREADS + threadIdx.x) * 4; at < count; at += (long long)gridDim.x * THREADS * 4) {
        const int here = count - at < 4 ? (int)(count - at) : 4;
        Four found;
        if (here == 4) found = *(const Four*)(words + at);
        else for (int lane = 0; lane < here; ++lane) found.words[lane] = words[at + lane];
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
            if (lane < here) {
                one += mixed(found.words[lane], at + lane, key, other);
                two += mixed(found.words[lane], at + lane, other, key);
            }
        }
    }
    leave<Sum>(one, first);
    leave<Sum>(two, second);
}

template <class T> int squares_of(const void* x, long long count, double* sums, long long* finite, int blocks, void* stream) {
    squares_kernel<T><<<blocks, THREADS, 0, (cudaStream_t)stream>>>((const T*)x, count, sums, finite);
    return (int)cudaGetLastError();
}

template <class X, class Y> int farthest_of(const void* x, const void* y, long long count, double rms, double* worst, int blocks, void* stream) {
    farthest_kernel<X, Y><<<blocks, THREADS, 0, (cudaStream_t)stream>>>((const X*)x, (const Y*)y, count, rms, worst);
    return (int)cudaGetLastError();
}

// Types are 0 for fp32, 1 for bf16, 2 for fp16 and 3 for fp64. Returns an error of the CUDA runtime, or -1 for types that no kernel takes.
extern "C" int squares(int type, const void* x, long long count, double* sums, long long* finite, int blocks, void* stream) {
    switch (type) {
        case 0: return squares_of<float>(x, count, sums, finite, blocks, stream);
        case 1: return squares_of<__nv_bfloat16>(x, count, sums, finite, blocks, stream);
        case 2: return squares_of<__half>(x, count, sums, finite, blocks, stream);
        case 3: return squares_of<double>(x, count, sums, finite, blocks, stream);
    }
    return -1;
}

extern "C" int farthest(int left, int right, const void* x, const void* y, long long count, double rms, double* worst, int blocks, void* stream) {
    switch (4 * left + right) {
        case 0: return farthest_of<float, float>(x, y, count, rms, worst, blocks, stream);
        case 3: return farthest_of<float, double>(x, y, count, rms, worst, blocks, stream);
        case 5: return farthest_of<__nv_bfloat16, __nv_bfloat16>(x, y, count, rms, worst, blocks, stream);
        case 7: return farthest_of<__nv_bfloat16, double>(x, y, count, rms, worst, blocks, stream);
        case 10: return farthest_of<__half, __half>(x, y, count, rms, worst, blocks, stream);
        case 11: return farthest_of<__half, double>(x, y, count, rms, worst, blocks, stream);
        case 15: return farthest_of<double, double>(x, y, count, rms, worst, blocks, stream);
    }
    return -1;
}

// `count` is in words of eight bytes.
extern "C" int differ(const void* x, const void* y, long long count, int* found, int blocks, void* stream) {
    differ_kernel<<<blocks, THREADS, 0, (cudaStream_t)stream>>>((const long long*)x, (const long long*)y, count, found);
    return (int)cudaGetLastError();
}

// `count` is in words of four bytes.
extern "C" int fingerprint(
    const int* words, long long count, unsigned long long key, unsigned long long other, unsigned long long* first, unsigned long long* second,
    int blocks, void* stream) {
    fingerprint_kernel<<<blocks, THREADS, 0, (cudaStream_t)stream>>>(words, count, key, other, first, second);
    return (int)cudaGetLastError();
}
