import torch
import torch.nn as nn


class Model(nn.Module):
    """Gated residual with per-channel affine and a squared ReLU."""

    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))

    def forward(self, x, gate, residual):
        h = torch.relu(x * self.alpha + self.beta) ** 2
        return residual + torch.sigmoid(gate) * h


def get_inputs():
    shape = (8192, 2048)
    return [torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs():
    return [2048]
