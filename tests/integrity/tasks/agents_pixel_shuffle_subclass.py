import torch
import torch.nn as nn


class Model(nn.Module):
    """Sub-pixel upsampling: per-channel bias, pixel shuffle by two, tanh."""

    def __init__(self, channels, factor=2):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels * factor * factor))
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, x):
        return torch.tanh(self.shuffle(x + self.bias[:, None, None]))


def get_inputs():
    return [torch.randn(16, 64, 128, 128)]


def get_init_inputs():
    return [16]
