"""A stage of a vocoder: a transposed convolution that upsamples the signal eightfold, then the average of three residual blocks with different
kernels.

Source: Kong et al., "HiFi-GAN", arXiv 2010.05646, section 2.2 (multi-receptive field fusion).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, FRAMES, RATE, KERNELS, DILATIONS = 8, 256, 256, 8, (3, 7, 11), (1, 3, 5)


class Residual(nn.Module):
    def __init__(self, channels, kernel, dilations):
        super().__init__()
        self.wide = nn.ModuleList([nn.Conv1d(channels, channels, kernel, padding=d * (kernel // 2), dilation=d) for d in dilations])
        self.plain = nn.ModuleList([nn.Conv1d(channels, channels, kernel, padding=kernel // 2) for _ in dilations])

    def forward(self, x):
        for wide, plain in zip(self.wide, self.plain, strict=True):
            x = x + plain(F.leaky_relu(wide(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Model(nn.Module):
    def __init__(self, channels, rate, kernels, dilations):
        super().__init__()
        self.up = nn.ConvTranspose1d(channels, channels // 2, 2 * rate, stride=rate, padding=rate // 2)
        self.blocks = nn.ModuleList([Residual(channels // 2, kernel, dilations) for kernel in kernels])

    def forward(self, x):
        x = self.up(F.leaky_relu(x, 0.1))
        total = None
        for block in self.blocks:
            total = block(x) if total is None else total + block(x)
        return total / len(self.blocks)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, FRAMES)]


def get_init_inputs():
    return [CHANNELS, RATE, KERNELS, DILATIONS]
