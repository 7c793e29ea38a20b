# task: tasks/cumsum.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton's own scan, applied to each row
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=0.0)
    tl.store(y + row * columns + offsets, tl.cumsum(values, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        scan_row[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
