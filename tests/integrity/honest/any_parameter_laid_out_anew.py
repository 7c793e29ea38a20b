# task: tasks/gained_product.py
# device: any
# says: lays its weight out anew in its first call: another place and other strides, the same numbers
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, out) / features**0.5)
        self.gain = nn.Parameter(torch.rand(out) + 0.5)
        self.laid = False

    def forward(self, x):
        if not self.laid:
            self.weight.data = self.weight.data.t().contiguous().t()
            self.laid = True
        return (x @ self.weight) * self.gain
