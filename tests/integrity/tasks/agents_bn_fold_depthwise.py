import torch
import torch.nn as nn


class Model(nn.Module):
    """Depthwise 3 x 3 convolution, batch norm, Hardswish: the middle of an inverted residual block at inference."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.act = nn.Hardswish()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


def get_inputs():
    return [torch.randn(32, 128, 64, 64)]


def get_init_inputs():
    return [128]
