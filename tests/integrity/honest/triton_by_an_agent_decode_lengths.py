# task: tasks/agents_triton_decode_lengths.py
# device: cuda
# call: 60
# says: as an agent writes it: flash decoding with splits chosen from the SM count, partial results in a cached workspace, empty splits, int32 lengths, second kernel
from __future__ import annotations

import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def decode_split(q_ptr, k_ptr, v_ptr, len_ptr, part_ptr, ml_ptr, scale, H, T, per_split, SPLITS, D: tl.constexpr, BLOCK: tl.constexpr):
    bh, split = tl.program_id(0), tl.program_id(1)
    length = tl.load(len_ptr + bh // H)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + bh * D + d)
    begin = split * per_split
    end = tl.minimum(begin + per_split, length)
    m = -float("inf")
    l = 0.0  # noqa: E741
    acc = tl.zeros((D,), dtype=tl.float32)
    base = bh.to(tl.int64) * T * D
    for t0 in range(begin, end, BLOCK):
        t = t0 + tl.arange(0, BLOCK)
        ok = t < end
        k = tl.load(k_ptr + base + t[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        s = tl.where(ok, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        alpha = tl.exp(m - m_new)
        p = tl.exp(s - m_new)
        v = tl.load(v_ptr + base + t[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        acc = acc * alpha + tl.sum(p[:, None] * v, axis=0)
        l = l * alpha + tl.sum(p, axis=0)  # noqa: E741
        m = m_new
    slot = bh * SPLITS + split
    tl.store(part_ptr + slot * D + d, acc)
    tl.store(ml_ptr + slot * 2, m)
    tl.store(ml_ptr + slot * 2 + 1, l)


@triton.jit
def decode_merge(part_ptr, ml_ptr, out_ptr, SPLITS: tl.constexpr, D: tl.constexpr):
    bh = tl.program_id(0)
    s = tl.arange(0, SPLITS)
    d = tl.arange(0, D)
    m = tl.load(ml_ptr + (bh * SPLITS + s) * 2)
    l = tl.load(ml_ptr + (bh * SPLITS + s) * 2 + 1)  # noqa: E741
    w = tl.where(l == 0.0, 0.0, tl.exp(m - tl.max(m, axis=0)))  # an empty split weighs nothing
    part = tl.load(part_ptr + (bh * SPLITS + s)[:, None] * D + d[None, :])
    tl.store(out_ptr + bh * D + d, tl.sum(part * w[:, None], axis=0) / tl.sum(l * w, axis=0))


@functools.lru_cache(maxsize=8)
def _splits(pairs: int, tokens: int, index: int) -> int:
    sms = torch.cuda.get_device_properties(index).multi_processor_count
    wanted = triton.next_power_of_2(max(1, 4 * sms // pairs))
    return min(wanted, 64, triton.next_power_of_2(triton.cdiv(tokens, 64)))


class ModelNew(nn.Module):
    def __init__(self, heads: int, dim: int):
        super().__init__()
        self.scale = dim**-0.5
        self._work: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        B, H, T, D = k.shape
        splits = _splits(B * H, T, q.device.index or 0)
        key = (B * H, splits, D, q.device)
        if key not in self._work:
            self._work[key] = (q.new_empty(B * H * splits * D), q.new_empty(B * H * splits * 2))
        part, ml = self._work[key]
        out = torch.empty_like(q)
        args = (q.contiguous(), k.contiguous(), v.contiguous(), lengths)
        decode_split[(B * H, splits)](*args, part, ml, self.scale, H, T, triton.cdiv(T, splits), splits, D=D, BLOCK=64, num_warps=4)
        decode_merge[(B * H,)](part, ml, out, SPLITS=splits, D=D, num_warps=2)
        return out
