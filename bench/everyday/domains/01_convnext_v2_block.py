"""Two ConvNeXt V2 blocks of the third stage: depthwise 7x7, layer norm over channels, an inverted bottleneck, and global response normalisation.

Source: Woo et al., "ConvNeXt V2", arXiv 2301.00808.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, SIZE, BLOCKS = 16, 384, 14, 2


class Response(nn.Module):
    """Scales each channel by its norm over the image relative to the mean over channels. Channels last."""

    def __init__(self, channels):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.randn(channels) * 0.1), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        norm = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        return self.gamma * (x * (norm / (norm.mean(dim=-1, keepdim=True) + 1e-6))) + self.beta + x


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide, self.response, self.narrow = nn.Linear(channels, 4 * channels), Response(4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.narrow(self.response(F.gelu(self.wide(self.norm(y)))))
        return x + y.permute(0, 3, 1, 2)


class Model(nn.Module):
    def __init__(self, channels, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(channels) for _ in range(blocks)])

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, BLOCKS]
