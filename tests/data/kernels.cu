// nvcc -O3 -std=c++17 -fatbin -Xfatbin -compress-all -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
//      -gencode arch=compute_120,code=sm_120 kernels.cu -o kernels.fatbin        (CUDA 13.0; ptxas -v says the figures that the test expects)
namespace ns {
template <int N>
__global__ void __launch_bounds__(256) wide(const float4* x, float4* y) {
    __shared__ float s[N * 32];
    float4 v = x[threadIdx.x + blockIdx.x * 256];
    s[threadIdx.x] = v.x;
    __syncthreads();
    v.y += s[threadIdx.x ^ 1];
    y[threadIdx.x + blockIdx.x * 256] = v;
}
template __global__ void wide<8>(const float4*, float4*);
}  // namespace ns

extern "C" __global__ void scalar(const float* x, float* y, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) y[i] = x[i] * 2.f + x[i + 1];
}

// Forty values live at once in 32 registers: the rest is spilled.
__global__ void __maxnreg__(32) spilled(const float* x, float* y) {
    float r[40];
#pragma unroll
    for (int i = 0; i < 40; i++) r[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 40; i++) y[i * 1024 + threadIdx.x] = fmaf(r[i], r[(i + 7) % 40], r[(i * 3) % 40]);
}
