# task: tasks/softmax.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton, one row per program
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_row(x, scale, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    gain = tl.load(scale + offsets, mask=inside, other=0.0)
    tl.store(y + row * columns + offsets, values / tl.sum(values, 0) * gain, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_row[(x.shape[0],)](x, self.scale, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
        return y
