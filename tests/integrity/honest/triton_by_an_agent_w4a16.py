# task: tasks/agents_triton_w4a16.py
# device: cuda
# precision: fp16
# call: 60
# says: as an agent writes it: int4 weights, split-K by atomics, reset_to_zero, float buffers as zero points
import torch
import torch.nn as nn
import triton
import triton.language as tl

# Even rows of K sit in the low nibble and odd rows in the high nibble, so instead of interleaving the unpacked
# weights, the activations are split into even and odd columns: x @ W = x_even @ W_lo + x_odd @ W_hi.


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "SPLIT_K": 4}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "SPLIT_K": 4}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "SPLIT_K": 2}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "SPLIT_K": 4}, num_warps=4, num_stages=4),
    ],
    key=["M", "N", "K"],
    reset_to_zero=["acc_ptr"],
)
@triton.jit
def w4a16_kernel(
    x_ptr, packed_ptr, scale_ptr, zero_ptr, acc_ptr, M, N, K, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT_K: tl.constexpr,
):
    pid_n = tl.program_id(0)
    pid_m = tl.program_id(1)
    pid_k = tl.program_id(2)
    HALF: tl.constexpr = GROUP // 2
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    half = tl.arange(0, HALF)
    groups = K // GROUP
    per = tl.cdiv(groups, SPLIT_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for g in range(pid_k * per, tl.minimum((pid_k + 1) * per, groups)):
        ks = g * GROUP + 2 * half
        xe = tl.load(x_ptr + rows[:, None] * K + ks[None, :], mask=rows[:, None] < M, other=0.0)
        xo = tl.load(x_ptr + rows[:, None] * K + ks[None, :] + 1, mask=rows[:, None] < M, other=0.0)
        p = tl.load(packed_ptr + (g * HALF + half)[:, None] * N + cols[None, :])
        s = tl.load(scale_ptr + g * N + cols)
        z = tl.load(zero_ptr + g * N + cols)
        lo = ((p & 0xF).to(tl.float16) - z[None, :]) * s[None, :]
        hi = ((p >> 4).to(tl.float16) - z[None, :]) * s[None, :]
        acc = tl.dot(xe, lo, acc)
        acc = tl.dot(xo, hi, acc)
    tl.atomic_add(acc_ptr + rows[:, None] * N + cols[None, :], acc, mask=rows[:, None] < M, sem="relaxed")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, group=128):
        super().__init__()
        self.group = group
        self.register_buffer("packed", torch.randint(0, 256, (in_features // 2, out_features), dtype=torch.uint8))
        self.register_buffer("scales", (torch.rand(in_features // group, out_features) * 0.02 + 0.005).to(torch.float16))
        self.register_buffer("zeros", torch.randint(5, 11, (in_features // group, out_features)).to(torch.float16))

    def forward(self, x):
        M, K = x.shape
        N = self.packed.shape[1]
        acc = torch.zeros((M, N), device=x.device, dtype=torch.float32)
        grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]), meta["SPLIT_K"])
        w4a16_kernel[grid](x, self.packed, self.scales, self.zeros, acc, M, N, K, GROUP=self.group)
        return acc.to(x.dtype)
