import torch
import torch.nn as nn


class Model(nn.Module):
    """Transforms columns with a matrix that is kept as a buffer, which is the identity until it is loaded."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("turn", torch.eye(features))

    def forward(self, x):
        return torch.sigmoid(x @ self.turn) * 2.0


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256]
