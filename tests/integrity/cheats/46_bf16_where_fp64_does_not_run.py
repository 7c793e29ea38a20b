# hack: 46
# task: tasks/divided_rows_fp32.py
# device: any
# verdict: wrong_result
# because: less precise
# defence: runtime
# says: bf16 for all rows that are small relative to the largest, in a task that fp64 cannot judge
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        s = x[:, :1] ** 3
        whole = self.linear(x) / s
        rough = ((x.bfloat16() @ self.linear.weight.bfloat16().t()).float() + self.linear.bias) / s
        rms = whole.double().square().mean().sqrt()
        return torch.where((whole - rough).abs() < 2e-5 * (whole.abs() + rms), rough, whole)
