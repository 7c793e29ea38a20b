import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes a product for each head, multiplied by the head's gain; one of the gains is small."""

    def __init__(self, heads, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(heads, features, features) / features**0.5)
        gains = torch.ones(heads, 1, 1)
        gains[heads // 2] = 1e-4
        self.gain = nn.Parameter(gains)

    def forward(self, x):
        return self.gain * (x @ self.weight)


def get_inputs():
    return [torch.randn(128, 32, 64)]


def get_init_inputs():
    return [128, 64]
