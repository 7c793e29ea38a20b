"""The CUDA C++ source text for direct_conv.py."""

from __future__ import annotations

MULTIPLY = r"""// Sums of a warp: 16 * DOWN output channels at 32 positions, four runs of 8 side by side, ACROSS of them in a line.
// `weights` are fragments, cut; `patch` is the image from this lane's channel and position on; `places` say where in it the elements of two
// steps lie.
template <int DOWN, int STEPS, int ACROSS, int LINE, int RUN>
__device__ __forceinline__ void multiply_window(float (&sum)[DOWN][4][4], const uint4* weights, const float* patch, const int4* places) {
#pragma unroll 1
    for (int pair = 0; pair < STEPS / 2; ++pair) {
        const int4 at = places[pair];
        const int place[2][2] = {{at.x, at.y}, {at.z, at.w}};
        unsigned b_high[2][4][2], b_low[2][4][2];
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) cut(patch[place[e][r] + j / ACROSS * LINE + j % ACROSS * RUN], b_high[e][j][r], b_low[e][j][r]);
#pragma unroll
        for (int i = 0; i < DOWN; ++i) {
            unsigned a_high[2][4], a_low[2][4];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const uint4* of_step = weights + (i * STEPS + pair * 2 + e) * 64;
                const uint4 high = of_step[0], low = of_step[32];
                a_high[e][0] = high.x, a_high[e][1] = high.y, a_high[e][2] = high.z, a_high[e][3] = high.w;
                a_low[e][0] = low.x, a_low[e][1] = low.y, a_low[e][2] = low.z, a_low[e][3] = low.w;
            }
            float part[4][4] = {};
#pragma unroll
            for (int e = 0; e < 2; ++e) {  // the small products first
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply_tf32(part[j], a_low[e], b_high[e][j]);
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply_tf32(part[j], a_high[e], b_low[e][j]);
            }
#pragma unroll
            for (int e = 0; e < 2; ++e)
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply_tf32(part[j], a_high[e], b_high[e][j]);
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int r = 0; r < 4; ++r) sum[i][j][r] += part[j][r];
        }
    }
}
"""
