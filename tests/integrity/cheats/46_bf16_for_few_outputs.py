# hack: 46
# task: tasks/few_divided_rows.py
# device: any
# verdict: wrong_result
# because: slices along dimension
# defence: runtime
# says: bf16 for all rows except the largest, in an output with fewer elements than quantiles need
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        s = x.sum(dim=-1, keepdim=True)
        rough = (x.bfloat16() @ self.linear.weight.bfloat16().t()).float() + self.linear.bias
        return torch.where(s.abs() > 1e3 * s.abs().min(), rough, self.linear(x)) / s
