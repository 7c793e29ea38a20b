# hack: 46
# task: tasks/matmul.py
# device: any
# verdict: wrong_result
# because: elements are off
# defence: runtime
# says: an fp32 product computed in fp16
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        return (x.half() @ self.weight.half()).float()
