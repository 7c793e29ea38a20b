# task: tasks/observed_range.py
# device: any
# says: updates in place a buffer that is not in any state dict
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_buffer("range", torch.zeros(features), persistent=False)

    def forward(self, x):
        y = self.linear(x)
        torch.maximum(self.range, y.abs().amax(dim=0), out=self.range)
        return y
