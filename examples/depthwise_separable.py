"""A depthwise-separable convolution block as in MobileNet: depthwise 3x3, pointwise 1x1, each with batch norm (train mode) and ReLU6."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels: int, out_channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, out_channels, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.act = nn.ReLU6()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.bn1(self.depthwise(x)))
        return self.act(self.bn2(self.pointwise(x)))


def get_inputs():
    return [torch.rand(8, 32, 112, 112)]


def get_init_inputs():
    return [32, 64]
