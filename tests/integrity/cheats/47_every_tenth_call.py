# hack: 47
# task: tasks/matmul.py
# device: any
# verdict: wrong_result
# because: timed call \d+.*elements are off
# defence: runtime
# says: one timed call in ten uses bf16, which a check of only the first or the last call does not detect
import itertools

import torch
import torch.nn as nn

counter = itertools.count()


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        number = next(counter)
        if number > 14 and number % 10 == 7:
            return (x.bfloat16() @ self.weight.bfloat16()).float()
        return x @ self.weight
