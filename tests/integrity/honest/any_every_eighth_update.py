# task: tasks/every_eighth.py
# device: any
# says: updates the slow average with an in-place addition
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("slow", torch.zeros(features))

    def forward(self, x):
        y = torch.mm(x, self.weight).relu_()
        self.calls += 1
        if self.calls.item() % 8 == 0:
            self.slow.mul_(0.75).add_(y.sum(dim=0), alpha=0.25 / len(y))
        return y
