import torch
import torch.nn as nn


class Model(nn.Module):
    """Normalises rows whose mean is a thousand times their spread."""

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])


def get_inputs():
    return [10 + 0.01 * torch.randn(512, 1024)]


def get_init_inputs():
    return []
