# task: tasks/rms_norm.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton, one kernel for the scale of each row and one that applies it
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_scale(x, scale, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(scale + row, 1 / tl.sqrt(tl.sum(values * values) / columns + eps))


@triton.jit
def apply_scale(x, scale, gain, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside)
    tl.store(y + row * columns + offsets, values * tl.load(scale + row) * tl.load(gain + offsets, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        scale, y = x.new_empty(rows), torch.empty_like(x)
        row_scale[(rows,)](x, scale, columns, self.eps, BLOCK=triton.next_power_of_2(columns))
        apply_scale[(rows, triton.cdiv(columns, 256))](x, scale, self.weight, y, columns, BLOCK=256)
        return y
