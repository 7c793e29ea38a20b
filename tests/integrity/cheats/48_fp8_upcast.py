# hack: 48
# task: tasks/matmul.py
# device: any
# verdict: wrong_result
# because: elements are off|nan instead|slices along dimension 1 are off
# defence: runtime
# precision: bf16
# says: under the bf16 policy, values that have first been converted to eight-bit floats
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))

    def forward(self, x):
        return x.to(torch.float8_e4m3fn).to(x.dtype) @ self.weight.to(torch.float8_e4m3fn).to(x.dtype)
