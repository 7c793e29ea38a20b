import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the largest number in each row, clamped; NaN stays NaN."""

    def forward(self, x):
        return torch.clamp(x.amax(dim=-1), min=0.0, max=6.0)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []
