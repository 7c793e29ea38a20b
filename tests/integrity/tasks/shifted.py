import torch
import torch.nn as nn


class Model(nn.Module):
    """Mixes each row with one several places away; an argument gives the distance."""

    def forward(self, x, places):
        return x + 0.5 * torch.roll(x, places, dims=0)


def get_inputs():
    return [torch.randn(256, 256), 4]


def get_init_inputs():
    return []
