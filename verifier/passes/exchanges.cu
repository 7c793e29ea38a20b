// Measures how long blocks take to exchange values: within a thread block cluster, through distributed shared memory, and across the grid, through L2.
// Compiled for compute capability 9.0 and later only. Host functions return an error of the CUDA runtime.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 256;
constexpr int ROOM = 32768;  // bytes of shared memory that are read from another block

// In every round, each thread gives a value to the next block of the cluster, the cluster waits, and the thread takes what it was given. Two buffers
// alternate, so one barrier a round suffices.
__global__ void __launch_bounds__(THREADS) cluster_rounds(int rounds, float* kept) {
    extern __shared__ float given[];
    cg::cluster_group cluster = cg::this_cluster();
    float* next = cluster.map_shared_rank(given, (cluster.block_rank() + 1) % cluster.num_blocks());
    float value = (float)threadIdx.x;
    cluster.sync();
    for (int round = 0; round < rounds; ++round) {
        const int at = (round & 1) * THREADS + threadIdx.x;
        next[at] = value;
        cluster.sync();
        value = given[at] + 1.0f;
    }
    cluster.sync();  // no block may end while another still writes to it
    if (value < 0.0f) kept[blockIdx.x * THREADS + threadIdx.x] = value;
}

// In every round, each block reads 32 KiB of the next block's shared memory.
__global__ void __launch_bounds__(THREADS) cluster_reads(int rounds, float* kept) {
    extern __shared__ float given[];
    cg::cluster_group cluster = cg::this_cluster();
    for (int at = threadIdx.x; at < ROOM / 4; at += THREADS) given[at] = (float)at;
    const float4* next = (const float4*)cluster.map_shared_rank(given, (cluster.block_rank() + 1) % cluster.num_blocks());
    cluster.sync();
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < ROOM / 16 / THREADS; ++step) {
            const float4 read = next[(step * THREADS + threadIdx.x + round * 32) % (ROOM / 16)];
            sum.x += read.x, sum.y += read.y, sum.z += read.z, sum.w += read.w;
        }
    }
    cluster.sync();
    if (sum.x + sum.y + sum.z + sum.w < 0.0f) kept[blockIdx.x * THREADS + threadIdx.x] = sum.x;
}

// In every round, each thread gives a value to the next block by way of L2, and all blocks wait for each other at a counter. `counter` starts at zero.
__global__ void __launch_bounds__(THREADS) grid_rounds(int rounds, float* given, unsigned* counter, float* kept) {
    float value = (float)threadIdx.x;
    const int next = (blockIdx.x + 1) % gridDim.x;
    for (int round = 0; round < rounds; ++round) {
        float* here = given + (round & 1) * gridDim.x * THREADS;
        __stcg(here + next * THREADS + threadIdx.x, value);
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(counter, 1u);
            while (*(volatile unsigned*)counter < (unsigned)(round + 1) * gridDim.x) {
            }
            __threadfence();
        }
        __syncthreads();
        value = __ldcg(here + blockIdx.x * THREADS + threadIdx.x) + 1.0f;
    }
    if (value < 0.0f) kept[blockIdx.x * THREADS + threadIdx.x] = value;
}

// Prepares a launch of clusters of `size` blocks. `attribute` has to outlive the configuration.
static int prepared(const void* kernel, int size, int blocks, int shared, cudaLaunchAttribute* attribute, cudaLaunchConfig_t* config) {
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (code == cudaSuccess) code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    attribute->id = cudaLaunchAttributeClusterDimension;
    attribute->val.clusterDim.x = size;
    attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    *config = cudaLaunchConfig_t{};
    config->gridDim = dim3(blocks);
    config->blockDim = dim3(THREADS);
    config->dynamicSmemBytes = shared;
    config->attrs = attribute;
    config->numAttrs = 1;
    return (int)code;
}

// `found` is the number of clusters of `size` blocks that are resident at once if each block takes `shared` bytes.
extern "C" int clusters(int size, int shared, int* found) {
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config;
    const int code = prepared((const void*)cluster_rounds, size, size, shared, &attribute, &config);
    return code ? code : (int)cudaOccupancyMaxActiveClusters(found, (const void*)cluster_rounds, &config);
}

// Launches `count` clusters. `reads`: whether blocks read 32 KiB in a round instead of exchanging a value a thread.
extern "C" int in_clusters(int reads, int size, int count, int shared, int rounds, float* kept, void* stream) {
    const void* kernel = reads ? (const void*)cluster_reads : (const void*)cluster_rounds;
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config;
    const int code = prepared(kernel, size, size * count, shared, &attribute, &config);
    if (code) return code;
    config.stream = (cudaStream_t)stream;
    void* arguments[] = {&rounds, &kept};
    return (int)cudaLaunchKernelExC(&config, kernel, arguments);
}

// Launches `blocks` blocks that are resident together, or fails.
extern "C" int across_grid(int blocks, int rounds, float* given, unsigned* counter, float* kept, void* stream) {
    cudaError_t code = cudaMemsetAsync(counter, 0, sizeof(unsigned), (cudaStream_t)stream);
    if (code != cudaSuccess) return (int)code;
    void* arguments[] = {&rounds, &given, &counter, &kept};
    return (int)cudaLaunchCooperativeKernel((const void*)grid_rounds, dim3(blocks), dim3(THREADS), arguments, 0, (cudaStream_t)stream);
}
