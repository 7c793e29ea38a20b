# task: tasks/agents_triton_int8_dynamic.py
# device: cuda
# call: 60
# says: as an agent writes it: dynamic int8 quantisation with tl.div_rn and libdevice.rint, tl.dot of int8 into int32, int8 buffer kept as workspace, two kernels
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice


@triton.jit
def quantise_rows(x_ptr, q_ptr, s_ptr, K, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * K + i, mask=i < K, other=0.0)
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(x), axis=0), 1e-8), 127.0)
    q = libdevice.rint(tl.div_rn(x, tl.zeros_like(x) + scale))
    q = tl.minimum(tl.maximum(q, -127.0), 127.0)
    tl.store(q_ptr + row * K + i, q.to(tl.int8), mask=i < K)
    # A row with NaN or infinity gets NaN as its scale, so that the result is NaN as it is in eager mode.
    finite = tl.sum(tl.where(tl.abs(x) < float("inf"), 0, 1), axis=0) == 0
    tl.store(s_ptr + row, tl.where(finite, scale, float("nan")))


@triton.jit
def int8_gemm(q_ptr, w_ptr, s_ptr, ws_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k0 in range(0, K, BK):
        a = tl.load(q_ptr + m[:, None] * K + (k0 + k)[None, :], mask=m[:, None] < M, other=0)
        b = tl.load(w_ptr + n[None, :] * K + (k0 + k)[:, None], mask=n[None, :] < N, other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    y = acc.to(tl.float32) * tl.load(s_ptr + m, mask=m < M, other=0.0)[:, None] * tl.load(ws_ptr + n, mask=n < N, other=0.0)[None, :]
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.register_buffer("qweight", torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8))
        self.register_buffer("wscale", torch.rand(out_features) * 0.01 + 0.001)
        self.workspace = None

    def forward(self, x):
        x = x.contiguous()
        M, K = x.shape
        N = self.qweight.shape[0]
        if self.workspace is None or self.workspace[0].shape != (M, K) or self.workspace[0].device != x.device:
            self.workspace = (torch.empty((M, K), dtype=torch.int8, device=x.device), torch.empty(M, dtype=torch.float32, device=x.device))
        q, scale = self.workspace
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        quantise_rows[(M,)](x, q, scale, K, BLOCK=triton.next_power_of_2(K), num_warps=4)
        int8_gemm[(triton.cdiv(M, 128), triton.cdiv(N, 128))](q, self.qweight, scale, self.wscale, y, M, N, K, BM=128, BN=128, BK=64, num_warps=8, num_stages=3)
        return y
