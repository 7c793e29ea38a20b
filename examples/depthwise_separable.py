"""A depthwise-separable convolution as in MobileNet: depthwise 3x3 and pointwise 1x1, each with batch norm and ReLU6."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels: int, outputs: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, outputs, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.bn1(self.depthwise(x)))
        return F.relu6(self.bn2(self.pointwise(x)))


batch, channels, outputs, height, width = 8, 32, 64, 56, 56


def get_inputs():
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs():
    return [channels, outputs]
