# hack: 66
# task: tasks/logs.py
# device: any
# verdict: wrong_result
# because: nan instead of
# defence: runtime
# says: returns NaN for all outputs of a task in which half of the outputs are NaN, hoping for equal_nan
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, float("nan"))
