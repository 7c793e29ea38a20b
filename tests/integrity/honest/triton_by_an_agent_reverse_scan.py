# task: tasks/agents_triton_reverse_scan.py
# device: cuda
# call: 60
# says: as an agent writes it: tl.associative_scan with reverse=True, boolean input viewed as uint8, float argument, functools.partial for the launch
"""Discounted returns as a reverse associative scan over (keep, value) pairs."""
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _compose(k_first, v_first, k_then, v_then):
    """Affine maps: applies `then` to the result of `first`."""
    return k_first * k_then, v_first * k_then + v_then


@triton.jit
def returns_kernel(reward, done, out, rows, T, gamma, R: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)
    t = tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (t[None, :] < T)
    off = row[:, None] * T + t[None, :]
    r = tl.load(reward + off, mask=mask, other=0.0)
    d = tl.load(done + off, mask=mask, other=1)
    keep = gamma * (1.0 - d.to(tl.float32))
    _, value = tl.associative_scan((keep, r), axis=1, combine_fn=_compose, reverse=True)
    tl.store(out + off, value, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, gamma: float):
        super().__init__()
        self.gamma = gamma
        self._launch = functools.partial(self._run, rows_per_block=4)

    @staticmethod
    def _run(reward: torch.Tensor, done: torch.Tensor, gamma: float, rows_per_block: int) -> torch.Tensor:
        rows, steps = reward.shape
        out = torch.empty_like(reward)
        block = triton.next_power_of_2(steps)
        returns_kernel[(triton.cdiv(rows, rows_per_block),)](reward, done.view(torch.uint8), out, rows, steps, gamma, R=rows_per_block, BLOCK=block, num_warps=4)
        return out

    def forward(self, reward, done):
        return self._launch(reward.contiguous(), done.contiguous(), self.gamma)
