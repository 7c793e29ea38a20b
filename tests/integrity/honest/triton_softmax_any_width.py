# task: tasks/variants.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton with loops over a row, so that any width works
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_loop(x, y, columns, row_step, column_step, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    start = x + row * row_step
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, columns, BLOCK):
        offsets = at + tl.arange(0, BLOCK)
        values = tl.load(start + offsets * column_step, mask=offsets < columns, other=-float("inf"))
        higher = tl.maximum(top, values)
        keep = tl.where(top == -float("inf"), 0.0, tl.exp(top - higher))
        add = tl.where(values == -float("inf"), 0.0, tl.exp(values - higher))
        total = total * keep + add
        top = higher
    best = tl.max(top, 0)
    total = tl.sum(tl.where(top == -float("inf"), 0.0, total * tl.exp(top - best)), 0)
    for at in range(0, columns, BLOCK):
        offsets = at + tl.arange(0, BLOCK)
        inside = offsets < columns
        values = tl.load(start + offsets * column_step, mask=inside, other=-float("inf"))
        tl.store(y + row * columns + offsets, tl.exp(values - best) / total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        softmax_loop[(x.shape[0],)](x, y, x.shape[1], x.stride(0), x.stride(1), BLOCK=512)
        return y
