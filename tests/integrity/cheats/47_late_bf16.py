# hack: 47
# task: tasks/matmul.py
# device: any
# verdict: wrong_result
# because: (timed call \d+|constructed again).*elements are off
# defence: runtime
# says: exact while it is tested, and bf16 once it has been called often enough to be timed
import torch
import torch.nn as nn

calls = 0


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        global calls
        calls += 1
        if calls > 18:
            return (x.bfloat16() @ self.weight.bfloat16()).float()
        return x @ self.weight
