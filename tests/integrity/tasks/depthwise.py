import torch
import torch.nn as nn


class Model(nn.Module):
    """Applies a separate filter to each channel."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(8, 32, 40, 40)]


def get_init_inputs():
    return [32]
