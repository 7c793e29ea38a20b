import torch
import torch.nn as nn


class Model(nn.Module):
    """Two products with a matrix that starts as the identity, as in layers that must not disturb existing ones."""

    def __init__(self, features):
        super().__init__()
        self.matrix = nn.Parameter(torch.eye(features))

    def forward(self, x):
        return torch.relu(x @ self.matrix @ self.matrix)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [512]
