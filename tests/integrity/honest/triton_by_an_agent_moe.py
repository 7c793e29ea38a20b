# task: tasks/agents_triton_moe.py
# device: cuda
# precision: bf16
# call: 60
# says: as an agent writes it: sorts on the device, grouped GEMMs by Triton, routing by torch; reference syncs
"""Fused top-k MoE: tokens are sorted by expert on the device (no host synchronisation), two grouped GEMMs run over
block-aligned segments, and a last kernel combines the k expert outputs of each token in a fixed order."""
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK_M = 64


@triton.jit
def _grouped_gemm(
    a_ptr, w_ptr, c_ptr, row_ptr, expert_ptr, n_rows, N, K, stride_we, DIV: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    pid_m = tl.program_id(1)
    pid_n = tl.program_id(0)
    expert = tl.load(expert_ptr + pid_m)
    if expert < 0:
        return
    rows = tl.load(row_ptr + pid_m * BLOCK_M + tl.arange(0, BLOCK_M))     # pair index, or n_rows for padding
    valid = rows < n_rows
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows // DIV)[:, None] * K + ks[None, :]
    w_ptrs = w_ptr + expert.to(tl.int64) * stride_we + cols[None, :] * K + ks[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs + k, mask=valid[:, None], other=0.0)
        w = tl.load(w_ptrs + k)
        acc = tl.dot(a, w, acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask=valid[:, None])


@triton.jit
def _silu_mul(h_ptr, o_ptr, I, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < I
    g = tl.load(h_ptr + row * 2 * I + cols, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(h_ptr + row * 2 * I + I + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(o_ptr + row * I + cols, (g * tl.sigmoid(g) * u).to(o_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _combine(y_ptr, w_ptr, o_ptr, H, TOP_K: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < H
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for j in tl.static_range(TOP_K):
        w = tl.load(w_ptr + token * TOP_K + j)
        acc += w * tl.load(y_ptr + (token * TOP_K + j) * H + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(o_ptr + token * H + cols, acc.to(o_ptr.dtype.element_ty), mask=mask)


class Routing(NamedTuple):
    rows: torch.Tensor      # padded list of (token, slot) pairs, sorted by expert
    experts: torch.Tensor   # expert of each block, -1 beyond the end


def _align(index: torch.Tensor, experts: int) -> Routing:
    flat = index.flatten()
    n = flat.numel()
    order = torch.argsort(flat, stable=True)
    counts = torch.zeros(experts, dtype=torch.int64, device=flat.device).scatter_add_(0, flat, torch.ones_like(flat))
    blocks = (counts + BLOCK_M - 1) // BLOCK_M
    block_end = blocks.cumsum(0)
    block_begin = block_end - blocks
    start = counts.cumsum(0) - counts
    max_blocks = triton.cdiv(n, BLOCK_M) + experts
    sorted_expert = flat[order]
    position = torch.arange(n, device=flat.device) - start[sorted_expert] + block_begin[sorted_expert] * BLOCK_M
    rows = torch.full((max_blocks * BLOCK_M,), n, dtype=torch.int32, device=flat.device)
    rows[position] = order.to(torch.int32)
    ids = torch.searchsorted(block_end, torch.arange(max_blocks, device=flat.device), right=True)
    ids = torch.where(ids < experts, ids, -1).to(torch.int32)
    return Routing(rows, ids)


class ModelNew(nn.Module):
    def __init__(self, hidden: int, inter: int, experts: int, top_k: int):
        super().__init__()
        self.experts, self.top_k = experts, top_k
        self.router = nn.Linear(hidden, experts, bias=False, dtype=torch.bfloat16)
        self.w13 = nn.Parameter(torch.randn(experts, 2 * inter, hidden, dtype=torch.bfloat16) * hidden**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, inter, dtype=torch.bfloat16) * inter**-0.5)

    def forward(self, x):
        T, H = x.shape
        I = self.w2.shape[-1]
        probs = F.linear(x, self.router.weight).float().softmax(-1)
        weight, index = probs.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        rows, block_expert = _align(index, self.experts)
        pairs = T * self.top_k
        n_blocks = block_expert.numel()
        h = x.new_empty(pairs, 2 * I)
        _grouped_gemm[(triton.cdiv(2 * I, 128), n_blocks)](
            x, self.w13, h, rows, block_expert, pairs, 2 * I, H, self.w13.stride(0), DIV=self.top_k, BLOCK_M=BLOCK_M, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=4
        )
        act = x.new_empty(pairs, I)
        _silu_mul[(pairs, triton.cdiv(I, 1024))](h, act, I, BLOCK=1024)
        y = x.new_empty(pairs, H)
        _grouped_gemm[(triton.cdiv(H, 128), n_blocks)](
            act, self.w2, y, rows, block_expert, pairs, H, I, self.w2.stride(0), DIV=1, BLOCK_M=BLOCK_M, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=4
        )
        out = torch.empty_like(x)
        _combine[(T, triton.cdiv(H, 1024))](y, weight, out, H, TOP_K=self.top_k, BLOCK=1024)
        return out
