import torch
import torch.nn as nn


class Model(nn.Module):
    """Depthwise 3x3 convolution, bias, ReLU6 (MobileNet block middle)."""

    def __init__(self, channels: int, stride: int = 1):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=True)
        self.act = nn.ReLU6()

    def forward(self, x):
        return self.act(self.conv(x))


def get_inputs():
    return [torch.rand(16, 128, 112, 112) * 2 - 1]


def get_init_inputs():
    return [128, 1]
