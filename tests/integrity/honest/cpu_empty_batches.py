# task: tasks/any_batch.py
# device: any
# says: an input without rows is permitted
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        if x.shape[0] == 0:
            return torch.empty_like(x)
        return torch.maximum(x, 0.2 * x).mul_(self.gain)
