# task: tasks/scales_in_place.py
# device: any
# says: the task changes its input and returns it, and so does this program
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x):
        torch.mul(x, self.factor, out=x)
        return x, torch.einsum("rc->r", x)
