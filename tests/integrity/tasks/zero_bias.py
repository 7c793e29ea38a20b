import torch
import torch.nn as nn


class Model(nn.Module):
    """Has a bias that starts at zero and an affine map that starts as the identity, as many initialisers leave them."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.bias = nn.Parameter(torch.zeros(features))
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x @ self.weight + self.bias)


def get_inputs():
    return [torch.rand(256, 256)]


def get_init_inputs():
    return [256]
