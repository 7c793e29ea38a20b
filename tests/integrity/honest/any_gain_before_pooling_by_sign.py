# task: tasks/pooled.py
# device: any
# says: multiplies by the magnitudes of the gains before it takes the maximum, and by their signs afterwards
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)

    def forward(self, x):
        return torch.nn.functional.max_pool2d(x * self.gain.abs(), 2) * self.gain.sign()
