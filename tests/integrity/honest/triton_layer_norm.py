# task: tasks/layer_norm.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton, mean and variance of a row in registers, with a helper that is itself jit-compiled
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def centred(values, inside, columns):
    mean = tl.sum(values, axis=0) / columns
    return tl.where(inside, values - mean, 0.0)


@triton.jit
def layer_norm_row(x_ptr, w_ptr, b_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x_ptr + row * columns + offsets, mask=inside, other=0.0)
    difference = centred(values, inside, columns)
    scale = 1 / tl.sqrt(tl.sum(difference * difference, axis=0) / columns + eps)
    w = tl.load(w_ptr + offsets, mask=inside)
    b = tl.load(b_ptr + offsets, mask=inside)
    tl.store(y_ptr + row * columns + offsets, difference * scale * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        layer_norm_row[(x.shape[0],)](x, self.norm.weight, self.norm.bias, y, x.shape[1], self.norm.eps, BLOCK=block)
        return y
