# task: tasks/observed_range.py
# device: any
# says: moves a buffer on that is in no state dict, in place
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
