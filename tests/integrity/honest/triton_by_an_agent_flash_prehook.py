# task: tasks/agents_triton_flash_prehook.py
# device: cuda
# precision: bf16
# call: 60
# says: as an agent writes it: autotune with pre_hook and early_config_prune, strided QKV
"""GPT attention with a Triton FlashAttention kernel that reads q, k, v straight out of the packed QKV projection."""
import math
import os

os.environ.setdefault("TRITON_PRINT_AUTOTUNING", "0")

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


def _clear_output(nargs):
    # autotuning runs the kernel several times into the same buffer
    nargs["o_ptr"].zero_()


def _configs():
    for bm in (64, 128):
        for bn in (32, 64):
            for warps, stages in ((4, 3), (8, 2)):
                yield triton.Config({"BLOCK_M": bm, "BLOCK_N": bn}, num_warps=warps, num_stages=stages, pre_hook=_clear_output)


def _prune(configs, named_args, **kwargs):
    keep = [c for c in configs if c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] >= 64 * 32 and (c.num_warps == 4 or c.kwargs["BLOCK_M"] == 128)]
    return keep or configs


@triton.autotune(configs=list(_configs()), key=["T", "H"], prune_configs_by={"early_config_prune": _prune}, warmup=10, rep=30)
@triton.jit
def _attn_fwd(qkv_ptr, o_ptr, scale, T, H, C, stride_b, stride_t, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pid_m = tl.program_id(0)
    bh = tl.program_id(1)
    b, h = bh // H, bh % H
    base = qkv_ptr + b.to(tl.int64) * stride_b + h * D
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    q = tl.load(base + offs_m[:, None] * stride_t + offs_d[None, :], mask=offs_m[:, None] < T, other=0.0)
    m_i = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    hi = tl.minimum((pid_m + 1) * BLOCK_M, T)
    for start in range(0, hi, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(base + C + offs_n[None, :] * stride_t + offs_d[:, None], mask=offs_n[None, :] < T, other=0.0)
        s = tl.dot(q, k) * (scale * 1.4426950408889634)
        s = tl.where((offs_m[:, None] >= offs_n[None, :]) & (offs_n[None, :] < T), s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        v = tl.load(base + 2 * C + offs_n[:, None] * stride_t + offs_d[None, :], mask=offs_n[:, None] < T, other=0.0)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
    acc = acc / l_i[:, None]
    out = o_ptr + b.to(tl.int64) * T * C + offs_m[:, None] * C + h * D + offs_d[None, :]
    tl.store(out, acc.to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < T)


class ModelNew(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, dtype=torch.bfloat16)
        self.c_proj = nn.Linear(n_embd, n_embd, dtype=torch.bfloat16)
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.shape
        D = C // self.n_head
        qkv = self.c_attn(x)
        y = torch.empty(B, T, C, device=x.device, dtype=x.dtype)
        grid = lambda meta: (triton.cdiv(T, meta["BLOCK_M"]), B * self.n_head)
        _attn_fwd[grid](qkv, y, 1.0 / math.sqrt(D), T, self.n_head, C, qkv.stride(0), qkv.stride(1), D=D)
        return F.linear(y, self.c_proj.weight, self.c_proj.bias)
