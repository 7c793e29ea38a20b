"""The CUDA C++ source text for windowed.py."""

from __future__ import annotations

TILE = r"""// The same number, about which the compiler knows nothing: with a counter of known range, nvcc 13.0 computes in 16 bits and drops
// the sign of 12 * step - 36 * ((step + 1) / 3), so that it reads far outside an image.
__device__ __forceinline__ int of_unknown_range(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

// A block's tile of a convolution by a step of one: 64 output channels at LINES lines of 8 positions. Of 8 channels the first 128
// threads `bring` the patch that the tile sees, cut in two TF32 numbers, and the weights; the others, a warpgroup, `multiply`. Sums over CHUNK taps
// stay in the tensor cores. In what is cut the next position is four floats on, the next four channels PATCH positions.
template <int LINES, int TAPS_H, int TAPS_W, int STEP_H, int STEP_W> struct WindowTile {
    static constexpr int LOADERS = 128, THREADS = 256, PLACES = 3, SUMS = LINES * 4;
    static constexpr int LINE = 8 + (TAPS_W - 1) * STEP_W, PATCH = LINE * (LINES + (TAPS_H - 1) * STEP_H);
    static constexpr int TAPS = TAPS_H * TAPS_W, WEIGHTS = TAPS * 512, CUT = PATCH * 8, ITEMS = (PATCH * 2 + LOADERS - 1) / LOADERS;
    static constexpr int CHUNK = (TAPS + (TAPS + 4) / 5 - 1) / ((TAPS + 4) / 5), PITCH = (LINES * 8 + 23) / 32 * 32 + 8;
    static constexpr int DONE = 2, FILLED = 4, EMPTIED = 6;  // barriers; of the last two one for each place of what is cut
    float sum[SUMS] = {};
    const int group = threadIdx.x % 32 / 4, within = threadIdx.x % 4;  // where the lane's elements of a fragment lie

    __device__ __forceinline__ static float* weights_of(float* memory, int step) { return memory + step % PLACES * WEIGHTS; }
    __device__ __forceinline__ static float* cut_of(float* memory, int step) { return memory + PLACES * WEIGHTS + step % 2 * 2 * CUT; }

    // `weights(step)` and `plane(step)` are where a stage's weights and its first channel lie, null for a plane outside the image; its channels are
    // `apart`. The patch begins `below(step)` lines below line `from_h`, and at position `from_w`, of a plane of `height` lines of `width`.
    template <class Weights, class Plane, class Below>
    __device__ __forceinline__ static void bring(float* memory, int steps, int apart, int from_h, int from_w, int height, int width,
                                                 const Weights& weights, const Plane& plane, const Below& below) {
        int offset[ITEMS], line[ITEMS];
        float value[ITEMS][4];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int at = threadIdx.x + i * LOADERS, w = from_w + at % PATCH % LINE;
            line[i] = at < PATCH * 2 && (unsigned)w < width ? from_h + at % PATCH / LINE : -(1 << 30);  // far above the plane
            offset[i] = at / PATCH * 4 * apart + w;
        }
        const auto fetch = [&](int step) {
            step = of_unknown_range(step);
            const float* const from = plane(step);
            const int down = below(step);
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const bool inside = from && (unsigned)(line[i] + down) < height;
                const float* const at = from + (int)(offset[i] + (unsigned)(line[i] + down) * width);  // read where it is inside
#pragma unroll
                for (int q = 0; q < 4; ++q) value[i][q] = inside ? __ldg(at + q * apart) : 0.0f;
            }
        };
        const auto load_weights = [&](int step) {
            const float* const from = weights(step);
            float* const to = weights_of(memory, step);
            for (int at = threadIdx.x * 4; at < WEIGHTS; at += LOADERS * 4) copy_async16(to + at, from + at, true);
        };
        fetch(0);
        for (int step = 0; step < PLACES; ++step) {
            if (step < steps) load_weights(step);
            copies_commit();
        }
        for (int step = 0; step < steps; ++step) {
            if (step >= 2) {  // the stage before the last has been multiplied
                barrier_wait(EMPTIED + step % 2, THREADS);
                if (step + 1 < steps) load_weights(step + 1);
                copies_commit();
            }
            float* const to = cut_of(memory, step);
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const int at = threadIdx.x + i * LOADERS;
                if (at >= PATCH * 2) continue;
                uint4 high, low;
                cut(value[i][0], high.x, low.x);
                cut(value[i][1], high.y, low.y);
                cut(value[i][2], high.z, low.z);
                cut(value[i][3], high.w, low.w);
                *(uint4*)(to + at * 4) = high;
                *(uint4*)(to + CUT + at * 4) = low;
            }
            copies_wait<1>();
            shared_memory_for_tensor_cores();
            barrier_arrive(FILLED + step % 2, THREADS);
            if (step + 1 < steps) fetch(step + 1);
        }
        copies_wait<0>();
    }

    __device__ __forceinline__ void multiply(float* memory, int steps) {
        for (int step = 0; step < steps; ++step) {
            barrier_wait(FILLED + step % 2, THREADS);
            const float* const a = weights_of(memory, step) + threadIdx.x % 128 * 4;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap += CHUNK) multiply_chunk(a, cut_of(memory, step), tap);
            if (step + 2 < steps) barrier_arrive(EMPTIED + step % 2, THREADS);
        }
        barrier_wait(DONE, THREADS - LOADERS);
    }

    // The small products first.
    __device__ __forceinline__ void multiply_chunk(const float* a, const float* b, int tap) {
        unsigned high[CHUNK][4], low[CHUNK][4];
        float part[SUMS];
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) {
            if (tap + e >= TAPS) continue;
            const float4 value = *(const float4*)(a + (tap + e) * 512);
            cut(value.x, high[e][0], low[e][0]);
            cut(value.y, high[e][1], low[e][1]);
            cut(value.z, high[e][2], low[e][2]);
            cut(value.w, high[e][3], low[e][3]);
        }
        group_begin();
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) {
            if (tap + e >= TAPS) continue;
            const float* const seen = b + ((tap + e) / TAPS_W * STEP_H * LINE + (tap + e) % TAPS_W * STEP_W) * 4;
            multiply_group<PATCH, LINE>(Columns<LINES * 8>(), part, low[e], seen, e > 0);
            multiply_group<PATCH, LINE>(Columns<LINES * 8>(), part, high[e], seen + CUT, true);
        }
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) {
            if (tap + e >= TAPS) continue;
            const float* const seen = b + ((tap + e) / TAPS_W * STEP_H * LINE + (tap + e) % TAPS_W * STEP_W) * 4;
            multiply_group<PATCH, LINE>(Columns<LINES * 8>(), part, high[e], seen, true);
        }
        group_commit();
        group_wait(part);
#pragma unroll
        for (int at = 0; at < SUMS; ++at) sum[at] += part[at];
    }

    // The finished tile in shared memory: a row of PITCH floats for each channel, line by line.
    __device__ __forceinline__ void put(float* memory) {
        const int row = threadIdx.x % 128 / 32 * 16 + group;
#pragma unroll
        for (int at = 0; at < SUMS; ++at) memory[(row + at / 2 % 2 * 8) * PITCH + at / 4 * 8 + within * 2 + at % 2] = sum[at];
    }
};
"""
