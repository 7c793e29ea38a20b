# task: tasks/embed_sum.py
# device: cuda
# verdict: class custom
# call: 60
# says: Triton with integer inputs and two outputs
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_sum(indices, table, y, used, features, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < features
    total = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((), tl.int64)
    for i in range(LENGTH):
        index = tl.load(indices + row * LENGTH + i)
        total += tl.load(table + index * features + offsets, mask=inside, other=0.0)
        count += (index != 0).to(tl.int64)
    tl.store(y + row * features + offsets, total, mask=inside)
    tl.store(used + row, count)


class ModelNew(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, features))

    def forward(self, indices):
        indices = indices.contiguous()
        rows, length = indices.shape
        features = self.table.shape[1]
        y = torch.empty(rows, features, device=indices.device)
        used = torch.empty(rows, dtype=torch.int64, device=indices.device)
        gather_sum[(rows,)](indices, self.table, y, used, features, LENGTH=length, BLOCK=triton.next_power_of_2(features))
        return y, used
