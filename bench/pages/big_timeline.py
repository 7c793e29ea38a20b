"""Makes a recording that resembles training steps, with any number of events.

The recording has several GPUs with three streams each, launches that run ahead of the streams, nested ranges, and operators. Durations are drawn per
kernel from the times that a transformer's kernels take on an H200."""

from __future__ import annotations

import numpy as np

from verifier.profiling.timeline import COLUMNS, KINDS, Row, Timeline

_KERNEL, _COPY, _SET, _API, _NVTX, _OPERATOR = (KINDS.index(kind) for kind in ("kernel", "memcpy", "memset", "api", "nvtx", "operator"))
# name, microseconds, fraction of the launches
KERNELS = [
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", 62.0, 0.16),
    ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, false, true>(flash::Flash_fwd_params)", 118.0, 0.04),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3>>(int, at::native::Add)", 4.1, 0.24),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)", 9.3, 0.08),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(at::native::ReduceOp)", 6.2, 0.10),
    ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int, at::native::Copy)", 2.4, 0.20),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false>(float*, float const*, int)", 14.0, 0.05),
    ("void fused_bias_gelu<4>(float const*, float const*, float*, int)", 7.7, 0.10),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)", 240.0, 0.03),
]
OPERATORS = ["aten::linear", "aten::addmm", "aten::add_", "aten::native_layer_norm", "aten::copy_", "aten::scaled_dot_product_attention"]
BLOCKS = ["attention", "mlp", "norm", "residual"]
CALLS_A_BLOCK, BLOCKS_A_LAYER, LAYERS = 8, 4, 24
EVENTS_A_CALL = 2.06 + 1.0 / CALLS_A_BLOCK * (1 + 1 / BLOCKS_A_LAYER) + 0.9


def big_timeline(events: int = 1_000_000, gpus: int = 2, seed: int = 1) -> Timeline:
    rng = np.random.default_rng(seed)
    names = [name for name, _, _ in KERNELS] + ["Memcpy HtoD", "Memset", "cudaLaunchKernel", "cudaMemcpyAsync", *OPERATORS, *BLOCKS]
    names += [f"layer {i}" for i in range(LAYERS)] + ["iter"]
    number = {name: index for index, name in enumerate(names)}
    rows: list[Row] = []
    parts: list[dict[str, np.ndarray]] = []
    launched = 0

    def add(row: int, kind: np.ndarray | int, name: np.ndarray | int, start: np.ndarray, duration: np.ndarray, **more: np.ndarray | int) -> None:
        columns = {"start": start, "duration": duration, "name": name, "row": row, "kind": kind, "correlation": 0, "depth": 0, "detail": 0} | more
        parts.append({key: np.broadcast_to(np.asarray(value), start.shape).astype(dtype) for (key, dtype) in COLUMNS for value in [columns[key]]})

    calls = int(events / gpus / EVENTS_A_CALL)
    for gpu in range(gpus):
        first = len(rows)
        device = f"NVIDIA H200 {gpu}" if gpus > 1 else "NVIDIA H200"
        rows += [Row(name, "gpu", device) for name in ("Stream 7", "Stream 13", "Stream 20")]
        rows += [
            Row("Ranges", "nvtx", f"NVTX, process {gpu + 1}"),
            Row("CUDA API", "api", f"Process {gpu + 1}"),
            Row("Thread 1", "thread", f"Process {gpu + 1}"),
        ]
        which = rng.choice(len(KERNELS), calls, p=[share for _, _, share in KERNELS])
        length = np.array([us for _, us, _ in KERNELS])[which] * 1e3 * rng.lognormal(0.0, 0.12, calls)
        call_length = rng.lognormal(np.log(4200.0), 0.25, calls)
        pause = np.where(rng.random(calls) < 0.004, rng.uniform(5e4, 4e5, calls), rng.uniform(6e3, 14e3, calls))  # the host stalls occasionally
        called = np.cumsum(call_length + pause) - call_length
        begin = np.empty(calls)
        stream = np.where(which == len(KERNELS) - 1, 1, np.where(rng.random(calls) < 0.01, 2, 0))  # collectives on a second stream, copies on a third
        for one in range(3):
            mine = np.flatnonzero(stream == one)
            gap = rng.lognormal(np.log(900.0), 0.4, len(mine))
            before = np.cumsum(length[mine] + gap) - length[mine] - gap
            begin[mine] = before + np.maximum.accumulate(called[mine] + 5200.0 - before)
            copies = one == 2
            kind, name = (_COPY, number["Memcpy HtoD"]) if copies else (_KERNEL, which[mine])
            add(first + one, kind, name, begin[mine], length[mine], correlation=launched + 1 + mine, detail=0 if copies else 1 + which[mine])
        launch = np.where(stream == 2, number["cudaMemcpyAsync"], number["cudaLaunchKernel"])
        add(first + 4, _API, launch, called, call_length, correlation=launched + 1 + np.arange(calls))
        launched += calls
        wrapped = np.flatnonzero(rng.random(calls) < 0.9)
        operator = number["aten::linear"] + which[wrapped] % len(OPERATORS)
        add(first + 5, _OPERATOR, operator, called[wrapped] - 2500.0, call_length[wrapped] + 3500.0)
        _ranges(add, first + 3, called, called + call_length, number)
    columns = {name: np.concatenate([part[name] for part in parts]) for name, _ in COLUMNS}
    details = [
        {"grid": [132 * (i + 1), 1, 1], "block": [256, 1, 1], "registers": 32 + 8 * i, "shared_static": 0, "shared_dynamic": 4096 * i}
        for i in range(9)
    ]
    return Timeline("nsys", "NVIDIA H200", rows, names, columns, details=details)


def _ranges(add, row: int, begins: np.ndarray, ends: np.ndarray, number: dict[str, int]) -> None:
    """Adds nested ranges (iter > layer > block), each of which encloses the calls made within it."""
    calls = len(begins)
    for depth, size in ((0, CALLS_A_BLOCK * BLOCKS_A_LAYER * LAYERS), (1, CALLS_A_BLOCK * BLOCKS_A_LAYER), (2, CALLS_A_BLOCK)):
        first = np.arange(0, calls, size)
        last = np.minimum(first + size, calls) - 1
        index = np.arange(len(first))
        name = (
            np.full(len(first), number["iter"])
            if depth == 0
            else number["layer 0"] + index % LAYERS
            if depth == 1
            else number[BLOCKS[0]] + index % len(BLOCKS)
        )
        margin = 300.0 * (3 - depth)
        add(row, _NVTX, name, begins[first] - margin, ends[last] - begins[first] + 2 * margin, depth=depth)
