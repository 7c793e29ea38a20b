# task: tasks/softmax.py
# device: cpu
# verdict: passed
# call: 120
# says: torch.compile on the CPU, openly declared
import torch
import torch.nn as nn


@torch.compile
def scaled(x, scale):
    return torch.softmax(x, dim=-1) * scale


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return scaled(x, self.scale)
