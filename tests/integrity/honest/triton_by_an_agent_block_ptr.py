# task: tasks/agents_triton_block_ptr.py
# device: cuda
# precision: bf16
# call: 60
# says: as an agent writes it: tl.make_block_ptr and tl.advance, grouped tiles, constexpr globals, grid by lambda, triton.testing imported but unused, tanh by tl.exp
import torch
import torch.nn as nn
import triton
import triton.language as tl
import triton.testing

SQRT_2_OVER_PI: tl.constexpr = tl.constexpr(0.7978845608028654)
GROUP_M = tl.constexpr(8)


@triton.jit
def tanh_fast(v):
    # tanh(v) = 2 * sigmoid(2 v) - 1
    return 2.0 * tl.sigmoid(2.0 * v) - 1.0


@triton.jit
def gelu_tanh(v):
    return 0.5 * v * (1.0 + tanh_fast(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v)))


@triton.jit
def linear_gelu_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, sxm, sxk, swn, swk, sym, syn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    per_group = GROUP_M * tiles_n
    first_m = (pid // per_group) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    pid_m = first_m + (pid % per_group) % rows
    pid_n = (pid % per_group) // rows
    x_block = tl.make_block_ptr(x_ptr, shape=(M, K), strides=(sxm, sxk), offsets=(pid_m * BM, 0), block_shape=(BM, BK), order=(1, 0))
    w_block = tl.make_block_ptr(w_ptr, shape=(K, N), strides=(swk, swn), offsets=(0, pid_n * BN), block_shape=(BK, BN), order=(0, 1))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        w = tl.load(w_block, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, w, acc)
        x_block = tl.advance(x_block, (0, BK))
        w_block = tl.advance(w_block, (BK, 0))
    cols = pid_n * BN + tl.arange(0, BN)
    acc += tl.load(b_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    y_block = tl.make_block_ptr(y_ptr, shape=(M, N), strides=(sym, syn), offsets=(pid_m * BM, pid_n * BN), block_shape=(BM, BN), order=(1, 0))
    tl.store(y_block, gelu_tanh(acc).to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.bfloat16)

    def forward(self, x):
        w = self.linear.weight
        flat = x.reshape(-1, x.shape[-1])
        M, K = flat.shape
        N = w.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
        linear_gelu_kernel[grid](
            flat, w, self.linear.bias, y, M, N, K, flat.stride(0), flat.stride(1), w.stride(0), w.stride(1), y.stride(0), y.stride(1),
            BM=128, BN=128, BK=64, num_warps=8, num_stages=3,
        )
        return y.view(*x.shape[:-1], N)
