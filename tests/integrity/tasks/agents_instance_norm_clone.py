import torch
import torch.nn as nn


class Model(nn.Module):
    """Instance norm with learned scale and shift, then LeakyReLU."""

    def __init__(self, channels, slope):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels, affine=True)
        self.act = nn.LeakyReLU(slope)

    def forward(self, x):
        return self.act(self.norm(x))


def get_inputs():
    return [torch.randn(16, 64, 64, 64)]


def get_init_inputs():
    return [64, 0.2]
