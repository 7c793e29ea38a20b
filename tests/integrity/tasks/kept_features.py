import torch
import torch.nn as nn


class Model(nn.Module):
    """A layer some of whose features may have been pruned; as constructed, all of them are kept."""

    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.register_buffer("keep", torch.ones(features, dtype=torch.bool))

    def forward(self, x):
        return torch.relu(torch.where(self.keep, x @ self.weight, -1.0)) + x


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256]
