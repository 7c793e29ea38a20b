import torch
import torch.nn as nn


class Model(nn.Module):
    """Conv2d, scaling by a learned per-channel factor, tanh, 2x2 max pooling (a KernelBench level 2 pattern)."""

    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return self.pool(torch.tanh(self.conv(x) * self.scale))


def get_inputs():
    return [torch.randn(32, 16, 130, 130)]


def get_init_inputs():
    return [16, 64, 3]
